#!/usr/bin/env python3
"""Checks which files include which. The tables below have the allowed includes and the exceptions.

  check_layering.py [ROOT]
"""
import pathlib
import re
import sys

# Folder: the folders of ours that it may include, in addition to itself.
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
# Room of conformance/: the rooms that it may include, in addition to itself; a test may include
# any. A room includes none below it in this list.
ROOMS = {
    "text": set(),
    "requirements": set(),
    "evidence": {"requirements", "text"},
    "payload": set(),
    "elf": {"evidence"},
    "verdict": {"requirements", "evidence", "text"},
    "faults": {"evidence", "text"},
    "rules": {"elf", "evidence", "payload", "requirements", "text", "verdict"},
    "judge": {"evidence", "faults", "requirements", "rules", "text", "verdict"},
    "observe": {"elf", "evidence", "faults", "payload", "text"},
    "puppet": {"evidence", "observe", "text"},
    "testee": {"evidence", "faults", "observe", "requirements", "text", "verdict"},
    "reader": {"evidence", "observe", "puppet", "requirements", "testee", "text"},
    "report": {"requirements", "text", "verdict"},
    "command": {"elf", "evidence", "faults", "judge", "observe", "payload", "puppet", "reader", "report", "requirements",
                "rules", "testee", "text", "verdict"},
}
# The broken and legal programs include no room, and only what an SDK could include.
TESTEES = "conformance/testees/"
TESTEES_MAY = ("opentelemetry/proto/", "writer_ref/otel_ctx.h", "writer_ref/otel_thread_ctx.h")
# A generated file, which is in no room.
NO_ROOM = {"conformance/version.h"}
# Libraries that only one folder may include.
ONLY_IN = {"elfutils/": {"sys"}, "gelf.h": {"sys"}, "libelf.h": {"sys"}, "boost/": {"sys"}}
# Subfolders that only these folders may include.
INNER = {"sys/arch": {"sys"}}
# Macros that only sys/arch may use; it has a file for each processor. The scripted process, testees and
# tests have instructions of their own, and the reference writer asks for the largest page.
PROCESSOR = re.compile(r"\b(__(x86_64|i386|amd64|aarch64|arm|riscv|powerpc64|s390x|loongarch64)(__)?|user_regs_struct|"
                       r"u_debugreg|AUDIT_ARCH_\w+)\b")
MAY_ASK = re.compile(r"sys/arch/|conformance/testees/|conformance/puppet/[^/]*\.c$|writer_ref/otel_ctx\.cc$|"
                     r".*_(test|bench|target)\.(cc|c|h)$")
# File: what it may include beyond its folder.
EXCEPTIONS = {
    "writer_ref/encode.cc": {"proto"},
    "writer_ref/encode_test.cc": {"proto"},
    "writer_ref/main_test.cc": {"proto"},
}
PURE = {"sys/map_table.h": {"sys/result.h", "sys/remote_addr.h"}, "sys/map_table.cc": {"sys/map_table.h"},
        "sys/proc_text.h": set(), "sys/proc_text.cc": {"sys/proc_text.h"}}
# The judge must not link the reference code, not even through another target.
REFERENCE = {"ctxconf_writer", "ctxconf_writer_objects", "ctxconf_writer_encode", "otel_ctx"}
TARGET = re.compile(r"ctxconf_(?:library|program|test)\((\S+)\s+SRCS\s+([^)]*?)(?:\s+DEPS\s+([^)]*?))?\)", re.S)
DIRECTIVE = re.compile(r"^\s*#\s*(?:include|include_next|import)\b\s*(.*)")
INCLUDE = re.compile(r'[<"]([^">]+)[">]')


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
            if any(s.startswith("conformance/") and not s.startswith(TESTEES) for s in sources)
            for dep in sorted(reached(name, set()) & REFERENCE)]


