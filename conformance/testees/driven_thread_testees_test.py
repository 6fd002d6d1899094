#!/usr/bin/env python3
"""The table of adapters for driven requirements of OTEP 4947 against the catalogue and their program.

    driven_thread_testees_test.py SOURCE_DIRECTORY BIN_DIRECTORY
"""

import sys
import unittest

from driven_table import BIN, SOURCE, TableTests, requirements, run, table

PROGRAM = "driven_thread_writer"
TABLE = table("driven_thread_mutants.json")
THREAD = requirements("4947-2026-07-17.json")
ALL = requirements("4719-2026-04-07.json") | THREAD
# Records that are watched have a program of their own.
REQUIREMENTS = {name: r for name, r in THREAD.items()
                if r["observe"]["modes"] == ["run"] and r["role"] == "writer"
                and (r["observe"]["level"] == "snapshot"
                     or (r["observe"]["level"] == "stores" and name.startswith("tctx.keymap.")))}
OWN = [e for e in TABLE["mutants"] if e["program"] == PROGRAM]
MUTANTS = [e for e in OWN if e["kind"] == "mutant"]


class Table(TableTests, unittest.TestCase):
    table = TABLE

    def test_each_mutant_breaks_the_requirement_that_it_is_named_after(self):
        words = {"error": "fail", "warning": "warn"}
        for entry in MUTANTS:
            [requirement] = entry["requirements"]
            option, broken = entry["args"]
            self.assertEqual((option, broken.partition(":")[0]), ("--bad", requirement))
            self.assertEqual(entry["expect"][requirement], words[ALL[requirement]["severity"]], requirement)
            self.assertLessEqual(set(entry["expect"].values()) - {entry["expect"][requirement]}, {"info"})
        self.assertLessEqual(set(REQUIREMENTS), {e["requirements"][0] for e in MUTANTS})

    def test_every_variant_is_shown(self):
        texts = {(r["id"], text) for r in REQUIREMENTS.values() for text in r["variants"]}
        shown = set()
        for entry in OWN:
            for text in entry.get("variants", []):
                variants = {(requirement, text) for requirement in entry["requirements"]} & texts
                self.assertTrue(variants, f"{entry['name']}: no requirement of it has the variant {text!r}")
                shown |= variants
        self.assertEqual(shown, texts)


class Program(unittest.TestCase):
    def test_it_and_the_table_know_the_same_cases(self):
        done = run(PROGRAM, "--list")
        self.assertEqual(done.returncode, 0, done.stderr)
        listed = sorted("--" + line for line in done.stdout.splitlines())
        self.assertEqual(listed, sorted(" ".join(e["args"]) for e in OWN))

    def test_mistakes_are_answered_with_the_usage(self):
        for arguments in ([], ["--bad"], ["--bad", "x"], ["--good", "tctx.record.trace-id"]):
            done = run(PROGRAM, *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn("--list", done.stderr)


if __name__ == "__main__":
    if not SOURCE or not BIN:
        sys.exit(__doc__)
    unittest.main(argv=sys.argv[:1])
