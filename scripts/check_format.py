#!/usr/bin/env python3
"""Checks that clang-format would not change any source: check_format.py CLANG-FORMAT ROOT"""
import pathlib
import subprocess
import sys

FOLDERS = ("abi", "cmake", "conformance", "fuzz", "golden", "reader_ref", "sys", "writer_ref")


def main():
    binary, root = sys.argv[1], pathlib.Path(sys.argv[2])
    files = [str(p) for f in FOLDERS for p in sorted(root.glob(f"{f}/**/*")) if p.suffix in (".h", ".cc", ".c")]
    if not files:
        print("no sources found")
        return 1
    done = subprocess.run([binary, "--dry-run", "-Werror", *files], check=False)
    print(f"{len(files)} files; to fix them: {binary} -i FILE")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
