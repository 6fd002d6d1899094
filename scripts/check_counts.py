#!/usr/bin/env python3
"""Checks the numbers of requirements that README.md and docs/ state against `ctxconf list`.

  check_counts.py CTXCONF [ROOT]          fails if a number is wrong
  check_counts.py --fix CTXCONF [ROOT]    writes the right numbers

--fix leaves the outcomes of a run alone, and how many of its requirements were judged, because only another run
shows them.
"""
import argparse
import fnmatch
import json
import pathlib
import re
import shlex
import subprocess
import sys

JUDGE_LIBDD = pathlib.Path(__file__).with_name("judge-libdd-reader").read_text(encoding="utf-8")
# The requirements that this script selects.
LIBDD = ["pctx.reader." + glob
         for glob in shlex.split(re.search(r"for id in (.*?); do", JUDGE_LIBDD, re.S).group(1))]
# What a number counts: requirements that this version judges, but "all" has also those that nothing can observe.
COUNTS = {
    "all": lambda r: True,
    "judged": lambda r: r["role"] == "writer",
    "run_alone": lambda r: r["role"] == "writer" and r["modes"] == ["run"],
    "readers": lambda r: r["role"] == "reader",
    "elf": lambda r: "elf" in r["modes"],
    "header_stores": lambda r: r["otep"] == 4719 and r["level"] == "stores" and "wrap" in r["modes"],
    "record_ids": lambda r: fnmatch.fnmatchcase(r["id"], "tctx.record.*-id"),
    "libdd": lambda r: any(fnmatch.fnmatchcase(r["id"], glob) for glob in LIBDD),
}
READERS = r"docs/reader-authors\.md"
WRITERS = rf"(?!{READERS}).*"
OUTCOMES = r"(?P<outcomes>\d+ passed(?:, \d+ [a-z/]+)*) of "
EXIT = r" selected.*(?:\nexit 0: (?P<seen>\d+) of \d+ requirements judged)?"
# The sentences that count something, and the pages that have them. The name of a group says what its number counts
# (COUNTS), unless it is "otep" or "revision": these limit the others to one catalogue. "outcomes" has numbers that
# add up to the other number of the sentence, and "seen" is how many of these requirements were judged.
SENTENCES = [
    (re.compile(r"OTEP (?P<otep>\d+) at (?P<revision>[\d-]+) \(blob [^)]*\) \| (?P<judged>\d+) of its writer requirements, "
                r"(?P<run_alone>\d+) of them by `run` alone"), r"README\.md"),
    (re.compile(r"OTEP (?P<otep>\d+) at (?P<revision>[\d-]+) \(blob [^)]*\) \|.*\| (?P<readers>\d+) of its reader requirements"),
     r"README\.md"),
    (re.compile(r"^## OTEP (?P<otep>\d+) at (?P<revision>\S+)\n\n(?P<all>\d+) requirements, from git blob", re.M),
     r"docs/requirements\.md"),
    # Runs that select everything: their last line, and the one before it. Smaller numbers are of --only.
    (re.compile(OUTCOMES + r"(?P<judged>\d{3,})" + EXIT), WRITERS),
    (re.compile(r"\d+ of (?P<judged>\d{3,}) requirements (?:judged|failed)"), WRITERS),
    (re.compile(OUTCOMES + r"(?P<readers>\d+)" + EXIT.rstrip("?")), READERS),
    (re.compile(r"\d+ of (?P<readers>\d+) requirements (?:judged|failed)"), READERS),
    (re.compile(r"(?s:\$ scripts/judge-libdd-reader [^`]*?)" + OUTCOMES + r"(?P<libdd>\d+) selected"), READERS),
    (re.compile(OUTCOMES + r"(?P<elf>\d+) selected"), r"docs/elf\.md"),
    (re.compile(r"\d+ of (?P<elf>\d+) requirements failed"), r"docs/elf\.md"),
    (re.compile(OUTCOMES + r"(?P<record_ids>\d+)" + EXIT), r"docs/ids\.md"),
    (re.compile(r"\d+ of (?P<record_ids>\d+) requirements judged"), r"docs/ids\.md"),
    (re.compile(r"\b(?P<header_stores>\d+) requirements rest on them"), r"docs/stores\.md"),
]
# A sentence that was reworded would no longer be checked, so each file must have at least this number of them.
LEAST_HITS = {"README.md": 8, "docs/elf.md": 2, "docs/ids.md": 2, "docs/images.md": 4, "docs/reader-authors.md": 5,
              "docs/reports.md": 2, "docs/requirements.md": 2, "docs/stores.md": 1}


def requirements(ctxconf, what):
    done = subprocess.run([ctxconf, "list", what, "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="write the right numbers")
    parser.add_argument("ctxconf", metavar="CTXCONF")
    parser.add_argument("root", metavar="ROOT", nargs="?", type=pathlib.Path, default=pathlib.Path("."))
    args = parser.parse_args()
    root = args.root
    every, checks = requirements(args.ctxconf, "--requirements"), requirements(args.ctxconf, "--checks")

    def right(what, otep, revision):
        return sum(COUNTS[what](r) and otep in (None, str(r["otep"])) and revision in (None, r["revision"])
                   for r in (every if what == "all" else checks))

    problems, hits, numbers = [], {}, 0
    for path in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]:
        text, name = path.read_text(encoding="utf-8"), str(path.relative_to(root))
        fixes = {}
        for pattern, pages in SENTENCES:
            if not re.fullmatch(pages, name):
                continue
            for m in pattern.finditer(text):
                groups = m.groupdict()
                otep, revision, outcomes, seen = (groups.pop(group, None)
                                                  for group in ("otep", "revision", "outcomes", "seen"))
                hits[name] = hits.get(name, 0) + 1
                for what, stated in groups.items():
                    numbers += 1
                    line = text.count("\n", 0, m.start(what)) + 1
                    wanted = right(what, otep, revision)
                    if int(stated) != wanted and args.fix:
                        fixes[m.span(what)] = str(wanted)
                    elif int(stated) != wanted:
                        problems.append(f"{name}:{line}: {what} is {stated}, and should be {wanted}")
                if outcomes is not None:
                    ended = {how: int(n) for n, how in re.findall(r"(\d+) ([a-z/]+)", outcomes)}
                    total, line = sum(ended.values()), text.count("\n", 0, m.start("outcomes")) + 1
                    if total != wanted:
                        problems.append(f"{name}:{line}: the outcomes are {total} together, not {wanted}: "
                                        "run the command again")
                    judged = total - ended.get("n/a", 0) - ended.get("unobservable", 0)
                    numbers += seen is not None
                    if seen is not None and int(seen) != judged:
                        problems.append(f"{name}:{line + 1}: {seen} are judged, and by the outcomes {judged}: "
                                        "run the command again")
        for (begin, end), number in sorted(fixes.items(), reverse=True):
            text = text[:begin] + number + text[end:]
        if fixes:
            path.write_text(text, encoding="utf-8")
            print(f"{name}: {len(fixes)} numbers rewritten")
    for name, least in LEAST_HITS.items():
        if hits.get(name, 0) < least:
            problems.append(f"{name}: {hits.get(name, 0)} sentences with numbers of requirements found, and {least} are "
                            "expected: adapt SENTENCES to their words, or LEAST_HITS if one was removed")
    print(*problems, f"{numbers} numbers, {len(problems)} problems", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
