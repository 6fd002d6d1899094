#!/usr/bin/env python3
"""Judges recordings of every kind again: outcomes, findings and pictures must be the same.

usage: replay_test.py BIN_DIR
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BIN = os.path.abspath(sys.argv.pop(1))
BAD = "pctx.update.fields-while-zero"
RECORDS = "tctx.attach.valid-cleared-first"


def program(name):
    return os.path.join(BIN, name)


# The name of the case, its options and its program.
KINDS = {
    "stores": (["wrap"], [program("process_writer"), "--bad", BAD]),
    "calls": (["wrap", "--level", "syscalls"], [program("process_writer"), "--bad", "pctx.publish.memfd-name"]),
    "injected": (["wrap", "--inject", "memfd_create:error=EPERM"], [program("process_writer"), "--good", "default"]),
    "faults": (["wrap", "--faults"], [program("process_writer"), "--good", "default"]),
    "steps": (["run", "--only", "pctx.update.no-mixed-read"],
              [program("driven_process_writer"), "--bad", "pctx.update.no-mixed-read"]),
    "fork": (["run", "--only", "pctx.fork.*"], [program("adapter_cpp")]),
    "records": (["run", "--only", RECORDS], [program("driven_record_writer"), "--bad", RECORDS]),
    "repeats": (["run", "--repeat", "3", "--only", "pctx.publish.timestamp-last"], [program("adapter_cpp")]),
}


class ReplayTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def results(self, name, *words):
        """The findings of a run for each requirement, and its pictures."""
        out = os.path.join(self.folder, name)
        done = subprocess.run([program("ctxconf"), words[0], "--quiet", "--out", out, *words[1:]],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
                              check=False)
        self.assertIn(done.returncode, (0, 1, 4), done.stderr)
        with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
            result = json.load(file)
        self.assertEqual(result["exit"]["code"], done.returncode)
        told = {r["id"]: (r["outcome"], r["findings"]) for r in result["results"]}
        return done.returncode, told, result["operations"], result["problems"]

    def check(self, *words, only):
        recorded = self.results("recorded", *words)
        self.assertTrue(any(outcome not in ("na", "unobservable") for outcome, _ in recorded[1].values()),
                        "nothing was judged")
        replayed = self.results("replayed", "replay", *only,
                                os.path.join(self.folder, "recorded", "timeline.json"))
        self.assertEqual(recorded, replayed)

    def test_every_kind(self):
        for kind, (options, command) in KINDS.items():
            with self.subTest(kind=kind):
                only = [word for i, word in enumerate(options) if "--only" in (word, options[i - 1])]
                level = ["--level", "syscalls"] if "--level" in options else []
                self.check(*options, "--", *command, only=only + level)

    def test_no_pass_rests_on_calls_that_were_not_kept(self):
        out = os.path.join(self.folder, "recorded")
        recorded = self.results("recorded", "wrap", "--level", "syscalls", "--", program("process_writer"),
                                "--good", "default")[1]
        with open(os.path.join(out, "timeline.json"), encoding="utf-8") as file:
            timeline = json.load(file)
        (image,) = timeline["processes"][0]["images"]
        self.assertEqual(image["calls_dropped"], 0)
        image["calls_dropped"] = 3
        dropped = os.path.join(self.folder, "dropped.json")
        with open(dropped, "w", encoding="utf-8") as file:
            json.dump(timeline, file)
        told = self.results("dropped", "replay", "--level", "syscalls", dropped)[1]
        changed = {name for name, of in told.items() if of[0] != recorded[name][0]}
        self.assertIn("pctx.publish.name-always", changed)
        self.assertNotIn("pctx.header.signature", changed)
        for name in changed:
            self.assertEqual((recorded[name][0], told[name][0]), ("pass", "unobservable"), name)
            self.assertIn("3 system calls were not kept", told[name][1][0]["saw"])

    def test_attach(self):
        with subprocess.Popen([program("writer_ref"), "--hold", "60s", "--resource=service.name=a"],
                              stdout=subprocess.PIPE) as writer:
            try:
                writer.stdout.readline()  # it has published
                self.check("attach", "--for", "100ms", str(writer.pid), only=[])
            finally:
                writer.kill()


if __name__ == "__main__":
    unittest.main()
