#!/usr/bin/env python3
"""Runs scripts/new-requirement on a copy of the sources.

usage: new_requirement_test.py SOURCE_DIR
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pathlib.Path()
del sys.argv[1:2]
FOLDERS = ("conformance/requirements", "conformance/rules", "conformance/testees", "scripts")
# For each kind of program, a new requirement and one that is like it. Nobody adds a requirement of this name.
PAIRS = (("pctx.header.of-this-test", "pctx.header.version"), ("tctx.record.of-this-test", "tctx.record.trace-id"),
         ("pctx.update.of-this-test", "pctx.update.visible"), ("tctx.attach.of-this-test", "tctx.attach.one-switch"),
         ("pctx.publish.of-this-test", "pctx.publish.fallback-anon"))


class NewRequirementTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        for folder in FOLDERS:
            shutil.copytree(SOURCE / folder, self.root / folder, ignore=shutil.ignore_patterns("__pycache__"))

    def run_script(self, *args):
        return subprocess.run([self.root / "scripts" / "new-requirement", *args], capture_output=True, text=True,
                              timeout=60, check=False)

    def contents(self):
        return {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    def test_nothing_is_left_to_do(self):
        done = self.run_script("--check")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_every_place_is_written_and_named(self):
        for new, like in PAIRS:
            done = self.run_script(new, "--like", like)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(done.stdout.splitlines()), 4, done.stdout)
        named = {line.split(":")[0] for line in self.run_script("--check").stdout.splitlines()}
        written = {path.relative_to(self.root).as_posix() for path, data in self.contents().items()
                   if data != (SOURCE / path.relative_to(self.root)).read_bytes()}
        self.assertEqual(named, written)
        self.assertEqual(self.run_script("--check").returncode, 1)

    def test_ctxconf_accepts_the_catalogue(self):
        for new, like in PAIRS:
            self.run_script(new, "--like", like)
        for path in (self.root / "conformance/requirements").glob("4*.json"):
            entries = json.loads(path.read_text(encoding="utf-8"))["requirements"]
            mutants = [entry["mutant"] for entry in entries if not entry["excluded"]]
            self.assertEqual(len(mutants), len(set(mutants)), path.name)
            for entry in entries:  # as catalogue_json.cc demands
                self.assertRegex(entry["check"], "Prints? ", entry["id"])
                self.assertGreaterEqual(len(entry["check"]), 20, entry["id"])
                self.assertGreaterEqual(len(entry["mutant"]), 10, entry["id"])

    def test_the_programs_are_listed(self):
        for new, like in PAIRS:
            self.run_script(new, "--like", like)
        lists = self.root / "lists"
        lists.mkdir()
        subprocess.run([sys.executable, self.root / "conformance/testees/mutants.py", self.root, lists], check=True,
                       timeout=60)
        entries = [entry for path in lists.glob("*.json") for entry in json.loads(path.read_text())["mutants"]]
        for new, _ in PAIRS:
            of_it = {entry["kind"]: entry for entry in entries if new in entry["requirements"]}
            self.assertEqual(set(of_it), {"mutant", "variant"}, new)
            self.assertIn(new, of_it["mutant"]["expect"])

    def test_a_program_has_the_members_of_its_neighbours(self):
        rows = re.compile(r'^    \{"([^"]*)",\s*(?:"[^"]*"\s*)+((?:[^{}"]|\{[^{}]*\})*)\},$', re.M)
        for new, like in PAIRS:
            self.run_script(new, "--like", like)
            changed = [path.read_text() for path in (self.root / "conformance/testees").rglob("*.cc")
                       if f'{{"{new}"' in path.read_text()]
            self.assertEqual(len(changed), 1, new)
            members = {name: re.sub(r"(?:bad|good)_\w+(<.*>)?", "function", more, flags=re.S)
                       for name, more in rows.findall(changed[0])}
            for name in (new, re.sub("[^a-z0-9]", "-", new.split(".", 1)[1])):
                mine = members.pop(name)
                self.assertIn(mine, members.values(), name)

    def test_a_program_is_in_the_file_of_its_topic(self):
        for new, like, file in (
                ("pctx.header.of-this-test", "pctx.header.version", "process/header.cc"),
                ("tctx.refdata.of-this-test", "tctx.refdata.schema-version-present", "thread/reference_data.cc")):
            done = self.run_script(new, "--like", like)
            self.assertIn(f"/{file}: fill in", done.stdout, done.stderr)

    def test_what_cannot_be_added_changes_nothing(self):
        before = self.contents()
        for args, text in ((("pctx.header.of-this-test", "--like", "pctx.no.such"), "no catalogue has pctx.no.such"),
                           (("pctx.header.version", "--like", "pctx.header.signature"), "already"),
                           (("tctx.a.b", "--like", "pctx.header.version"), "different OTEPs"),
                           (("version", "--like", "pctx.header.version"), "is not an id"),
                           (("pctx.header.of-this-test",), "--like OTHER")):
            done = self.run_script(*args)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(text, done.stderr)
            self.assertEqual(self.contents(), before)


if __name__ == "__main__":
    unittest.main()
