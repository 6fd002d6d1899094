#!/usr/bin/env python3
"""Runs scripts/check_counts.py on a copy of README and docs in which numbers are wrong or missing.

usage: counts_test.py SOURCE_DIR CTXCONF
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pathlib.Path()
CTXCONF = pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else pathlib.Path()
del sys.argv[1:3]
# The numbers that follow from the catalogue, and how many of them each page has.
NUMBER = re.compile(r"\d+(?= of its (?:writer|reader) requirements| of them by `run` alone| selected"
                    r"| requirements judged| requirements failed| requirements rest on| requirements, from git)")
NUMBERS = {"README.md": 10, "docs/elf.md": 2, "docs/ids.md": 2, "docs/images.md": 4, "docs/reader-authors.md": 5,
           "docs/reports.md": 2, "docs/requirements.md": 2, "docs/stores.md": 1}
# The numbers of a run that only another run shows: those that passed, and those that were judged.
PASSED = re.compile(r"\d+(?= passed, .* selected)")
JUDGED = re.compile(r"(?<=exit 0: )\d+(?= of \d+ requirements judged)")
RUNS = {"README.md": 2, "docs/elf.md": 1, "docs/ids.md": 1, "docs/images.md": 2, "docs/reader-authors.md": 3,
        "docs/reports.md": 1}
AGAIN = "run the command again"


def one_more(m):
    return str(int(m.group()) + 1)


class CountsTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        for name in ("README.md", "CONTRIBUTING.md"):
            shutil.copy(SOURCE / name, self.root)
        shutil.copytree(SOURCE / "docs", self.root / "docs")
        self.pages = {name: self.read(name) for name in NUMBERS}

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def change(self, pattern, new=one_more):
        """Changes each number, and returns them as (page, line, number as it was)."""
        found = []
        for page, text in self.pages.items():
            found += [(page, text.count("\n", 0, m.start()) + 1, int(m.group())) for m in pattern.finditer(text)]
            (self.root / page).write_text(pattern.sub(new, text), encoding="utf-8")
        return found

    def check(self, *options):
        """Returns the complaints, sorted, without the kind of number that they are about."""
        done = subprocess.run([sys.executable, SOURCE / "scripts" / "check_counts.py", *options, CTXCONF, self.root],
                              capture_output=True, text=True, timeout=60)
        *complaints, last = done.stdout.splitlines()
        self.assertRegex(last, r"^\d+ numbers, \d+ problems$", done.stderr)
        self.assertEqual(done.returncode, 0 if last.endswith(", 0 problems") else 1)
        return sorted(re.sub(r": \w+ is (\d+), and", r": \1, and", line) for line in complaints)

    def test_the_pages_have_no_wrong_number(self):
        self.assertEqual(self.check(), [])

    def test_each_wrong_number_is_a_complaint_and_fix_corrects_it(self):
        numbers = self.change(NUMBER)
        self.assertEqual({page: sum(p == page for p, _, _ in numbers) for page in NUMBERS}, NUMBERS)
        self.assertEqual(self.check(),
                         sorted(f"{page}:{line}: {n + 1}, and should be {n}" for page, line, n in numbers))
        self.check("--fix")
        self.assertEqual({name: self.read(name) for name in NUMBERS}, self.pages)

    def test_outcomes_add_up_to_the_requirements(self):
        runs = self.change(PASSED)
        self.assertEqual({page: sum(p == page for p, _, _ in runs) for page in RUNS}, RUNS)
        expected = []
        for page, line, _ in runs:
            total = int(re.search(r"(\d+) selected", self.pages[page].splitlines()[line - 1]).group(1))
            expected.append(f"{page}:{line}: the outcomes are {total + 1} together, not {total}: {AGAIN}")
        self.assertEqual([c for c in self.check() if "together" in c], sorted(expected))

    def test_outcomes_and_the_exit_line_agree(self):
        runs = self.change(JUDGED)
        self.assertEqual(len(runs), 7)
        self.assertEqual(self.check(), sorted(f"{page}:{line}: {n + 1} are judged, and by the outcomes {n}: {AGAIN}"
                                              for page, line, n in runs))

    def test_a_page_that_loses_a_number_is_a_complaint(self):
        for nth in range(max(NUMBERS.values())):
            having = [page for page, count in NUMBERS.items() if nth < count]
            for page in having:
                m = list(NUMBER.finditer(self.pages[page]))[nth]
                (self.root / page).write_text(self.pages[page][:m.start()] + "some" + self.pages[page][m.end():],
                                              encoding="utf-8")
            with self.subTest(nth=nth):
                complaints = "\n".join(self.check())
                for page in having:
                    self.assertRegex(complaints, rf"(?m)^{page}: \d+ sentences with numbers of requirements found, ")
            for page in having:
                (self.root / page).write_text(self.pages[page], encoding="utf-8")


if __name__ == "__main__":
    unittest.main()
