#!/usr/bin/env python3
"""The table of readers against the catalogue and their program.

    reader_testees_test.py SOURCE_DIRECTORY BIN_DIRECTORY
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

import reader_threads
from driven_table import BIN, SOURCE, TableTests, requirements, run, table

PROGRAM = "bad_reader"
TABLE = table("reader_mutants.json")
ALL = requirements("4719-2026-04-07.json") | requirements("4947-2026-07-17.json")
REQUIREMENTS = {name: r for name, r in ALL.items() if r["role"] == "reader" and r["observe"]["modes"]}
OWN = [e for e in TABLE["mutants"] if e["program"] == PROGRAM]
MUTANTS = [e for e in OWN if e["kind"] == "mutant"]


class Table(TableTests, unittest.TestCase):
    table = TABLE

    def test_each_mutant_breaks_the_requirement_that_it_is_named_after(self):
        # No process of the other byte order runs here, and no kernel gives all names.
        unseen = {"pctx.reader.byte-order", "tctx.reader.byte-order"}
        for entry in MUTANTS:
            [requirement] = entry["requirements"]
            option, broken = entry["args"][:2]
            self.assertEqual((option, broken.partition(":")[0]), ("--bad", requirement))
            if "harm" in entry:
                continue
            self.assertIn(requirement, entry["expect"])
            self.assertEqual(entry["expect"][requirement] == "unobservable", requirement in unseen)
        self.assertEqual(set(REQUIREMENTS), {e["requirements"][0] for e in MUTANTS})

    def test_every_variant_is_shown_or_excused(self):
        texts = {(r["id"], text) for r in REQUIREMENTS.values() for text in r["variants"]}
        shown = set()
        for entry in OWN:
            for text in entry.get("variants", []):
                variants = {(requirement, text) for requirement in entry["requirements"]} & texts
                self.assertTrue(variants, f"{entry['name']}: no requirement of it has the variant {text!r}")
                shown |= variants
        excused = {(e["requirement"], e["variant"]) for e in TABLE["not_here"]}
        self.assertEqual(excused & shown, set(), "it is shown")
        self.assertEqual(shown | excused, texts)


class Program(unittest.TestCase):
    def test_it_and_the_table_know_the_same_cases(self):
        listed = {" ".join(line.split()[:2]) for line in run(PROGRAM, "--help").stderr.splitlines()[1:]}
        self.assertEqual(listed, {" ".join(e["args"][:2]) for e in OWN})

    def test_mistakes_are_answered_with_the_usage(self):
        for arguments in (["--bad"], ["--bad", "x"], ["--good", "pctx.reader.byte-order"], ["x"]):
            done = run(PROGRAM, *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn("usage: bad_reader", done.stderr)


# The child of a clone with CLONE_VFORK sleeps, and no signal but SIGKILL interrupts its parent meanwhile.
WAITS_IN_A_CALL = "import ctypes, time\nif ctypes.CDLL(None).syscall(56, 0x4011, 0, 0, 0, 0) == 0: time.sleep(600)"


@unittest.skipUnless(reader_threads.HERE, "it reads threads of x86-64")
class SampleOfReaderPy(unittest.TestCase):
    def wait_for(self, pid, line):
        until = time.monotonic() + 60
        while line not in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8"):
            self.assertLess(time.monotonic(), until, f"{line!r} does not come")
            time.sleep(0.01)

    def test_a_thread_that_does_not_stop_is_let_go(self):
        with subprocess.Popen([sys.executable, "-c", WAITS_IN_A_CALL], start_new_session=True) as process:
            try:
                self.wait_for(process.pid, "State:\tD")
                with mock.patch.multiple(reader_threads, STOP_WITHIN_S=0.05, places=lambda *_: [0]):
                    self.assertRaises(TimeoutError, reader_threads.read_record, None, process.pid, process.pid)
                self.wait_for(process.pid, "TracerPid:\t0\n")
            finally:
                os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    if not SOURCE or not BIN:
        sys.exit(__doc__)
    unittest.main(argv=sys.argv[:1])