def check_path(root, place, target, ours, must_exist):
    """Whether an include names its file from the root: the other checks know no other path."""
    if {"", ".", ".."} & set(target.split("/")):
        return [f"{place}: write the path of {target} from the root, without . and .."]
    if not must_exist:
        return []
    # The build makes a header of each .proto file.
    proto = root / "proto" / target.replace(".pb.h", ".proto")
    exists = target in NO_ROOM or (root / target).is_file() or (target.startswith("opentelemetry/") and proto.is_file())
    return [] if ours and exists else [f"{place}: {target} is not a file of this repository"]


def check_room(name, number, target):
    """Whether a source of conformance/ may include another of it."""
    room = name.split("/")[1]
    to = target.split("/")[1]
    if room not in ROOMS or target in NO_ROOM:
        return [] if room in ROOMS else [f"{name}:{number}: conformance/{room} is not a room"]
    may = ROOMS[room] | {room}
    return [] if to in may or name.endswith("_test.cc") else [f"{name}:{number}: conformance/{room} may not include {target}"]


def check_testee(name, number, target):
    """Whether a broken or legal program may include another file of ours."""
    # The programs of one folder do not know those of another; all know writer/ and what is next to it.
    folder = target.removeprefix(TESTEES).rpartition("/")[0]
    own = name.removeprefix(TESTEES).rpartition("/")[0]
    ours = target.startswith(TESTEES) and (folder in ("", "writer", own) or own == "")
    upward = ours and own == "writer" and folder != "writer"
    if target.startswith(TESTEES_MAY) or (ours and not upward):
        return []
    return [f"{name}:{number}: a testee may not include {target}"]


def check_rooms():
    """Checks the order of the list: no include goes upward, so there is no cycle."""
    order = list(ROOMS)
    return [f"the rooms {room} and {to} are in the wrong order"
            for room, below in ROOMS.items() for to in below if order.index(to) >= order.index(room)]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    problems, files = check_rooms(), 0
    for folder, allowed in ALLOWED.items():
        for path in sorted(root.glob(f"{folder}/**/*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in (".h", ".cc", ".c"):
                continue
            testee = name.startswith(TESTEES)
            files += 1
            may = allowed | {folder} | EXCEPTIONS.get(name, set())
            if name.endswith("_test.cc"):
                may = may | {"golden"}
            for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
                if not MAY_ASK.match(name) and PROCESSOR.search(line):
                    problems.append(f"{name}:{number}: only sys/arch may ask for the processor")
                directive = DIRECTIVE.match(line)
                if not directive:
                    continue
                found = INCLUDE.match(directive.group(1))
                if not found:
                    problems.append(f"{name}:{number}: an include must name its file")
                    continue
                target = found.group(1)
                if target == "otel_ctx.h":
                    target = "writer_ref/otel_ctx.h"
                top = "proto" if target.startswith("opentelemetry/") else target.split("/")[0]
                ours = top in ALLOWED and (top != "sys" or (root / target).exists())
                wrong = check_path(root, f"{name}:{number}", target, ours, ours or found.group(0)[0] == '"')
                if wrong:
                    problems += wrong
                    continue
                if testee:
                    problems += check_testee(name, number, target) if ours else []
                    continue
                if ours and top not in may:
                    problems.append(f"{name}:{number}: {folder} may not include {target}")
                if ours and name in PURE and target not in PURE[name]:
                    problems.append(f"{name}:{number}: the pure part may not include {target}")
                if folder == "conformance" and top == "conformance":
                    problems += check_room(name, number, target)
                for inner, homes in INNER.items():
                    if target.startswith(inner + "/") and folder not in homes:
                        problems.append(f"{name}:{number}: only {', '.join(homes)} may include {target}")
                for library, homes in ONLY_IN.items():
                    if target.startswith(library) and folder not in homes:
                        problems.append(f"{name}:{number}: only {', '.join(homes)} may include {target}")
    problems += check_links(root)
    print("\n".join(problems + [f"{files} files, {len(problems)} problems"]))
    return 1 if problems or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
