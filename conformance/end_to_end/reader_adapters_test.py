#!/usr/bin/env python3
"""Runs `ctxconf reader` with the adapters of readers, and holds each of their lines against the
schema.

usage: reader_adapters_test.py SOURCE_DIR BIN_DIR
"""

import collections
import contextlib
import functools
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import jsonschema

SOURCE, BIN = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
DEADLINE_S = 240
# What no scene shows on this host decides nothing.
NOT_HERE = {"pctx.reader.name-anon-shmem", "pctx.reader.name-anon", "pctx.reader.byte-order",
            "tctx.reader.byte-order", "pctx.reader.thirty-two-bit-target"}
# reader.py finds the records of threads on this processor.
MOST = 87 if platform.machine() == "x86_64" else 66
with open(os.path.join(SOURCE, "conformance/testee/protocol.schema.json"), encoding="utf-8") as file:
    DEFINITIONS = json.load(file)["definitions"]


def validator(definition):
    return jsonschema.Draft7Validator(
        {"$ref": f"#/definitions/{definition}", "definitions": DEFINITIONS})


def run(adapter, *arguments, options=()):
    """The exit code, what was printed, and result.json."""
    with tempfile.TemporaryDirectory() as out:
        ran = subprocess.run(
            [os.path.join(BIN, "ctxconf"), "reader", *options, "--out", out, "--",
             sys.executable, os.path.join(BIN, adapter), *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S,
            check=False)
        result = None
        with contextlib.suppress(FileNotFoundError):
            with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
                result = json.load(file)
    return ran.returncode, ran.stdout + ran.stderr, result


@functools.cache
def run_of_all_scenes():
    """Takes long, so that tests share it."""
    return run("reader.py")


class Reader(unittest.TestCase):
    def outcomes(self, code, adapter, *arguments, options=()):
        return self.outcomes_of(run(adapter, *arguments, options=options), code)

    def outcomes_of(self, ran, code):
        """The ids by outcome."""
        exit_code, self.text, result = ran
        self.assertEqual(exit_code, code, self.text)
        ids = collections.defaultdict(set)
        for one in result["results"]:
            ids[one["outcome"]].add(one["id"])
        return ids


class Judged(Reader):
    def test_a_reader_of_both_contexts(self):
        ids = self.outcomes_of(run_of_all_scenes(), 0)
        self.assertEqual(set(ids) - {"pass", "na", "unobservable"}, set(), ids)
        self.assertEqual(ids["unobservable"] - NOT_HERE, set())
        self.assertGreaterEqual(len(ids["pass"]), MOST)

    def test_one_that_looks_by_itself(self):
        ids = self.outcomes(0, "reader.py", "--watch", "0.05", options=("--jobs", "2"))
        self.assertEqual(set(ids) - {"pass", "na", "unobservable"}, set(), ids)
        self.assertEqual(ids["unobservable"] - NOT_HERE, set())
        self.assertGreaterEqual(len(ids["pass"]), MOST)

    def test_the_answers_during_updates_are_counted(self):
        self.outcomes_of(run_of_all_scenes(), 0)
        counted = re.findall(
            r"note: windows/(\S+): (\d+) answers: (\d+) with one content, (\d+) with the other, (\d+) with none, "
            r"(\d+) mixed \(hits: (\d+), misses: (\d+)\)", self.text)
        self.assertEqual({name: int(answers) for name, answers, *_ in counted},
                         {"updates-without-end": 8, "updates-in-place": 40}, self.text)
        for _, answers, first, second, none, mixed, hits, misses in counted:
            self.assertEqual(int(first) + int(second), int(misses))
            self.assertEqual(int(none) + int(mixed), int(hits))
            self.assertEqual(int(hits) + int(misses), int(answers))
            self.assertEqual(int(mixed), 0)

    def test_the_smallest_one(self):
        ids = self.outcomes(0, "reader_stub.py")
        self.assertEqual(set(ids) - {"pass", "na", "unobservable"}, set(), ids)
        self.assertGreaterEqual(len(ids["pass"]), 20)


# An adapter that only hands lines over to a reader that was started before it.
MESSENGER = """
import sys
with open(sys.argv[1], "w") as to, open(sys.argv[2]) as back:
    for line in sys.stdin:
        to.write(line)
        to.flush()
        print(back.readline(), end="", flush=True)
        if '"bye"' in line:
            break
    to.close()
    back.read()  # until the reader has ended: the next conversation must not find its end of the pipe
"""
# Reads and answers for one conversation after the other.
DAEMON = """
import os, subprocess, sys
reader, to, back = sys.argv[1:]
while True:
    with open(to) as requests, open(back, "w") as replies:
        pid = os.fork()
        if pid == 0:
            os.dup2(requests.fileno(), 0)
            os.dup2(replies.fileno(), 1)
            os.execv(sys.executable, [sys.executable, reader])
    os.waitpid(pid, 0)
"""
# Traces the program that it starts, and all that this starts.
TRACER = """
import ctypes, os, sys
ptrace = ctypes.CDLL(None).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
pid = os.fork()
if pid == 0:
    ptrace(0, 0, None, None)  # PTRACE_TRACEME
    os.execv(sys.argv[1], sys.argv[1:])
os.waitpid(pid, 0)
ptrace(0x4200, pid, None, 0x10000e)  # PTRACE_SETOPTIONS: exit-kill, fork, vfork, clone
ptrace(7, pid, None, None)  # PTRACE_CONT
while True:
    pid, status = os.waitpid(-1, 0x40000000)
    if os.WIFSTOPPED(status):
        signo = os.WSTOPSIG(status)
        ptrace(7, pid, None, signo if signo not in (5, 19) else 0)
"""


class WhoReads(Reader):
    """The process that reads was there before its adapter: ctxconf cannot trace that."""

    BY_ANSWERS = "pctx.reader.decodes-process-context"
    BY_CALLS = {"pctx.reader.timestamp-before-fields", "pctx.reader.fallible-remote-reads"}

    def assert_only_answers_are_judged(self, *before, by_calls):
        with tempfile.TemporaryDirectory() as folder:
            to, back = os.path.join(folder, "to"), os.path.join(folder, "back")
            for path in (to, back):
                os.mkfifo(path)
            messenger = os.path.join(folder, "messenger.py")
            with open(messenger, "w", encoding="utf-8") as file:
                file.write(MESSENGER)
            daemon = subprocess.Popen(
                [*before, sys.executable, "-c", DAEMON, os.path.join(BIN, "reader.py"), to, back],
                start_new_session=True)
            try:
                only = [f"--only={one}" for one in (self.BY_ANSWERS, *sorted(by_calls))]
                ids = self.outcomes(0, messenger, to, back, options=["--timeout-scale=4", *only])
            finally:
                self.assertIsNone(daemon.poll(), "the reader has ended with its adapter")
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()
        self.assertEqual(ids["pass"], {self.BY_ANSWERS})
        self.assertEqual(ids["unobservable"], by_calls)

    def test_a_reader_that_was_there_before(self):
        # The last one has scenes in which the target updates its context without end.
        self.assert_only_answers_are_judged(by_calls=self.BY_CALLS | {"pctx.reader.rereads-timestamp"})
        self.assertRegex(self.text, r"process \d+, which reads, existed before the adapter started: its system calls")

    def test_a_reader_that_another_process_traces(self):
        self.assert_only_answers_are_judged(sys.executable, "-c", TRACER, by_calls=self.BY_CALLS)

    def test_what_a_reader_saw_follows_the_schema(self):
        with tempfile.TemporaryDirectory() as folder:
            adapter = os.path.join(folder, "adapter.py")
            with open(adapter, "w", encoding="utf-8") as file:
                file.write(SEES_WRONG)
            for wrong in ('"pid": "x", "result": "absent"', '"result": "absent"',
                          '"pid": PID, "result": 7', '"pid": PID, "result": "accept", "context": 1',
                          '"pid": 1e30, "result": "absent"'):
                with self.subTest(wrong):
                    self.outcomes(3, adapter, wrong, options=["--only=pctx.reader.name-prefix-only"])
                    self.assertIn("sent an event that breaks the protocol", self.text)


    def test_what_a_reader_saw_is_about_what_it_was_asked(self):
        with tempfile.TemporaryDirectory() as folder:
            adapter = os.path.join(folder, "adapter.py")
            with open(adapter, "w", encoding="utf-8") as file:
                file.write(SEES_WRONG)
            self.outcomes(3, adapter, '"pid": 1, "result": "absent"',
                          options=["--only=pctx.reader.name-prefix-only"])
            self.assertIn("reported process 1, which it was not told to watch", self.text)


# Reports what its argument has about each process that it is to watch.
SEES_WRONG = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    reply = {"id": request["id"], "ok": True}
    if request["op"] == "hello":
        reply |= {"v": 1, "pid": os.getpid(), "adapter": {"name": "x", "version": "1"},
                  "caps": {"reader.watch": {"poll_ms": 10}}}
    print(json.dumps(reply), flush=True)
    if request["op"] == "reader.watch":
        print('{"ev": "saw", ' + sys.argv[1].replace("PID", str(request["pid"])) + '}', flush=True)
    if request["op"] == "bye":
        break
"""


class Lines(unittest.TestCase):
    def ask(self, adapter, *requests):
        """The replies to hello, the requests and bye."""
        hello = {"op": "hello", "v": 1, "suite": "0.1.0", "spec": {}, "example.unknown": 1}
        asked = [{"id": i, **one} for i, one in enumerate([hello, *requests, {"op": "bye"}])]
        for one in asked:
            validator("request").validate(one)
        ran = subprocess.run([os.path.join(BIN, adapter)], check=True, capture_output=True, text=True,
                             input="".join(json.dumps(one) + "\n" for one in asked),
                             timeout=DEADLINE_S)
        said = [json.loads(line) for line in ran.stdout.splitlines()]
        self.assertEqual([one["id"] for one in said], list(range(len(asked))))
        for one in said:
            validator("reply").validate(one)
        validator("hello_reply").validate(said[0])
        return said[1:-1]

    def test_replies_follow_the_schema(self):
        record = {"op": "reader.record", "hex": "01" * 24 + "01030500" + "0003616263", "key_map": ["a"]}
        expected = {"trace_id": "01" * 16, "span_id": "01" * 8, "flags": 3, "attributes": {"a": "abc"}}
        for adapter in ("reader.py", "reader_stub.py"):
            with self.subTest(adapter):
                replies = self.ask(adapter, record, {"op": "reader.process", "pid": os.getpid()},
                                   {"op": "process.publish", "resource": {"attributes": []}})
                validator("reader_reply").validate(replies[0])
                self.assertEqual(replies[0]["record"], expected)
                self.assertEqual(replies[1]["result"], "absent")
                self.assertEqual(replies[2]["error"]["kind"], "unsupported")

    def test_end_with_their_input(self):
        for adapter in ("reader.py", "reader_stub.py"):
            ran = subprocess.run([os.path.join(BIN, adapter)], stdin=subprocess.DEVNULL,
                                 timeout=DEADLINE_S, check=False)
            self.assertEqual(ran.returncode, 0)


if __name__ == "__main__":
    unittest.main()
