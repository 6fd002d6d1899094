#!/usr/bin/env python3
"""`ctxconf run` as its users run it, over the adapters that are shipped.

usage: run_test.py SOURCE_DIR BIN_DIR
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE, BIN = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
sys.path.append(os.path.join(SOURCE, "conformance", "report"))

try:
    import jsonschema
except ImportError:
    jsonschema = None

ADAPTERS = {
    "adapter_cpp": [os.path.join(BIN, "adapter_cpp")],
    "adapter_c": [os.path.join(BIN, "adapter_c")],
    "adapter.py": ["/usr/bin/python3", os.path.join(BIN, "adapter.py")],
    "adapter.sh": [os.path.join(BIN, "adapter.sh")],
}
CPP = ADAPTERS["adapter_cpp"]
BROKEN = [os.path.join(BIN, "driven_process_writer"), "--bad", "pctx.update.visible"]


def ctxconf(*words, timeout=120):
    return subprocess.run([os.path.join(BIN, "ctxconf"), *words], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="backslashreplace",
                          timeout=timeout, check=False)


def outcomes(path):
    with open(os.path.join(path, "result.json"), encoding="utf-8") as file:
        return {row["id"]: row["outcome"] for row in json.load(file)["results"]}


class RunTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "out")

    def run_it(self, adapter, *options, code=0):
        done = ctxconf("run", "--color", "never", *options, "--", *adapter)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_every_shipped_adapter_is_green_without_expected_failures(self):
        expect = self.out + ".expect"
        with open(expect, "w", encoding="utf-8") as file:
            file.write("# ctxconf-expect 1\n")
        least = {"adapter_cpp": 120, "adapter_c": 110, "adapter.py": 60, "adapter.sh": 50}
        for name, adapter in ADAPTERS.items():
            with self.subTest(adapter=name):
                done = self.run_it(adapter, "--expect", expect, "--out", self.out)
                rows = list(outcomes(self.out).values())
                self.assertGreaterEqual(rows.count("pass"), least[name], done.stdout)
                self.assertNotIn("fail", rows)
                self.assertNotIn("warn", rows)

    def test_descriptor_3_says_the_same(self):
        self.run_it(CPP, "--out", self.out)
        first = outcomes(self.out)
        self.run_it(CPP, "--out", self.out, "--channel", "fd3")
        self.assertEqual(first, outcomes(self.out))

    def test_a_recording_judged_again_says_the_same(self):
        self.run_it(BROKEN, "--out", self.out, code=1)
        first = outcomes(self.out)
        again = self.out + ".again"
        done = ctxconf("replay", "--out", again, os.path.join(self.out, "timeline.json"))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(first, outcomes(again))

    def test_a_failure_names_what_runs_it_alone(self):
        done = self.run_it(BROKEN, "--out", self.out, code=1)
        again = re.search(r"^  again  (.*)$", done.stdout, re.MULTILINE)
        self.assertIsNotNone(again, done.stdout)
        self.assertNotIn(self.out, again[1], "it replaces the reports of the whole run")
        alone = subprocess.run(["sh", "-c", again[1]], capture_output=True, text=True, timeout=60,
                               check=False)
        self.assertEqual(alone.returncode, 1, alone.stdout + alone.stderr)
        self.assertIn("of 1 selected", alone.stdout)
        trace = os.path.join(self.out, "traces", "pctx.update.visible.trace")
        self.assertEqual(ctxconf("replay", "--only", "pctx.update.visible", trace).returncode, 1)

    def test_a_death_after_all_was_answered_is_not_one_of_an_injected_fault(self):
        self.run_it([os.path.join(BIN, "bad_adapter"), "bye-then-dies"], "--only", "pctx.*",
                    "--out", self.out, code=1)
        self.assertNotIn("fail", outcomes(self.out).values())

    def test_only_what_is_selected_is_asked(self):
        self.run_it(CPP, "--only", "pctx.fork.parent-untouched", "--out", self.out)
        with open(os.path.join(self.out, "timeline.json"), encoding="utf-8") as file:
            checks = {check["name"] for session in json.load(file)["sessions"]
                      for check in session["checks"]}
        self.assertNotIn("switch", checks)
        self.assertEqual(outcomes(self.out), {"pctx.fork.parent-untouched": "pass"})

    def test_repeats_keep_the_worst_and_say_so(self):
        counter = self.out + ".count"
        sometimes = self.out + ".sh"
        # Its second process does not show updates.
        with open(sometimes, "w", encoding="utf-8") as file:
            file.write(f"""#!/bin/sh
