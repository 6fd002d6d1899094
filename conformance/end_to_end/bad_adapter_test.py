#!/usr/bin/env python3
"""Drives adapters of every bad kind with `ctxconf run` and `ctxconf reader`, and compares how each run
ends with the table in docs/testee-protocol.md, which it prints. Checks after each run that no process
is left.

usage: bad_adapter_test.py SOURCE_DIR BIN_DIR
"""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
import xml.etree.ElementTree as ElementTree

from leftovers import heed_signals, marked

try:
    import jsonschema
except ImportError:
    jsonschema = None

SOURCE, BIN = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
CTXCONF = os.path.join(BIN, "ctxconf")
ADAPTER = os.path.join(BIN, "bad_adapter")
DOC = os.path.join(SOURCE, "docs", "testee-protocol.md")
REQUIREMENTS = ("pctx.publish.discoverable", "pctx.update.visible")

# The documented limits, shortened where a test is about them: 10 s become 1 s.
HANG_SCALE = 0.1
# Used for kinds whose answers must arrive within the limits even on a busy machine.
ANSWER_SCALE = 0.5
DEADLINE_S = 180
with open(os.path.join(SOURCE, "conformance/report/result.schema.json"), encoding="utf-8") as file:
    SCHEMA = json.load(file)
# It checks the schema itself once: that takes much longer than to check a result.
VALIDATOR = None
if jsonschema is not None:
    VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
    VALIDATOR.check_schema(SCHEMA)

