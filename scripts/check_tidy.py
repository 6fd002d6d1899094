#!/usr/bin/env python3
"""Runs clang-tidy once over every C++ source of a build that is neither generated nor a test, nor a
program that is wrong on purpose.

  check_tidy.py RUN-CLANG-TIDY CLANG-TIDY ROOT BUILD

Sources that the build compiles together are linted together, and what several targets compile is
linted as the first of them has it.
"""
import json
import pathlib
import re
import subprocess
import sys

FOLDERS = r"(abi|sys|writer_ref|reader_ref|conformance|fuzz|golden)/"
LINTED = re.compile(FOLDERS + r"(?!.*_test\.)(?!testees/(?!adapter)).*\.cc")
INCLUDE = re.compile(r'^#include "(.+)"$', re.M)


def main():
    run_clang_tidy, clang_tidy, root, build = sys.argv[1], sys.argv[2], *map(pathlib.Path, sys.argv[3:5])
    together, alone = {}, {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["directory"], entry["file"])
        if path.parent.name == "Unity":
            sources = INCLUDE.findall(path.read_text(encoding="utf-8"))
            together[path] = entry, {pathlib.Path(s) for s in sources}
        elif path.is_relative_to(root) and LINTED.fullmatch(path.relative_to(root).as_posix()):
            alone.setdefault(path, entry)
    for _, sources in together.values():
        for source in sources:
            alone.pop(source, None)
    entries = [entry for entry, _ in together.values()] + list(alone.values())
    if not alone:
        print("no sources found")
        return 1
    database = build / "tidy"
    database.mkdir(exist_ok=True)
    (database / "compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")
    print(f"{len(alone)} sources alone, {sum(len(s) for _, s in together.values())} in {len(together)} "
          "others", flush=True)
    return subprocess.run([run_clang_tidy, "-quiet", "-j", "2", "-clang-tidy-binary", clang_tidy,
                           "-config-file", root / ".clang-tidy", "-p", database], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
