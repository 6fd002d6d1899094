#!/usr/bin/env python3
"""The table of adapters for driven requirements of OTEP 4719 against the catalogue and their program.

    driven_process_testees_test.py SOURCE_DIRECTORY BIN_DIRECTORY
"""

import sys
import unittest

from driven_table import BIN, SOURCE, TableTests, requirements, run, table

PROGRAM = "driven_process_writer"
TABLE = table("driven_process_mutants.json")
ALL = requirements("4719-2026-04-07.json")
REQUIREMENTS = {
    name: r for name, r in ALL.items()
    if r["role"] == "writer" and r["observe"]["modes"] == ["run"]
    and r["observe"]["level"] in ("snapshot", "syscalls", "stores")}
OWN = [e for e in TABLE["mutants"] if e["program"] == PROGRAM]
MUTANTS = [e for e in OWN if e["kind"] == "mutant"]


class Table(TableTests, unittest.TestCase):
    table = TABLE

    def test_each_mutant_breaks_the_requirement_that_it_is_named_after(self):
        words = {"error": "fail", "warning": "warn", "info": "info"}
        for entry in MUTANTS:
            requirement = entry["requirements"][0]
            self.assertEqual(entry["args"][0], "--bad")
            self.assertEqual(entry["args"][1].split(":")[0], requirement)
            self.assertEqual(set(entry["expect"]), set(entry["requirements"]), requirement)
            for broken, outcome in entry["expect"].items():
                self.assertEqual(outcome, words[ALL[broken]["severity"]], broken)
            self.assertTrue(len(entry["expect"]) == 1 or "comment" in entry, requirement)

    def test_every_requirement_has_a_mutant_of_its_own(self):
        alone = {e["requirements"][0] for e in MUTANTS if len(e["expect"]) == 1}
        self.assertEqual(set(REQUIREMENTS) - alone, set())

    def test_every_variant_is_shown_or_excused_once(self):
        texts = {(r["id"], text) for r in REQUIREMENTS.values() for text in r["variants"]}
        known = {(r["id"], text) for r in ALL.values() for text in r["variants"]}
        shown = set()
        for entry in OWN:
            for text in entry.get("variants", []):
                variants = {(requirement, text) for requirement in entry["requirements"]} & known
                self.assertTrue(variants, f"{entry['name']}: no requirement of it has the variant {text!r}")
                shown |= variants
        excused = {(e["requirement"], e["variant"]) for e in TABLE["not_here"]}
        self.assertFalse(shown & excused)
        self.assertEqual(texts - shown - excused, set())


class Program(unittest.TestCase):
    def test_it_and_the_table_know_the_same_cases(self):
        done = run(PROGRAM, "--list")
        listed = [line.strip() for line in done.stderr.splitlines()[1:]]
        self.assertEqual(sorted(listed), sorted(" ".join(e["args"]) for e in OWN))

    def test_mistakes_are_answered_with_the_usage(self):
        for arguments in ([], ["--bad"], ["--bad", "x"], ["--good", "pctx.update.visible"]):
            done = run(PROGRAM, *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn("usage: ", done.stderr)


if __name__ == "__main__":
    if not SOURCE or not BIN:
        sys.exit(__doc__)
    unittest.main(argv=sys.argv[:1])