echo x >>'{counter}'
if [ $(wc -l <'{counter}') -eq 3 ]; then exec '{BROKEN[0]}' --bad pctx.update.visible; fi
exec '{BROKEN[0]}' --good default
""")
        os.chmod(sometimes, 0o755)
        words = ["--only", "pctx.update.visible", "--repeat", "3", "--out", self.out]
        done = ctxconf("run", "--color", "never", *words, "--", sometimes)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"in 3 repeats: \d pass, \d fail|in 3 repeats: \d pass \d fail")

    def test_events_are_told_while_they_happen(self):
        self.run_it(CPP, "--only", "pctx.update.*", "--out", self.out, "--seed", "5eed")
        with open(os.path.join(self.out, "events.jsonl"), encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        self.assertEqual(events[0]["event"], "begin")
        self.assertEqual(events[0]["seed"], "5eed")
        self.assertEqual(events[-1], {"event": "end", "exit": 0, "at_ms": events[-1]["at_ms"]})
        begun = [(e["group"], e["check"]) for e in events if e["event"] == "check"]
        ended = [(e["group"], e["check"]) for e in events if e["event"] == "checked"]
        self.assertEqual(begun, ended)
        self.assertTrue(begun)
        times = [e["at_ms"] for e in events]
        self.assertEqual(times, sorted(times))

    def test_capabilities_can_be_required(self):
        self.run_it(CPP, "--only", "pctx.update.visible", "--require-caps", "process.*",
                    "--require-caps", "thread.attach")
        done = self.run_it(CPP, "--only", "pctx.update.visible", "--require-caps", "reader.*",
                           code=4)
        self.assertIn("does not declare reader.*", done.stdout)

    def test_what_is_not_declared_is_not_applicable(self):
        self.run_it(ADAPTERS["adapter.sh"], "--only", "pctx.fork.*", "--only", "pctx.header.version",
                    "--out", self.out)
        rows = outcomes(self.out)
        self.assertEqual(rows["pctx.fork.child-has-none"], "na")
        self.assertEqual(rows["pctx.header.version"], "pass")

    def test_wrong_words_are_usage(self):
        for words in (["run"], ["run", "--"], ["run", *CPP], ["run", "--seed", "X", "--", *CPP],
                      ["run", "--channel", "tcp", "--", *CPP], ["run", "--repeat", "0", "--", *CPP],
                      ["run", "--only", "no.such.row", "--", *CPP]):
            with self.subTest(words=words):
                done = ctxconf(*words)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertTrue(done.stderr)

    def test_no_such_adapter(self):
        done = ctxconf("run", "--", os.path.join(BIN, "no_such_adapter"))
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("no_such_adapter", done.stdout + done.stderr)

    @unittest.skipIf(jsonschema is None, "python3-jsonschema is missing")
    def test_the_result_keeps_its_schema(self):
        self.run_it(BROKEN, "--out", self.out, code=1)
        with open(os.path.join(SOURCE, "conformance/report/result.schema.json"),
                  encoding="utf-8") as file:
            schema = json.load(file)
        with open(os.path.join(self.out, "result.json"), encoding="utf-8") as file:
            jsonschema.validate(json.load(file), schema)


if __name__ == "__main__":
    unittest.main(verbosity=2)