# Kind: the outcome of its publish requirement, and text that the report must have. Kinds that end
# in another way are in `OTHER`.
TIMEOUT, CRASH, BROKEN, FINE, REFUSED = "timeout", "crash", "exit 3", "pass", "fail"
UNSEEN = "unobservable"
EXIT = {TIMEOUT: 1, CRASH: 1, BROKEN: 3, FINE: 0, REFUSED: 1, UNSEEN: 4}
NO_REPLY = "no reply to process.publish in time"
NOT_PROTOCOL = "that (is|are) not (a )?protocol message"
INSTEAD = "instead it wrote a line that is not a protocol message"
BEFORE_HELLO = "ended before it answered hello"
KINDS = {
    "none": (FINE, ""),
    "hello-never": (BROKEN, "did not say hello"),
    "never-reads": (BROKEN, "did not say hello"),
    "hello-twice": (BROKEN, "a message without a request"),
    "hello-late": (BROKEN, "did not say hello"),
    "hello-refused": (BROKEN, "refused hello"),
    "hello-version": (BROKEN, "speaks version 7"),
    "hello-without-caps": (BROKEN, "a reply to hello that breaks the protocol"),
    "hello-huge-caps": (FINE, ""),
    "hello-hostile-names": (FINE, ""),
    "pid-of-another": (BROKEN, "neither the adapter nor a process that it started"),
    "pid-too-large": (BROKEN, "breaks the protocol"),
    "dies-in-hello": (BROKEN, BEFORE_HELLO + ": killed by SIGSEGV"),
    "exits-in-hello": (BROKEN, r"stderr: cannot find libsdk.so(.|\n)*" + BEFORE_HELLO + ": exited 9"),
    "daemonises": (BROKEN, BEFORE_HELLO + ": exited 0"),
    "junk-before": (FINE, NOT_PROTOCOL),
    "junk-between": (FINE, NOT_PROTOCOL),
    "junk-inside": (TIMEOUT, INSTEAD),
    "junk-of-100-mib": (FINE, "more than 1 MiB"),
    "junk-that-nests": (FINE, NOT_PROTOCOL),
    "junk-with-nul": (FINE, NOT_PROTOCOL),
    "floods": (FINE, ""),
    "reply-never": (TIMEOUT, NO_REPLY + r"(.|\n)*\(bad_adapter\): S"),
    "reply-late": (TIMEOUT, NO_REPLY),
    "reply-in-pieces": (FINE, ""),
    "reply-with-cr": (FINE, ""),
    "reply-without-feed": (TIMEOUT, r"\d+ bytes arrived without a line feed"),
    "reply-twice": (BROKEN, "a message without a request"),
    "reply-wrong-id": (BROKEN, "a reply to request 77 instead of 2"),
    "reply-malformed": (BROKEN, "a reply that breaks the protocol"),
    "reply-without-error": (BROKEN, "a reply that breaks the protocol"),
    "reply-nan": (TIMEOUT, INSTEAD),
    "reply-with-nul": (TIMEOUT, INSTEAD),
    "reply-invalid-utf8": (TIMEOUT, INSTEAD),
    "reply-that-nests": (BROKEN, "breaks the protocol .*nests more than 100 deep"),
    "reply-huge": (TIMEOUT, "more than 1 MiB"),
    "event-unasked": (BROKEN, "an event without a request"),
    "refuses": (REFUSED, 'declares process.publish but answered process.publish with "unsupported"'),
    "publishes-nothing": (UNSEEN, "no published context was seen"),
    "refuses-with-escapes": (REFUSED, "declares process.publish"),
    "exits-0": (CRASH, "exited 0 in process.publish"),
    "exits-7": (CRASH, "exited 7 in process.publish"),
    "dies-of-segv": (CRASH, r"killed by SIGSEGV in process.publish(.|\n)*stderr: about to die"),
    "dies-of-abrt": (CRASH, "killed by SIGABRT in process.publish"),
    "dies-of-bus": (CRASH, "killed by SIGBUS in process.publish"),
    "dies-of-fpe": (CRASH, "killed by SIGFPE in process.publish"),
    "dies-of-kill": (CRASH, "killed by SIGKILL in process.publish"),
    "dies-of-term": (CRASH, "killed by SIGTERM in process.publish"),
    "dies-of-trap": (CRASH, "killed by SIGTRAP in process.publish"),
    "dies-with-escapes": (CRASH, r"stderr: \\x1b\[2J"),
    "becomes-another": (CRASH, "exited 0 in process.publish"),
    "daemonises-later": (CRASH, "exited 0 in process.publish"),
    "main-thread-ends": (TIMEOUT, NO_REPLY),
    "closes-stdout": (TIMEOUT, "closed its end of the channel but still runs"),
    "exhausts-descriptors": (REFUSED, 'answered process.publish with "failed"'),
    "ignores-sigterm": (TIMEOUT, NO_REPLY),
    "blocks-signals": (TIMEOUT, NO_REPLY),
    "stops-itself": (TIMEOUT, NO_REPLY),
    "spins": (TIMEOUT, NO_REPLY + r"(.|\n)*running"),
    "hangs-under-a-bad-name": (TIMEOUT, NO_REPLY + r"(.|\n)*\(\\x1b\[31m\) S\\x0a\\x07\): S"),
    "deletes-its-folder": (FINE, ""),
    "joins-our-group": (FINE, ""),
    "traces-itself": (FINE, ""),
    "changes-user": (FINE, ""),
    "changes-root": (FINE, ""),
    "mounts": (FINE, ""),
    "leaves-children": (FINE, r"warning: \d+ process(es)? outlived the adapter"),
    "leaves-clean-children": (FINE, r"warning: \d+ process(es)? outlived the adapter"),
    "vforks": (FINE, ""),
    "vforks-and-hangs": (TIMEOUT, NO_REPLY),
    "answers-with-wrong-types": (FINE, ""),
    "context-of-wrong-types": (FINE, ""),
    "answers-without-a-result": (FINE, ""),
    "answers-for-another-process": (FINE, ""),
    "sees-without-a-watch": (BROKEN, "without a request"),
    "sees-another-process": (FINE, ""),
    "sees-too-many-threads": (FINE, ""),
    "ends-its-target": (FINE, ""),
    "stops-its-target": (FINE, ""),
    "keeps-its-target-stopped": (FINE, ""),
    "stays-tracer-of-its-target": (FINE, ""),
    "writes-into-its-target": (FINE, ""),
    "restores-its-target": (FINE, ""),
    "stays-tracer-as-declared": (FINE, ""),
    "bye-twice": (BROKEN, "a message without a request"),
    "bye-then-exits-5": (FINE, "warning: after bye the adapter exited 5"),
    "bye-then-stays": (FINE, "warning: the adapter did not exit in time after bye"),
    "bye-then-prints": (FINE, NOT_PROTOCOL),
}
# Kind: the allowed exit codes, the allowed outcomes of both requirements, and the expected text.
SEEN = ("pass", "fail", "unobservable")
OTHER = {
    # The next check has its own process.
    "dies-in-update": ((1,), ("pass",), ("crash",), "killed by SIGSEGV in process.update"),
    "dies-after-reply": ((1,), ("pass",), ("crash",), "killed by SIGSEGV in"),
    "closes-stdin": ((1,), ("pass",), ("timeout",), "no reply to process.update in time"),
    "stops-reading": ((1,), ("pass",), ("timeout",), "no reply to process.update in time"),
    # The second outcome depends on a race.
    "unmaps-before-reply": ((0, 1), SEEN, SEEN, ""),
    "unmaps-after-reply": ((0, 1), SEEN, SEEN, ""),
    "bye-ignored": ((1,), ("pass",), ("pass",), "no reply to bye in time"),
    "bye-then-dies": ((1,), ("pass",), ("pass",), "killed by SIGSEGV in bye"),
}


