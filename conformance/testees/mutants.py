#!/usr/bin/env python3
"""Writes the lists of mutants and legal variants that `ctxconf selftest` runs.

    mutants.py SOURCE_DIRECTORY OUT_DIRECTORY

Each case in a table of a topic (`process/header.cc`) becomes an entry. What does not follow from its name is in the
file next to it (`process/header.json`), under the name of the case: an entry, or a list of entries where the case is
run in several ways. The members are those of mutants.schema.json, `more_args`, and `more_wrap_args`, which adds to
what a topic of readers has anyway. Members that are missing follow from the case: `requirements` is the requirement
that a broken program is named after, and `expect` is the outcome of each of these by its severity. "not_here"
has legal variants of the catalogue that no program shows, and why.
"""
import json
import pathlib
import re
import sys
import typing

OUTCOMES = {"error": "fail", "warning": "warn", "info": "info"}
TABLE = re.compile(r"k(Bad|Good)\w*\[\] = \{\n(.*?)^\};", re.M | re.S)
ROW = re.compile(r'^    \{"([^"]+)",', re.M)


class Program(typing.NamedTuple):
    """A program with cases."""
    name: str
    topics: list  # sources with tables
    prefix: str  # of the names of entries
    members: dict  # of all its entries


THREAD = ["thread/reference_data", "thread/record", "thread/ids", "thread/store_order", "thread/fork"]
# List: the programs with cases, and files with whole entries of other programs.
LISTS = {
    "mutants": ([
        Program("process_writer", [
            "process/header", "process/payload", "process/placement", "process/mapping", "process/naming",
            "process/update", "process/withdrawal", "process/store_order", "process/fork", "process/clock",
            "process/failure"], "", {}),
        Program("thread_writer", THREAD, "tctx_", {}),
        Program("thread_loader", ["thread/loader"], "tctx_", {}),
        Program("thread_go", ["thread/go"], "tctx_", {}),
    ], ["ctypes_writer", "slot_library"]),
    "driven_process_mutants": ([
        Program("driven_process_writer", [
            "driven_process/content", "driven_process/context", "driven_process/sdk", "driven_process/children"],
            "driven_", {"command": "run"}),
    ], ["adapter_cpp_process"]),
    "driven_thread_mutants": ([
        Program("driven_thread_writer", [
            "driven_thread/reference_data", "driven_thread/record", "driven_thread/threads"],
            "driven_", {"command": "run", "wrap_args": ["--only=tctx.*"]}),
    ], ["adapter_cpp_thread"]),
    "driven_record_mutants": ([
        Program("driven_record_writer", ["driven_record_writer"], "record_", {"command": "run"}),
    ], []),
    "reader_mutants": ([
        Program("bad_reader", [
            "reader/agent", "reader/context_reader", "reader/context_copy", "reader/header", "reader/mappings",
            "reader/memory", "reader/payload", "reader/record", "reader/reference_data", "reader/thread_sample",
            "reader/variable"],
            "reader_", {"command": "reader"}),
    ], []),
}


class Mistake(Exception):
    """In a table or in a file next to it."""


def cases_of(source):
    """("bad" or "good", name) of each case of a topic."""
    return [(kind.lower(), name) for kind, rows in TABLE.findall(source.read_text(encoding="utf-8"))
            for name in ROW.findall(rows)]


def entry_of(program, kind, case, more, severities):
    mutant = more.get("kind", "mutant" if kind == "bad" else "variant") == "mutant"
    # Readers of both OTEPs have requirements of one name.
    words = case.replace("ctx.reader.", "ctx.") if program.name == "bad_reader" else re.sub(r"^[pt]ctx\.", "", case)
    entry = {
        "name": ("bad_" if mutant else "good_") + program.prefix + re.sub(r"[^a-z0-9]", "_", words),
        "kind": "mutant" if mutant else "variant", "program": program.name,
        "args": ["--" + kind, case] + more.get("more_args", []), "wrap_args": [], **program.members,
        **{name: value for name, value in more.items() if not name.startswith("more_")}}
    entry["wrap_args"] = entry["wrap_args"] + more.get("more_wrap_args", [])
    if "requirements" not in entry:
        if kind == "good":
            raise Mistake(f"{program.name} {case}: which requirements is it about?")
        entry["requirements"] = [case.split(":")[0]]
    if "expect" not in entry:
        entry["expect"] = {r: OUTCOMES[severities[r]] for r in entry["requirements"]} if mutant else {}
    return entry


def scenes_of(cases, more_of):
    """The options by which a reader sees the scenes of what its topic is about."""
    about = {name.split(":")[0] for kind, name in cases if kind == "bad"}
    for more in more_of.values():
        for entry in more if isinstance(more, list) else [more]:
            about.update(entry.get("requirements", []))
    return [f"--only={requirement}" for requirement in sorted(about)]


def whole_list(folder, programs, others, severities):
    entries, not_here = [], []
    for program in programs:
        for topic in program.topics:
            more_of = {}
            if (folder / f"{topic}.json").exists():
                more_of = json.loads((folder / f"{topic}.json").read_text(encoding="utf-8"))
            not_here += more_of.pop("not_here", [])
            cases = cases_of(folder / f"{topic}.cc")
            if program.members.get("command") == "reader":
                program.members["wrap_args"] = scenes_of(cases, more_of)
            for kind, case in cases:
                more = more_of.pop(case, {})
                entries += [entry_of(program, kind, case, m, severities)
                            for m in (more if isinstance(more, list) else [more])]
            if more_of:
                raise Mistake(f"{topic}.json: no such case: {', '.join(more_of)}")
    for other in others:
        entries += json.loads((folder / f"{other}.json").read_text(encoding="utf-8"))
    return {"version": 1, "programs": sorted({e["program"] for e in entries}), "mutants": entries,
            "not_here": not_here}


def main():
    source, out = map(pathlib.Path, sys.argv[1:])
    severities = {
        r["id"]: r["severity"] for file in sorted((source / "conformance" / "requirements").glob("*.json"))
        for r in json.loads(file.read_text(encoding="utf-8")).get("requirements", [])}
    for name, (programs, others) in LISTS.items():
        zoo = whole_list(source / "conformance" / "testees", programs, others, severities)
        (out / f"{name}.json").write_text(json.dumps(zoo, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except Mistake as mistake:
        sys.exit(str(mistake))
