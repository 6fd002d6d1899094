#!/usr/bin/env python3
"""`ctxconf reader` as its users see it: what it prints, its reports, exit codes, expectations, replay.

usage: reader_command_test.py BIN_DIR
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from xml.etree import ElementTree

from leftovers import marked

BIN = os.path.abspath(sys.argv.pop(1))
CTXCONF = os.path.join(BIN, "ctxconf")
REFERENCE = (os.path.join(BIN, "reader_ref"), "serve")
BAD_READER = os.path.join(BIN, "bad_reader")
DEADLINE_S = 300
CLEAN, FAILED, USAGE, UNREACHABLE, NOT_JUDGED, STALE = range(6)
REREADS = "pctx.reader.rereads-timestamp"
HALF_IDS = "tctx.reader.half-ids"
# A few seconds of scenes. In some of them the target updates its context without end, on a processor of its own, for
# as long as a patient reader tries to read it.
SOME = ("--only", "pctx.reader.*timestamp*", "--only", HALF_IDS)
# A fraction of a second, for tests that are not about what the scenes show.
FEW = ("--only", "pctx.reader.version-supported", "--only", HALF_IDS)


def executable(pid):
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe")
    return None


class ReaderTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = os.path.join(folder.name, "out")
        self.env = os.environ | {"CTXCONF_TEST_MARK": self.folder}

    def ctxconf(self, code, *words):
        done = subprocess.run([CTXCONF, *words], cwd=self.folder, stdin=subprocess.DEVNULL, env=self.env,
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, code, (done.stdout + done.stderr)[-4000:])
        self.assert_nothing_runs()
        return done

    def as_another_user(self, code, *words):
        become = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
        if subprocess.run([*become, CTXCONF, "--version"], check=False, capture_output=True).returncode != 0:
            self.skipTest(f"another user may not run {CTXCONF}")
        os.chmod(self.folder, 0o777)
        # The Python of the tests is not in PATH, because it may be in a home folder.
        env = self.env | {"HOME": self.folder, "PATH": "/usr/bin:/bin"}
        done = subprocess.run([*become, CTXCONF, *words], cwd=self.folder, stdin=subprocess.DEVNULL, env=env,
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def assert_nothing_runs(self):
        end = time.monotonic() + 10
        while marked("CTXCONF_TEST_MARK=" + self.folder):
            self.assertLess(time.monotonic(), end, marked("CTXCONF_TEST_MARK=" + self.folder))
            time.sleep(0.01)

    def result(self):
        with open(os.path.join(self.out, "result.json"), encoding="utf-8") as file:
            return json.load(file)

    def outcomes(self):
        return {r["id"]: r["outcome"] for r in self.result()["results"]}

    def test_the_reference_reader_is_green(self):
        done = self.ctxconf(CLEAN, "reader", "--out", self.out, "--", *REFERENCE)
        self.assertRegex(done.stdout, r"(?m)^\d+ passed, 0 failed")
        self.assertNotIn("published", done.stdout)
        outcomes = self.outcomes()
        self.assertTrue(all(".reader." in requirement for requirement in outcomes))
        self.assertGreater(list(outcomes.values()).count("pass"), 80, outcomes)
        self.assertNotIn("warn", outcomes.values())
        # The reports of all other commands.
        for name in ("timeline.json", "report.html", "results.sarif", "summary.md"):
            self.assertGreater(os.path.getsize(os.path.join(self.out, name)), 400, name)
        cases = ElementTree.parse(os.path.join(self.out, "junit.xml")).getroot().findall(".//testcase")
        self.assertGreaterEqual(len(cases), len(outcomes))
        self.assertEqual([c.get("name") for c in cases if c.find("failure") is not None], [])
        # The recording is judged again, without the reader.
        timeline = os.path.join(self.out, "timeline.json")
        self.out = os.path.join(self.folder, "again")
        self.ctxconf(CLEAN, "replay", timeline, "--out", self.out)
        self.assertEqual(self.outcomes(), outcomes)

    def test_a_failure_shows_scene_calls_and_answer(self):
        done = self.ctxconf(FAILED, "reader", *SOME, "--out", self.out, "--", BAD_READER, "--bad", REREADS)
        self.assertRegex(done.stdout, f"(?m)^FAIL +{REREADS}")
        self.assertIn("the timestamp was not read again after the payload", done.stdout)
        self.assertRegex(done.stdout, r"process_vm_readv of \d+ 0x[0-9a-f]+\+32 \(header\)")
        self.assertIn("it answered accept", done.stdout)
        failed = [requirement for requirement, outcome in self.outcomes().items() if outcome == "fail"]
        self.assertEqual(failed, [REREADS])
        # Each report says what was shown to the reader, what it read, and what it made of it.
        cases = ElementTree.parse(os.path.join(self.out, "junit.xml")).getroot().findall(".//testcase")
        [failure] = [c.find("failure") for c in cases if c.find("failure") is not None]
        with open(os.path.join(self.out, "report.html"), encoding="utf-8") as file:
            page = file.read()
        for report in (ElementTree.tostring(failure, encoding="unicode"), page):
            self.assertRegex(report, r"scene [a-z]+/[a-z-]+")
            self.assertRegex(report, r"process_vm_readv of \d+ 0x[0-9a-f]+\+32 \(header\)")
            self.assertIn("it answered accept", report)
            self.assertIn("4f 54 45 4c 5f 43 54 58", report)
        trace = next(r["trace"] for r in self.result()["results"] if r["id"] == REREADS)
        self.ctxconf(FAILED, "replay", trace)

    def test_expectations(self):
        broken = (BAD_READER, "--bad", "pctx.reader.version-supported:draft")
        self.ctxconf(FAILED, "reader", *FEW, "--out", self.out, "--", *broken)
        expected = os.path.join(self.folder, "expected.txt")
        self.ctxconf(CLEAN, "expect", "init", expected, "--from", os.path.join(self.out, "result.json"))
        with open(expected, encoding="utf-8") as file:
            text = file.read()
        with open(expected, "w", encoding="utf-8") as file:
            file.write(text.replace("issue=TODO", "issue=https://bugs.example/1"))
        self.ctxconf(CLEAN, "reader", *FEW, "--expect", expected, "--", *broken)
        self.ctxconf(STALE, "reader", *FEW, "--expect", expected, "--", BAD_READER)

    def test_a_reader_that_watches(self):
        self.ctxconf(CLEAN, "reader", "--only", "pctx.reader.late-publication", "--only",
                     "tctx.reader.late-libraries", "--out", self.out, "--", BAD_READER, "--watch")
        self.assertEqual(set(self.outcomes().values()), {"pass"})

    def test_a_reader_that_dies(self):
        done = self.ctxconf(FAILED, "reader", "--only", "pctx.reader.duplicate-keys", "--out", self.out, "--",
                            BAD_READER, "--bad", "pctx.reader.duplicate-keys")
        self.assertIn("SIGABRT", done.stdout)
        self.assertEqual(self.outcomes(), {"pctx.reader.duplicate-keys": "crash"})

    def test_what_a_reader_does_not_know_is_not_applicable(self):
        done = self.ctxconf(CLEAN, "reader", "--only", "tctx.reader.schema-both-values", "--only",
                            "tctx.reader.schema-unknown", "--out", self.out, "--", BAD_READER, "--good", "one-schema")
        self.assertEqual(self.outcomes(),
                         {"tctx.reader.schema-both-values": "na", "tctx.reader.schema-unknown": "pass"})
        with open(os.path.join(self.out, "result.json"), encoding="utf-8") as file:
            self.assertIn("the adapter does not declare reader.formats:tls_v1", file.read(), done.stdout)

    def test_the_header_of_a_draft_is_not_shown_to_a_reader_of_it(self):
        only = ("--only", "pctx.reader.version-supported", "--out", self.out, "--", BAD_READER)
        self.ctxconf(CLEAN, "reader", *only, "--good", "first-draft")
        with open(os.path.join(self.out, "timeline.json"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r'"missing": "reader.formats:H1",\s*"must_be_absent": true')
        done = self.ctxconf(FAILED, "reader", *only, "--bad", "pctx.reader.version-supported:draft")
        self.assertIn("contexts/vector-draft-h1-p1", done.stdout)

    def test_memory_beyond_the_limit(self):
        done = self.ctxconf(FAILED, "reader", "--only", "pctx.reader.no-context", "--out", self.out, "--",
                            BAD_READER, "--bad", "pctx.reader.no-context:memory")
        self.assertRegex(done.stdout, r"the reader used more than 64 MiB of memory for one answer; in \S+ \(12\d MiB\)")
        self.assertEqual(self.outcomes(), {"pctx.reader.no-context": "pass"})

    def test_generated_programs(self):
        decodes = ("--only", "pctx.reader.decodes-process-context")
        merges = (BAD_READER, "--bad", "pctx.reader.decodes-process-context:merges")
        self.ctxconf(CLEAN, "reader", *decodes, "--", *merges)
        done = self.ctxconf(FAILED, "reader", *decodes, "--generate", "10", "--out", self.out, "--", *merges)
        self.assertIn("scene generated/generated-4719-", done.stdout)
        self.assertIn("seed 4719", done.stdout)
        self.ctxconf(FAILED, "replay", os.path.join(self.out, "timeline.json"))
        done = self.ctxconf(CLEAN, "reader", *decodes, "--generate", "10", "--seed", "abc", "--", *REFERENCE)
        self.assertIn("seed abc", done.stdout)

    def test_options_of_generated_programs(self):
        shown = self.ctxconf(CLEAN, "reader", "--generate", "2", "--show", "generated-4719-1").stdout
        self.assertTrue(shown.startswith("# program 1 of the seed 4719\n{"), shown[:200])
        again = self.ctxconf(CLEAN, "reader", "--generate", "3", "--seed", "4719", "--show", "generated-4719-1").stdout
        self.assertEqual(shown, again)
        self.ctxconf(USAGE, "reader", "--show", "generated-4719-1")
        for words in (["--seed", "1"], ["--generate", "0"], ["--generate", "1", "--seed", "x"]):
            with self.subTest(words):
                self.assertIn(words[-2], self.ctxconf(USAGE, "reader", *words, "--", *REFERENCE).stderr)

    # A library that is a memfd, or was removed, can be opened by its mapping with privileges only.
    @unittest.skipUnless(os.geteuid() == 0, "needs root: becomes another user")
    def test_as_another_user(self):
        self.as_another_user(CLEAN, "reader", "--only", "tctx.reader.all-modules", "--out", self.out, "--",
                             *REFERENCE)
        self.assertEqual(self.outcomes(), {"tctx.reader.all-modules": "pass"})

    @unittest.skipUnless(os.geteuid() == 0, "needs root: becomes another user")
    def test_a_reader_that_needs_root(self):
        with open(os.path.join(BIN, "reader_stub.py"), encoding="utf-8") as file:
            stub = file.read()
        adapter = os.path.join(self.folder, "adapter.py")
        with open(adapter, "w", encoding="utf-8") as file:
            file.write(stub.replace("CAPABILITIES = {", "CAPABILITIES = {'reader': {'needs_root': True}, "))
        os.chmod(adapter, 0o755)
        words = ("reader", "--only", HALF_IDS, "--", adapter)
        wanted = "says that its reader needs root: run ctxconf as root"
        self.assertIn(wanted, self.as_another_user(UNREACHABLE, *words).stdout)
        self.assertNotIn(wanted, self.ctxconf(CLEAN, *words).stdout)

    def test_the_script_of_a_scene_says_when_the_reader_is_asked_and_held(self):
        shown = self.ctxconf(CLEAN, "reader", "--show", "window-after-the-fields").stdout
        comments = [line for line in shown.splitlines() if line.startswith("#")]
        self.assertEqual(comments, ["# an update between the read of the pointer and that of the payload",
                                    "# the reader is asked about the process",
                                    "# it is held after the first read of the pointer; meanwhile:", "# and goes on"])
        path = os.path.join(self.folder, "scene.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write(shown)
        self.ctxconf(CLEAN, "puppet", "--for", "100ms", path)

    def test_requirements_that_readers_do_not_have(self):
        done = self.ctxconf(USAGE, "reader", "--only", "pctx.header.*", "--", *REFERENCE)
        self.assertIn("about writers", done.stderr)

    def test_options_of_what_publishes(self):
        done = self.ctxconf(USAGE, "reader", "--expect-resource", "service.name=a", "--", *REFERENCE)
        self.assertIn("--expect-resource", done.stderr)
        self.ctxconf(CLEAN, "reader", *FEW, "--out", self.out, "--", *REFERENCE)
        for option in (("--expect-resource", "a=b"), ("--expect-trace-id", "1" * 32), ("--expect-span-id", "1" * 16)):
            with self.subTest(option):
                done = self.ctxconf(USAGE, "replay", os.path.join(self.out, "timeline.json"), *option)
                self.assertIn("recording of a reader", done.stderr)

    def test_programs_that_are_no_adapters(self):
        self.assertIn("reader: no adapter", self.ctxconf(USAGE, "reader").stderr)
        for words in (["/bin/true"], ["/bin/echo", "hello"], ["/no/such/program"]):
            with self.subTest(words):
                done = self.ctxconf(UNREACHABLE, "reader", "--", *words)
                self.assertRegex(done.stdout + done.stderr, "hello|cannot be started|No such file")

    def test_an_adapter_of_a_writer(self):
        done = self.ctxconf(NOT_JUDGED, "reader", "--", os.path.join(BIN, "adapter_cpp"))
        self.assertIn("reader.process", done.stdout + done.stderr)

    def test_interrupted(self):
        child = subprocess.Popen([CTXCONF, "reader", "--out", self.out, "--", *REFERENCE], cwd=self.folder,
                                 env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
        # It has started a reader; what it finds out about the host before that forks processes too.
        end = time.monotonic() + DEADLINE_S
        while not any(executable(pid) == os.path.realpath(REFERENCE[0])
                      for pid in marked("CTXCONF_TEST_MARK=" + self.folder)):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        child.send_signal(signal.SIGTERM)
        output, _ = child.communicate(timeout=DEADLINE_S)
        self.assertIn(child.returncode, (NOT_JUDGED, 128 + signal.SIGTERM), output[-3000:])
        self.assert_nothing_runs()


if __name__ == "__main__":
    unittest.main()