class Role:
    """A command that drives an adapter: the requirements of its first operations, and how each kind
    ends."""

    def __init__(self, command, requirements, kinds, other, options=()):
        self.command, self.requirements, self.kinds, self.other = command, requirements, kinds, other
        self.options = options


RUN = Role("run", REQUIREMENTS, KINDS, OTHER, ("--level", "stores"))
UNPLAYED = "the scene could not be played: "
NOT_WATCHED = r"reported process \d+, which it was not told to watch"
BLIND = "the reader does not report a plain context"
READER_OTHER = {
    # Each check asks more than once.
    "dies-after-reply": ((1,), ("crash",), ("crash",), "killed by SIGSEGV in"),
    "closes-stdin": ((1,), ("timeout",), ("timeout",), "no reply to reader.process in time"),
    "stops-reading": ((1,), ("timeout",), ("timeout",), "no reply to reader.process in time"),
    # The second scene moves its target after the first question.
    "stops-its-target": (
        (1,), ("pass",), (UNSEEN,), r"(?s)left its target stopped by a signal; in .*" + UNPLAYED +
        r"load: no answer in \d+ ms; the reader left its target"),
    "keeps-its-target-stopped": (
        (1,), ("pass",), (UNSEEN,), r"(?s)left its target stopped, as its tracer; in .*" + UNPLAYED +
        r"load: no answer in \d+ ms; the reader left its target"),
    "ends-its-target": ((1,), (UNSEEN,), (UNSEEN,), "the reader ended its target; in"),
    "stays-tracer-of-its-target": (
        (1,), ("pass",), ("pass",), "the reader stays the tracer of its target"),
    "writes-into-its-target": (
        (1,), ("pass",), ("pass",), "wrote into its target, and left the memory changed"),
    "bye-ignored": OTHER["bye-ignored"],
    "bye-then-dies": OTHER["bye-then-dies"],
}
READER_KINDS = {
    # The same as for an SDK, except for these.
    **{kind: (ending, said.replace("process.publish", "reader.process"))
       for kind, (ending, said) in KINDS.items() if kind not in READER_OTHER},
    # A process that was there before the adapter may read for it.
    "pid-of-another": (FINE, ""),
    # Those that do not find a plain context.
    "refuses": (UNSEEN, BLIND),
    "refuses-with-escapes": (UNSEEN, BLIND),
    "answers-for-another-process": (UNSEEN, BLIND),
    "changes-root": (UNSEEN, BLIND),
    "changes-user": (UNSEEN, BLIND),
    "exhausts-descriptors": (UNSEEN, BLIND),
    "publishes-nothing": (BROKEN, "a reply to reader.process that breaks the protocol"),
    "dies-in-update": (FINE, ""),
    "unmaps-before-reply": (FINE, ""),
    "unmaps-after-reply": (FINE, ""),
    "answers-with-wrong-types": (BROKEN, "a reply that breaks the protocol"),
    "context-of-wrong-types": (BROKEN, "a reply that breaks the protocol"),
    "answers-without-a-result": (BROKEN, "a reply to reader.process that breaks the protocol"),
    "sees-without-a-watch": (BROKEN, NOT_WATCHED),
    "sees-another-process": (BROKEN, NOT_WATCHED),
    "sees-too-many-threads": (BROKEN, "reported more than 4096 threads at once"),
}
READER = Role("reader", ("pctx.reader.name-prefix-only", "pctx.reader.reused-address"),
              READER_KINDS, READER_OTHER, ("--strict",))
