#!/usr/bin/env python3
"""Checks who includes whom. Arrows and exceptions are the two tables below.

  check_layering.py [ROOT]
"""
import pathlib
import re
import sys

# Folder: the folders of ours that it may include, besides itself.
ALLOWED = {
    "abi": set(),
    "sys": set(),
    "proto": set(),
    "writer_ref": {"abi"},
    "reader_ref": {"abi", "sys", "proto"},
    "golden": {"abi", "proto"},
    "conformance": {"abi", "sys", "proto", "golden"},
    "fuzz": {"abi", "sys", "proto", "golden", "reader_ref", "conformance"},
}
# Libraries that only one folder may know.
ONLY_IN = {"elfutils/": {"sys"}, "gelf.h": {"sys"}, "libelf.h": {"sys"}, "boost/": {"sys"}}
# File: what it may include beyond its folder.
EXCEPTIONS = {
    "writer_ref/encode.cc": {"proto"},
    "writer_ref/encode_test.cc": {"proto"},
    "writer_ref/main_test.cc": {"proto"},
}
PURE = {"sys/map_table.h": {"sys/result.h", "sys/remote_addr.h"}, "sys/map_table.cc": {"sys/map_table.h"}}
# The judge must not link the reference code, not even through another target.
REFERENCE = {"ctxconf_writer", "ctxconf_writer_objects", "ctxconf_writer_encode", "otel_ctx"}
TARGET = re.compile(r"ctxconf_(?:library|program|test)\((\S+)\s+SRCS\s+([^)]*?)(?:\s+DEPS\s+([^)]*?))?\)", re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')


def check_links(root):
    text = "\n".join(p.read_text(encoding="utf-8") for p in [root / "CMakeLists.txt", *root.glob("cmake/*.cmake")])
    targets = {name: (sources.split(), (deps or "").split()) for name, sources, deps in TARGET.findall(text)}
    if "ctxconf" not in targets:
        return ["CMakeLists.txt: no target ctxconf found"]

    def reached(name, seen):
        for dep in targets.get(name, ([], []))[1]:
            if dep not in seen:
                seen.add(dep)
                reached(dep, seen)
        return seen

    return [f"CMakeLists.txt: {name} may not link {dep}"
            for name, (sources, _) in targets.items()
            if any(s.startswith("conformance/") and not s.startswith("conformance/testees/") for s in sources)
            for dep in sorted(reached(name, set()) & REFERENCE)]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    problems, files = [], 0
    for folder, allowed in ALLOWED.items():
        for path in sorted(root.glob(f"{folder}/**/*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in (".h", ".cc", ".c") or name.startswith("conformance/testees/"):
                continue
            files += 1
            may = allowed | {folder} | EXCEPTIONS.get(name, set())
            if name.endswith("_test.cc"):
                may = may | {"golden"}
            for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
                found = INCLUDE.match(line)
                if not found:
                    continue
                target = found.group(1)
                if target == "otel_ctx.h":
                    target = "writer_ref/otel_ctx.h"
                top = "proto" if target.startswith("opentelemetry/") else target.split("/")[0]
                ours = top in ALLOWED and (top != "sys" or (root / target).exists())
                if ours and top not in may:
                    problems.append(f"{name}:{number}: {folder} may not include {target}")
                if ours and name in PURE and target not in PURE[name]:
                    problems.append(f"{name}:{number}: the pure part may not include {target}")
                for library, homes in ONLY_IN.items():
                    if target.startswith(library) and folder not in homes:
                        problems.append(f"{name}:{number}: only {', '.join(homes)} may include {target}")
    problems += check_links(root)
    print("\n".join(problems + [f"{files} files, {len(problems)} problems"]))
    return 1 if problems or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
