#!/usr/bin/env python3
"""Checks the numbers of requirements that README.md and docs/ state against `ctxconf list`.

  check_counts.py CTXCONF [ROOT]          fails if a number is wrong
  check_counts.py --fix CTXCONF [ROOT]    writes the right numbers

--fix leaves the outcomes of a run alone, because only another run shows them.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

# The sentences that count something. The name of a group says what its number counts, unless it is "otep" or
# "revision": these limit the others to one catalogue. "judged" and "run_alone" count requirements of writers.
# "outcomes" has numbers that add up to "judged".
SENTENCES = [
    (re.compile(r"OTEP (?P<otep>\d+) at (?P<revision>[\d-]+) \(blob [^)]*\) \| (?P<judged>\d+) of its writer requirements, "
                r"(?P<run_alone>\d+) of them by `run` alone"), "README.md"),
    (re.compile(r"OTEP (?P<otep>\d+) at (?P<revision>[\d-]+) \(blob [^)]*\) \|.*\| (?P<readers>\d+) of its reader requirements"),
     "README.md"),
    (re.compile(r"^## OTEP (?P<otep>\d+) at (?P<revision>\S+)\n\n(?P<all>\d+) requirements, from git blob", re.M), "docs/requirements.md"),
    # Runs that select everything: their last line, and the one before it. Smaller numbers are of --only.
    (re.compile(r"(?P<outcomes>\d+ passed(?:, \d+ [a-z/]+)*) of (?P<judged>\d{3,}) selected"), None),
    (re.compile(r"\d+ of (?P<judged>\d{3,}) requirements (?:judged|failed)"), None),
]
# A sentence that was reworded would no longer be checked, so each file must have at least this number of them.
LEAST_HITS = {"README.md": 8, "docs/images.md": 4, "docs/reports.md": 2, "docs/requirements.md": 2}


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
    judged, readers = ([r for r in checks if r["role"] == role] for role in ("writer", "reader"))

    def right(name, otep, revision):
        rows = {"judged": judged, "run_alone": [r for r in judged if r["modes"] == ["run"]], "readers": readers,
                "all": every}[name]
        return sum(otep in (None, str(r["otep"])) and revision in (None, r["revision"]) for r in rows)

    problems, hits, numbers = [], {}, 0
    for path in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]:
        text, name = path.read_text(encoding="utf-8"), str(path.relative_to(root))
        fixes = {}
        for pattern, only in SENTENCES:
            if only not in (None, name):
                continue
            for m in pattern.finditer(text):
                groups = m.groupdict()
                otep, revision, outcomes = (groups.pop(g, None) for g in ("otep", "revision", "outcomes"))
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
                    total, wanted = sum(map(int, re.findall(r"\d+", outcomes))), right("judged", otep, revision)
                    if total != wanted:
                        line = text.count("\n", 0, m.start()) + 1
                        problems.append(f"{name}:{line}: the outcomes are {total} together, not {wanted}: "
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