# The same kinds end the same way over descriptor 3.
FD3 = ("none", "hello-twice", "never-reads", "junk-before", "floods", "reply-twice",
       "closes-stdout", "dies-of-segv", "leaves-children", "bye-then-stays")
# The same holds when several processes drive at once.
JOBS = ("none", "reply-twice", "dies-of-segv", "daemonises-later", "ignores-sigterm",
        "joins-our-group", "leaves-children", "leaves-clean-children", "hello-huge-caps", "floods")
# Kinds whose time limits are awaited: those that never say hello, and those that answer at first.
SILENT = {"hello-never", "never-reads", "hello-late"}
SLOW = {"closes-stdin", "stops-reading", "bye-ignored", "bye-then-stays", "leaves-children",
        "leaves-clean-children"}


def mounts():
    """Is on /tmp, which the kind that mounts uses."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:
        return [line for line in lines if line.split()[4] == "/tmp"]


def control_characters(text):
    return re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


class Ending:
    """One run of one kind, and its results."""

    def __init__(self, role, kind, *options):
        self.problems = []
        self.name = " ".join((kind, *options))
        expected = role.kinds.get(kind)
        hangs = expected is not None and expected[0] == TIMEOUT
        scale = HANG_SCALE if hangs or kind in SILENT else ANSWER_SCALE if kind in SLOW else 1
        self.requirements = role.requirements[:1] if hangs else role.requirements
        mark = f"CTXCONF_BAD_ADAPTER={uuid.uuid4()}"
        with tempfile.TemporaryDirectory() as folder:
            cwd, out = os.path.join(folder, "cwd"), os.path.join(folder, "out")
            tmp = os.path.join(folder, "tmp")
            for path in (cwd, tmp):
                os.mkdir(path)
            command = [CTXCONF, role.command, "--color", "never", *role.options, *options, "--out", out]
            for requirement in self.requirements:
                command += ["--only", requirement]
            command += ["--timeout-scale", str(scale)]
            began = time.monotonic()
            ran = subprocess.run(
                command + ["--", ADAPTER, kind], cwd=cwd, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S, check=False,
                env={**os.environ, "TMPDIR": tmp, mark.split("=")[0]: mark.split("=")[1]})
            self.seconds = time.monotonic() - began
            # Up to here it is not a leftover.
            self.left = marked(mark)
            self.exit_code = ran.returncode
            self.text = (ran.stdout + ran.stderr).decode(errors="surrogateescape")
            self.files = os.listdir(tmp) + (os.listdir(cwd) if os.path.exists(cwd) else [])
            self.outcomes = self.read_reports(out)
        self.expect(self.left == [], f"processes are left: {self.left}")
        self.expect(self.files == [], f"files are left: {self.files}")
        self.expect(not control_characters(self.text.replace("\n", "")), "raw control characters")
        if expected is None:
            codes, publish, update, said = role.other[kind]
            self.expect(self.exit_code in codes, f"exit code {self.exit_code}")
            self.expect(self.outcomes[0] in publish and self.outcomes[1] in update,
                        f"the outcomes are {self.outcomes}")
        else:
            ending, said = expected
            self.expect(self.exit_code == EXIT[ending], f"exit code {self.exit_code}")
            if ending != BROKEN:
                self.expect(set(self.outcomes) == {ending}, f"the outcomes are {self.outcomes}")
            else:
                self.expect(ADAPTER in self.reason, "the reason does not name the adapter")
        words = " ".join(self.text.split())  # lines are wrapped
        self.expect(re.search(said, self.text) or re.search(said, words),
                    f"says nothing like {said!r}")

    def expect(self, holds, problem):
        if not holds:
            self.problems.append(problem)

    def read_reports(self, out):
        try:
            with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
                result = json.load(file)
            if VALIDATOR is not None:
                VALIDATOR.validate(result)
            self.expect(result["exit"]["code"] == self.exit_code, "result.json has another code")
            ElementTree.parse(os.path.join(out, "junit.xml"))
            self.reason = result["exit"]["reason"]
            outcomes = {r["id"]: r["outcome"] for r in result["results"]}
            return [outcomes[requirement] for requirement in self.requirements]
        except (OSError, ValueError, KeyError, ElementTree.ParseError) as error:
            self.problems.append(f"the reports: {error!r}")
        except Exception as error:  # jsonschema is optional
            self.problems.append(f"result.json: {str(error)[:500]}")
        self.reason = ""
        return ["", ""]


class BadAdapters(unittest.TestCase):
    role = RUN

    def test_each_ends_as_documented(self):
        kinds = subprocess.run([ADAPTER, "--list"], capture_output=True, text=True,
                               check=True).stdout.split()
        self.assertEqual(sorted(kinds), sorted([*self.role.kinds, *self.role.other]))
        with open(DOC, encoding="utf-8") as file:
            documented = set(re.findall(r"^\| `([a-z0-9-]+)` \|", file.read(), re.MULTILINE))
        self.assertEqual(set(kinds) - documented, set(), "not in docs/testee-protocol.md")
        mounted = mounts()
        descriptors = len(os.listdir("/proc/self/fd"))
        runs = [(kind,) for kind in kinds] + [(kind, "--channel", "fd3") for kind in FD3]
        runs += [(kind, "--jobs", "3") for kind in JOBS]
        # Kinds that wait come first, because they take longest.
        runs.sort(key=lambda run: run[0] not in SLOW
                  and self.role.kinds.get(run[0], ("",))[0] != TIMEOUT)
        with concurrent.futures.ThreadPoolExecutor(max_workers=3) as pool:
            endings = list(pool.map(lambda run: Ending(self.role, *run), runs))
        for ending in sorted(endings, key=lambda e: e.name):
            print(f"{ending.name:32} exit {ending.exit_code}  {' '.join(ending.outcomes):22} "
                  f"{ending.seconds:5.1f} s  {'; '.join(ending.problems) or 'ok'}")
        for ending in endings:
            with self.subTest(ending.name):
                self.assertEqual(ending.problems, [], ending.text)
        self.assertEqual(mounts(), mounted)
        self.assertEqual(len(os.listdir("/proc/self/fd")), descriptors)


class BadReaders(BadAdapters):
    role = READER


# Stops the process that drives it, if that is a job.
STOPPER = """#!/bin/sh
above=$(awk '{print $4}' /proc/$PPID/stat)
[ "$(cat /proc/$above/comm)" = ctxconf ] && kill -STOP $PPID
exec "$@"
"""


class Jobs(unittest.TestCase):
    def test_one_that_its_adapter_stops_is_continued(self):
        with tempfile.TemporaryDirectory() as folder:
            stopper = os.path.join(folder, "stopper")
            with open(stopper, "w", encoding="utf-8") as file:
                file.write(STOPPER)
            os.chmod(stopper, 0o755)
            ran = subprocess.run(
                [CTXCONF, "run", "--jobs", "3", "--only", REQUIREMENTS[0], "--only", REQUIREMENTS[1], "--",
                 stopper, os.path.join(BIN, "adapter_cpp")],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S,
                check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertRegex(ran.stdout, "processes of ctxconf were stopped [0-9]+ times")


def with_argument(argument):
    """The processes with this last argument."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if file.read().split(b"\0")[-2:-1] == [argument.encode()]:
                    found.append(int(name))
        except OSError:
            pass
    return found


