#!/usr/bin/env python3
"""Installs the programs into a temporary prefix, moves it, and lets the installed ctxconf test itself with
the installed files.

usage: install_test.py BUILD_DIR CMAKE
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BUILD, CMAKE = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
ZOO = ("mutants.json", "driven_process_mutants.json", "driven_thread_mutants.json",
       "driven_record_mutants.json", "reader_mutants.json")
# One file of each kind.
SOME = ("good_default", "good_driven_default", "good_adapter_thread",
        "bad_record_attach_valid_set_last", "bad_reader_pctx_no_context")


class InstallTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        first, self.prefix = (os.path.join(folder.name, name) for name in ("prefix", "moved"))
        self.call(CMAKE, "--install", BUILD, "--prefix", first, "--component", "programs")
        os.rename(first, self.prefix)
        self.programs = os.path.join(self.prefix, "libexec", "ctxconf")

    def call(self, *command):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="backslashreplace", timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_the_installed_self_test_has_its_programs(self):
        for name in ZOO:
            with open(os.path.join(self.programs, name), encoding="utf-8") as file:
                mutants = json.load(file)["mutants"]
            for mutant in mutants:
                path = os.path.join(self.programs, mutant["program"])
                if not mutant.get("may_skip"):
                    self.assertTrue(os.path.exists(path), f"{name} names {mutant['program']}")
        words = [word for name in SOME for word in ("--only", name)]
        said = self.call(os.path.join(self.prefix, "bin", "ctxconf"), "selftest", "-v", *words)
        for name in SOME:
            self.assertRegex(said, rf"(?m)^(clean|killed) +{name} ")

    def test_the_installed_scripts_move_the_installed_process(self):
        samples = os.path.join(self.prefix, "share", "ctxconf", "samples")
        if not os.path.exists(os.path.join(self.programs, "ctxconf-puppet")):
            self.skipTest("the scripted process does not run on this machine")
        for name in ("process_context.jsonl", "thread_context.jsonl"):
            said = self.call(os.path.join(self.prefix, "bin", "ctxconf"), "puppet",
                             os.path.join(samples, name))
            self.assertIn(" 0 failed", said)


if __name__ == "__main__":
    unittest.main()
