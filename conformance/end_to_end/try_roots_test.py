#!/usr/bin/env python3
"""What scripts/try-roots makes of its tries; none is made.

usage: try_roots_test.py SOURCE_DIR [unittest arguments]
"""

import pathlib
import subprocess
import sys
import unittest

import script_module

SCRIPT = pathlib.Path(sys.argv.pop(1)).resolve() / "scripts/try-roots"

try_roots = script_module.load(SCRIPT)
JUDGED = next(t for t in try_roots.TRIES if t.name == "wrap")
FAILURE = next(t for t in try_roots.TRIES if t.code == 1)


def ended(code, out="", err=""):
    return subprocess.CompletedProcess([], code, out, err)


class TryRoots(unittest.TestCase):
    def test_a_cell_is_ok_only_with_the_exit_code_and_the_output(self):
        good = "note: 1\n75 passed, 0 failed, 3 n/a\n"
        self.assertEqual(try_roots.cell(JUDGED, ended(0, good)), "OK (75)")
        self.assertEqual(try_roots.cell(JUDGED, ended(0, "0 n/a\n")), "exit 0: 0 n/a")
        self.assertEqual(try_roots.cell(JUDGED, ended(3, good, "ctxconf: no\nadvice\n")), "exit 3: ctxconf: no")
        self.assertEqual(try_roots.cell(JUDGED, ended(0)), "exit 0: it says nothing")
        self.assertEqual(try_roots.cell(FAILURE, ended(1, "FAIL  tctx.record.layout\n")), "OK")
        self.assertEqual(try_roots.cell(FAILURE, ended(0, "PASS  tctx.record.layout\n")), "exit 0: PASS  tctx.record.layout")

    def test_the_table(self):
        rows = [("tarball", "empty", "root", {"a": "OK"}), ("package", "debian-11", "nobody", {"a": "OK (7)", "b": "exit 1: x|<y"})]
        self.assertEqual(try_roots.to_markdown(rows), (
            "| file | root file system | user | a | b |\n|---|---|---|---|---|\n"
            "| tarball | empty | root | OK | – |\n| package | debian-11 | nobody | OK (7) | exit 1: x\\|&lt;y |\n"))
        self.assertTrue(try_roots.all_worked(rows[:1]))
        self.assertFalse(try_roots.all_worked(rows))

    def test_fingerprints_of_keys_and_not_of_their_parts(self):
        def line(*fields):
            return ":".join(fields) + "\n"
        colons = "".join((line("pub", *[""] * 9), line("fpr", *[""] * 8, "AA", ""), line("uid"), line("sub", *[""] * 9),
                          line("fpr", *[""] * 8, "BB", ""), line("pub", *[""] * 9), line("fpr", *[""] * 8, "CC", "")))
        self.assertEqual(try_roots.fingerprints(colons), ["AA", "CC"])

    def test_the_commands_that_run_in_a_root_are_shell(self):
        for script in (try_roots.ENTER, try_roots.REMOVE):
            subprocess.run(["sh", "-n"], input=script, text=True, check=True)

    def test_wrong_words_are_usage(self):
        for words in (["--root", "slackware"], ["--writer", "/absent"], ["a", "b"]):
            done = subprocess.run([SCRIPT, *words], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("usage: try-roots", done.stderr)


if __name__ == "__main__":
    unittest.main()