# Answers and reports the same again and again. Its process is its own, one that was there before,
# or a child that it traces.
LINTED_READER = """
import ctypes, json, os, sys
caps, answer, event, reads = (*HOW, "itself")[:4]
pid = {"itself": os.getpid, "another": lambda: 1, "traced": os.fork}[reads]()
if pid == 0:
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)  # PTRACE_TRACEME
    ctypes.CDLL(None).prctl(1, 9)  # ends with its parent
    os.kill(os.getpid(), 19)
if reads == "traced":
    os.waitpid(pid, 2)
for line in sys.stdin:
    request = json.loads(line)
    reply = {"id": request["id"], "ok": True}
    if request["op"] == "hello":
        reply |= {"v": 1, "pid": pid, "adapter": {"name": "x", "version": "1"}, "caps": caps}
    elif request["op"].startswith("example."):
        reply |= {"ok": False, "error": {"kind": "unsupported", "message": "no"}}
    elif request["op"] in ("reader.process", "reader.thread", "reader.record"):
        reply |= answer
    if event is not None and request["op"].startswith("reader."):
        print(json.dumps({"ev": "saw", "pid": request.get("pid"), **event}), flush=True)
    print(json.dumps(reply), flush=True)
    if request["op"] == "bye":
        break
"""


class ByHand(unittest.TestCase):
    """adapter-lint and repl."""

    def ctxconf(self, command, kind, given="", options=()):
        self.mark = f"CTXCONF_BAD_ADAPTER={uuid.uuid4()}"
        words = kind if isinstance(kind, tuple) else (ADAPTER, kind) if kind in [*KINDS, *OTHER] else (kind,)
        ran = subprocess.run(
            [CTXCONF, command, *options, "--", *words],
            input=given.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=DEADLINE_S, check=False,
            env={**os.environ, **dict([self.mark.split("=", 1)])})
        text = (ran.stdout + ran.stderr).decode(errors="surrogateescape")
        self.assertEqual(control_characters(text.replace("\n", "")), [])
        self.assertEqual(marked(self.mark), [])
        return ran.returncode, text

    def test_lint_finds_what_an_adapter_does_wrong(self):
        for kind, said in {
                "dies-of-segv": "process.publish was not answered, and its output has ended",
                "exits-in-hello": "hello was not answered",
                "hello-version": "speaks another version",
                "pid-of-another": "neither the adapter nor a process that it started",
                "refuses-with-escapes": "declares process.update but refuses process.update",
                "reply-wrong-id": "has id 2, but its reply has another id",
                "reply-malformed": "breaks the protocol",
                "leaves-children": "left after bye",
                "leaves-clean-children": "left after bye",
                "bye-then-stays": "does not exit within 2 s after bye",
                "bye-then-exits-5": "after bye it exits 5"}.items():
            with self.subTest(kind):
                code, text = self.ctxconf("adapter-lint", kind)
                self.assertEqual(code, 1, text)
                self.assertRegex(text, "FINDING .*" + said)

    def test_lint_finds_what_a_reader_does_wrong(self):
        text = {"key": "a", "value": {"stringValue": "b"}}
        process, watch = {"reader.process": {}}, {"reader.watch": {"poll_ms": 1}}
        for caps, answer, event, said in (
                (process, {}, None, r"reader.process got a reply that breaks the protocol \(.*result"),
                (process, {"result": "maybe"}, None, "reader.process got a reply that breaks"),
                (process, {"result": "accept", "context": [text]}, None, "got a reply that breaks"),
                (process, {"result": "accept"}, None, 'process says "accept" and has no context'),
                ({"reader.record": {}}, {"result": "accept"}, None, "record says .* no record"),
                ({"reader.process": []}, {}, None, "hello got a reply that breaks the protocol"),
                ({"reader": {"formats": [1]}}, {}, None, "hello got a reply that breaks the protocol"),
                (watch, {}, {"pid": "x", "result": "absent"}, "reader.watch: an event that breaks"),
                (watch, {}, {"pid": 1, "result": "absent"}, "1, which it was not told to watch"),
                (watch, {}, {"pid": 0, "result": 1}, "reader.watch: an event that breaks"),
                (watch, {}, {"result": "accept"}, 'watch says "accept" and has no context'),
                (process, {"result": "absent"}, {"pid": 0, "result": "absent"},
                 "reader.process got a reply that breaks")):
            with self.subTest((caps, answer, event)):
                code, text_of = self.lint_reader(caps, answer, event)
                self.assertEqual(code, 1, text_of)
                self.assertRegex(text_of, "FINDING .*" + said)

    def test_lint_notes_what_a_reader_declares_in_vain(self):
        for caps, said in (
                ({"reader": {}}, "ctxconf reader has nothing to ask: declare at least one of reader.process"),
                ({"reader.proces": {}}, "there is no capability reader.proces\n"),
                ({"reader.watch": {}}, "reader.watch declares no poll_ms"),
                ({"reader.watch": {"poll_ms": 1}, "reader.process": {}}, "does not use reader.watch"),
                ({"reader.process": {}, "reader.watch_threads": {}}, "means nothing without"),
                ({"reader.thread": {}, "reader": {"formats": ["H1"]}}, "formats has no schema version of records"),
                ({"reader.thread": {}, "reader": {"formats": ["tls_v1", "tls-v1"]}},
                 "ctxconf reader shows nothing of the format tls-v1\n")):
            with self.subTest(caps):
                code, text = self.lint_reader(caps, {"result": "absent"}, None)
                self.assertEqual(code, 0, text)
                self.assertRegex(text, "note .*" + said)

    def test_lint_tells_whose_process_reads(self):
        absent = {"result": "absent"}
        code, text = self.lint_reader({"reader.process": {}}, absent, None, "another")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"note .*process \d+ existed before the adapter started")
        code, text = self.lint_reader({"process.drop": {}}, absent, None, "another")
        self.assertEqual(code, 1, text)
        self.assertIn("neither the adapter nor a process that it started", text)
        code, text = self.lint_reader({"reader.process": {}}, absent, None, "traced")
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r"FINDING .*process \d+ traces process \d+ of the adapter, but")

    def lint_reader(self, *how):
        with tempfile.TemporaryDirectory() as folder:
            adapter = os.path.join(folder, "reader")
            with open(adapter, "w", encoding="utf-8") as file:
                file.write(f"#!{sys.executable}\nHOW = {how!r}\n{LINTED_READER}")
            os.chmod(adapter, 0o755)
            return self.ctxconf("adapter-lint", adapter)

    def test_lint_is_silent_about_right_adapters(self):
        for adapter in ("none", "junk-between", os.path.join(BIN, "adapter_cpp"),
                        os.path.join(BIN, "reader.py"), os.path.join(BIN, "reader_stub.py"),
                        os.path.join(BIN, "bad_reader"), (os.path.join(BIN, "bad_reader"), "--watch"),
                        (os.path.join(BIN, "reader_ref"), "serve")):
            with self.subTest(adapter):
                code, text = self.ctxconf("adapter-lint", adapter)
                self.assertEqual(code, 0, text)
                self.assertRegex(text, "([0-9]+) of \\1 operations answered .*, 0 findings")

    def test_lint_speaks_over_descriptor_3(self):
        for adapter in ("none", "junk-between", os.path.join(BIN, "adapter_cpp")):
            with self.subTest(adapter):
                code, text = self.ctxconf("adapter-lint", adapter, options=("--channel", "fd3"))
                self.assertEqual(code, 0, text)
                self.assertRegex(text, "([0-9]+) of \\1 operations answered .*, 0 findings")
        # The adapter uses only standard input and output.
        code, text = self.ctxconf("adapter-lint", os.path.join(BIN, "adapter.sh"),
                                  options=("--channel", "fd3"))
        self.assertEqual(code, 1, text)
        self.assertIn("hello was not answered", text)

    def test_lint_waits_as_long_as_it_is_told_to(self):
        scale = ("--timeout-scale", "0.1")
        code, text = self.ctxconf("adapter-lint", "bye-then-stays", options=scale)
        self.assertEqual(code, 1, text)
        self.assertIn("does not exit within 0.2 s after bye", text)
        for wrong in ("0", "nan", "x"):
            code, text = self.ctxconf("adapter-lint", "none", options=("--timeout-scale", wrong))
            self.assertEqual(code, 2, text)

    def test_lint_that_is_asked_to_end_leaves_nothing(self):
        # A signal while it waits for the end of the adapter, and for a reply; with and without children.
        for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for kind in ("hello-never", "reply-never", "bye-then-stays", "leaves-clean-children"):
                with self.subTest(f"{signo.name} {kind}"):
                    mark = f"CTXCONF_BAD_ADAPTER={uuid.uuid4()}"
                    lint = subprocess.Popen(
                        [CTXCONF, "adapter-lint", "--timeout-scale", "100", "--", ADAPTER, kind],
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                        env={**os.environ, **dict([mark.split("=", 1)])})
                    deadline = time.monotonic() + DEADLINE_S
                    while len(marked(mark)) < 2 and time.monotonic() < deadline:
                        time.sleep(0.01)
                    lint.send_signal(signo)
                    text = lint.communicate(timeout=DEADLINE_S)[0].decode()
                    self.assertEqual(marked(mark), [])
                    self.assertEqual(lint.returncode, -signo, text)

    def test_an_adapter_ends_with_its_ctxconf(self):
        mark = f"CTXCONF_BAD_ADAPTER={uuid.uuid4()}"
        lint = subprocess.Popen(
            [CTXCONF, "adapter-lint", "--", ADAPTER, "hello-never"], stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, env={**os.environ, **dict([mark.split("=", 1)])})
        deadline = time.monotonic() + DEADLINE_S
        while len(marked(mark)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        lint.kill()
        lint.wait()
        while marked(mark) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(marked(mark), [])

    def test_repl_that_is_asked_to_end_leaves_nothing(self):
        # A signal at the prompt, and while it waits for a reply. One process has left the adapter's
        # group, session and environment.
        for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for kind, given in (([os.path.join(BIN, "adapter_cpp")], b""),
                                ([ADAPTER, "reply-never"], b"process.publish @a=b\n")):
                with self.subTest(f"{signo.name} {kind}"):
                    pause = f"300.{uuid.uuid4().int % 10**9}"
                    script = f'env -i "$(command -v setsid)" sleep {pause} & exec "$@"'
                    repl = subprocess.Popen(
                        [CTXCONF, "repl", "--timeout-scale", "100", "--", "sh", "-c", script, "sh",
                         *kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT)
                    try:
                        self.assertIn(b'"ok":true', repl.stdout.readline())
                        repl.stdin.write(given)
                        repl.stdin.flush()
                        deadline = time.monotonic() + DEADLINE_S
                        while not with_argument(pause) and time.monotonic() < deadline:
                            time.sleep(0.01)
                        repl.send_signal(signo)
                        text = repl.communicate(timeout=DEADLINE_S)[0].decode()
                        self.assertEqual(with_argument(pause), [])
                        self.assertEqual(repl.returncode, -signo, text)
                        self.assertIn(f"repl: ended by signal {int(signo)}", text)
                    finally:
                        repl.kill()
                        repl.wait()
                        for pid in with_argument(pause):
                            os.kill(pid, signal.SIGKILL)

    def test_repl_speaks_over_descriptor_3(self):
        code, text = self.ctxconf("repl", os.path.join(BIN, "adapter_cpp"),
                                  "process.publish @service.name=shop\n",
                                  options=("--channel", "fd3"))
        self.assertEqual(code, 0, text)
        self.assertIn("a reader sees service.name=shop", text)
        code, text = self.ctxconf("repl", "reply-never", "process.publish @a=b\n",
                                  options=("--timeout-scale", "0.05"))
        self.assertEqual(code, 3, text)
        self.assertIn("did not answer in time", text)

    def test_what_cannot_be_started_is_usage(self):
        code, text = self.ctxconf("adapter-lint", "/no/such")
        self.assertEqual(code, 2, text)
        self.assertIn("cannot start the adapter", text)

    def test_repl_shows_replies_and_memory(self):
        code, text = self.ctxconf(
            "repl", os.path.join(BIN, "adapter_cpp"),
            "process.publish @service.name=shop\nnonsense here\n"
            "thread.attach thread=main ctx=A trace_id=0af7651916cd43dd8448eb211c80319c "
            "span_id=b7ad6b7169203331 flags=1 +http_route=/cart\n"
            '{"op":"process.drop"}\n[\nno.such\n')
        self.assertEqual(code, 0, text)
        for said in ("|OTEL_CTX", "|......service.na|", "a reader sees service.name=shop",
                     "not NAME=VALUE: here", "trace 0af7651916cd43dd8448eb211c80319c",
                     "a reader sees no process context", '"kind":"unsupported"'):
            self.assertIn(said, text)

    def test_repl_says_how_an_adapter_ended(self):
        code, text = self.ctxconf("repl", "dies-with-escapes", "process.publish @a=b\n")
        self.assertEqual(code, 3, text)
        self.assertIn("it died of signal 6", text)


if __name__ == "__main__":
    heed_signals()
    unittest.main()
