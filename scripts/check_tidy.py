#!/usr/bin/env python3
"""Runs clang-tidy once over every C++ source of a build that is neither generated nor a test, nor a
program that is wrong on purpose.

  check_tidy.py RUN-CLANG-TIDY CLANG-TIDY ROOT BUILD

Sources that the build compiles together are linted together, and what several targets compile is
linted as the first of them has it. Programs of one source are linted together as well, because most of the time
goes to headers, and so are libraries.
"""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

FOLDERS = ("abi", "sys", "writer_ref", "reader_ref", "conformance", "fuzz", "golden")
LINTED = re.compile(f"({'|'.join(FOLDERS)})/" + r"(?!.*_test\.)(?!testees/(?!adapter)).*\.cc")
# Programs whose sources are linted together, like libraries; the function that each has gets another name.
PROGRAMS = ((r"fuzz/(?!bench)\w+_fuzzer\.cc", "LLVMFuzzerTestOneInput"),
            (r"writer_ref/(main|encode|thread_contexts)\.cc|reader_ref/main\.cc|"
             r"conformance/(report/report_samples|testees/adapter_\w+)\.cc", "main"))
# Libraries that are linted together; no two of their sources may define the same name, even a local one.
LIBRARIES = (("golden", "puppet", "reader", "grammar", "scenes", "report"),
             ("judge", "sys", "elf", "observe", "evidence", "verdict"),
             ("catalogue", "drift", "elf_facts", "faults", "sample_runs", "repeats", "testee", "command"),
             ("abi", "maps", "memory", "record_reader", "payload_walk", "payload", "fuzz", "fuzz_decoders",
              "fuzz_replay"))
# Built with options that a build for clang-tidy does not have, or for another processor.
UNBUILT = re.compile(r".*_bench(_kernel|_fuzzer)?\.cc|fuzz/(bench_fuzzer|json_mutator)\.cc|sys/arch/aarch64\.cc")
INCLUDE = re.compile(r'^#include "(.+)"$', re.M)


def is_linted(source, root):
    return source.is_relative_to(root) and LINTED.fullmatch(source.relative_to(root).as_posix())


def command_for(path, entries):
    """The words of all that decide what an #include and an #if mean."""
    words = {}
    for entry in entries:
        command = shlex.split(entry["command"])
        for word, after in zip(command, command[1:]):
            if word == "-isystem":
                words[word, after] = None
            elif word.startswith(("-D", "-I", "-std=")):
                words[word,] = None
    return shlex.join([command[0], *(part for parts in words for part in parts), "-c", str(path)])


def one_entry(path, text, entries, build):
    """Writes sources that are linted together, and returns their entry in the database."""
    path.write_text(text, encoding="utf-8")
    return {"directory": str(build), "file": str(path), "command": command_for(path, entries)}


def main():
    run_clang_tidy, clang_tidy, root, build = sys.argv[1], sys.argv[2], *map(pathlib.Path, sys.argv[3:5])
    together, alone = {}, {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["directory"], entry["file"])
        if path.parent.name == "Unity":
            sources = {pathlib.Path(s) for s in INCLUDE.findall(path.read_text(encoding="utf-8"))}
            if any(is_linted(source, root) for source in sources):
                together[path] = entry, sources
        elif is_linted(path, root):
            alone.setdefault(path, entry)
    for _, sources in together.values():
        for source in sources:
            alone.pop(source, None)
    linted = {source for _, sources in together.values() for source in sources} | set(alone)
    wanted = {path for folder in FOLDERS for path in (root / folder).rglob("*.cc") if is_linted(path, root)}
    missing = sorted(path for path in wanted - linted if not UNBUILT.fullmatch(path.relative_to(root).as_posix()))
    if missing:
        print(f"not in this build: {' '.join(map(str, missing))}")
        return 1
    database = build / "tidy"
    database.mkdir(exist_ok=True)
    for number, libraries in enumerate(LIBRARIES):
        parts = [path for path in together if path.parts[-3] in {f"ctxconf_{name}.dir" for name in libraries}]
        if not parts:  # without CTXCONF_UNITY
            continue
        path = database / f"libraries_{number}.cc"
        entries, sources = zip(*(together.pop(part) for part in parts))
        text = "".join(f'#include "{part}"\n' for part in parts)
        together[path] = one_entry(path, text, entries, build), set().union(*sources)
    text, programs = "", []
    for pattern, function in PROGRAMS:
        sources = [source for source in alone if re.fullmatch(pattern, source.relative_to(root).as_posix())]
        text += "".join(f'#define {function} {function}_{i}\n#include "{source}"\n#undef {function}\n'
                        for i, source in enumerate(sources))
        programs += sources
    if programs:
        path = database / "programs.cc"
        together[path] = one_entry(path, text, [alone.pop(source) for source in programs], build), programs
    entries = [entry for entry, _ in together.values()] + list(alone.values())
    (database / "compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")
    print(f"{len(alone)} sources alone, {sum(len(s) for _, s in together.values())} in {len(together)} "
          "others", flush=True)
    # clang-tidy looks for its configuration in the folders above a file; this copy is for generated files. With
    # -config-file it would check the names in all headers of the system, which takes a third of its time.
    shutil.copy(root / ".clang-tidy", build)
    return subprocess.run([run_clang_tidy, "-quiet", "-j", "2", "-clang-tidy-binary", clang_tidy, "-p", database],
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
