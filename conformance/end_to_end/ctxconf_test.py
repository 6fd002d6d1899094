#!/usr/bin/env python3
"""Runs ctxconf as its users do: each command, each exit code, each kind of bad input, with programs
that publish correctly, wrongly, not at all, or with hostile content.

usage: ctxconf_test.py SOURCE_DIR BIN_DIR
"""

import ctypes
import json
import os
import pty
import re
import resource
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
import uuid
import xml.etree.ElementTree as ElementTree

try:
    import jsonschema
except ImportError:
    jsonschema = None

SOURCE = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 2 else ""
BIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""

sys.path.append(os.path.join(SOURCE, "conformance", "report"))
import page_reader  # noqa: E402
from sarif_model import check_sarif  # noqa: E402
from leftovers import children, heed_signals  # noqa: E402
from refused_calls import PREAD64, PROCESS_VM_READV, PROCESS_VM_WRITEV, refuse  # noqa: E402
from strangers import become_nobody, can_unshare, has_ptrace_of_strangers, may_nobody_run, runs  # noqa: E402

CTXCONF = os.path.join(BIN, "ctxconf")
WRITER = os.path.join(BIN, "writer_ref")
TESTEE = os.path.join(BIN, "process_writer")
TESTEE_32 = os.path.join(BIN, "process_writer_32")
CTYPES_WRITER = os.path.join(BIN, "ctypes_writer.py")
PYTHON = sys.executable

CLEAN, FAILED, USAGE, UNREACHABLE, NOT_JUDGED, STALE = range(6)

with open(CTXCONF, "rb") as binary:
    SANITISED = b"__asan_init" in binary.read()
SLOW = 6 if SANITISED else 1
DEADLINE_S = 60 * SLOW

# An example from requirements/layouts.md, early December 2025.
H3_HEADER = ("4f 54 45 4c 5f 43 54 58 | 02 00 00 00 | 0b 68 55 47 70 24 7d 18 | 50 01 00 00 | "
             "a0 82 6d 7e 6a 5f 00 00")

# Publishes according to the JSON of its first argument: {"value": text of an attribute, "times":
# how often to repeat it, "size": for the header, "at": address for the header, "zeros": bytes of
# untouched memory as payload, "map": a file to map as well, "name": of the thread, "hold":
# seconds}.
ILL_WRITER = r"""
import ctypes, json, mmap, os, struct, sys, time
spec = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def delimited(field, data):
    n, length = len(data), b""
    while n > 127:
        length += bytes([n & 127 | 128])
        n >>= 7
    return bytes([field << 3 | 2]) + length + bytes([n]) + data
def pair(key, value):
    return delimited(1, delimited(1, key.encode()) + delimited(2, delimited(1, value.encode())))
value = spec.get("value", "") * spec.get("times", 1)
payload = delimited(1, pair("service.name", "ill") + pair("ill", value))
payload = ctypes.create_string_buffer(payload, len(payload))
address, size = ctypes.addressof(payload), len(payload)
if "zeros" in spec:
    zeros = mmap.mmap(-1, spec["zeros"], flags=mmap.MAP_PRIVATE | 0x4000)  # MAP_NORESERVE
    address = ctypes.addressof(ctypes.c_char.from_buffer(zeros))
address, size = spec.get("at", address), spec.get("size", size)
if "name" in spec:
    libc.prctl(15, spec["name"].encode())  # PR_SET_NAME
if "map" in spec:
    with open(spec["map"], "rb") as file:
        other = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
fd = os.memfd_create("OTEL_CTX", os.MFD_CLOEXEC)
os.ftruncate(fd, 4096)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
header = libc.mmap(None, 4096, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, fd, 0)
libc.madvise(header, 4096, mmap.MADV_DONTFORK)
os.close(fd)
ctypes.memmove(header, struct.pack("<8sIIQQ", b"OTEL_CTX", 2, size, 0, address), 32)
now = struct.pack("<Q", time.clock_gettime_ns(time.CLOCK_BOOTTIME))
ctypes.memmove(header + 16, now, 8)
libc.prctl(0x53564d41, 0, ctypes.c_ulong(header), ctypes.c_ulong(4096), b"OTEL_CTX")
time.sleep(spec.get("hold", 0.25))
os._exit(0)  # else the interpreter frees the payload first
"""

# Publishes more often than states are kept (512). Then, for half a second, it publishes the text given in hexadecimal.
MANY_UPDATES = r"""
import sys, time
sys.path.insert(0, sys.argv[1])
import ctypes_writer
text = bytes.fromhex(sys.argv[2])
encode = ctypes_writer.encode
ctypes_writer.encode = lambda *parts: encode(*parts).replace(b"TEXT", text)
context = ctypes_writer.ProcessContext()
resource = {"service.name": "many", "telemetry.sdk.language": "python",
            "telemetry.sdk.name": "ctxconf", "telemetry.sdk.version": "0.1.0"}
for number in range(560):
    context.publish({**resource, "number": number})
context.publish({**resource, "text": "TEXT"})
time.sleep(0.5)
context.publish({**resource, "number": 560})
time.sleep(0.3)
"""

# Threads with records so large that only the first ones are kept. Then, for half a second, another
# thread has a record that ends with the entries given in hexadecimal.
LARGE_RECORDS = r"""
import ctypes, sys, threading, time
sys.path.insert(0, sys.argv[1])
import ctypes_writer
entries = bytes.fromhex(sys.argv[2])
slot = ctypes.CDLL(sys.argv[1] + "/slot_general_dynamic.so").slot_exchange
slot.argtypes = [ctypes.c_void_p]
context = ctypes_writer.ProcessContext()
context.publish(
    {"service.name": "large", "telemetry.sdk.language": "python", "telemetry.sdk.name": "ctxconf",
     "telemetry.sdk.version": "0.1.0"},
    {"threadlocal.schema_version": "tlsdesc_v1_dev", "threadlocal.attribute_key_map": ["key"]})

def attach(entries):
    head = bytes(range(1, 25)) + b"\0\0" + len(entries).to_bytes(2, sys.byteorder)
    record = ctypes.create_string_buffer(head + entries, 28 + len(entries))
    slot(ctypes.addressof(record))
    ctypes.c_uint8.from_buffer(record, 24).value = 1
    return record

done = threading.Event()
large = (b"\0\xff" + b"x" * 255) * 250
def hold():
    record = attach(large)
    done.wait()
    slot(None)
threads = [threading.Thread(target=hold) for i in range(80)]
for thread in threads:
    thread.start()
time.sleep(1)
record = attach(large + entries)
time.sleep(0.5)
slot(None)
done.set()
for thread in threads:
    thread.join()
"""

# Has the variable, and publishes nothing.
LOADED_SLOT = r"""
import ctypes, sys, time
ctypes.CDLL(sys.argv[1])
print("loaded", flush=True)
time.sleep(60)
"""

HOSTILE = "\x1b[2J\x1b]0;owned\x07</script><b>]]>&\x00\u202e\x9b31m\r\n::error::"


class Done:
    """The result of one command."""

    def __init__(self, args, code, out, err, seconds, usage):
        self.args, self.code, self.out, self.err = args, code, out, err
        self.seconds = seconds
        # What ctxconf and the children that it waited for have used; the peak is in kB.
        self.cpu_seconds, self.peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss

    def __str__(self):
        return (f"{self.args}\nexit {self.code} after {self.seconds:.2f} s\n"
                f"--- stdout\n{self.out[-6000:]}\n--- stderr\n{self.err[-3000:]}")

    def unfolded(self):
        """All output with folded lines joined again, because folding depends on paths."""
        return re.sub(r"\n {7,}(?=\S)", " ", self.out + self.err)


def processes_with(mark):
    """Processes with the mark in their environment; a zombie has none."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(int(name))
        except OSError:
            pass
    return found


class Case(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="ctxconf_test.")
        self.addCleanup(directory.cleanup)
        self.dir = directory.name
        self.mark = "ctxconf-test-" + uuid.uuid4().hex
        self.env = os.environ | {"CTXCONF_TEST": self.mark, "PYTHONDONTWRITEBYTECODE": "1",
                                 "PATH": BIN + ":" + os.environ.get("PATH", "/usr/bin:/bin")}
        self.children = []
        self.addCleanup(self.end_children)

    def end_children(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream:
                    stream.close()
        self.assert_nothing_runs()

    def assert_nothing_runs(self):
        """No process that a test started outlives ctxconf."""
        deadline = time.monotonic() + 5 * SLOW
        while left := processes_with(self.mark):
            if time.monotonic() > deadline:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                self.fail(f"left behind: {left}")
            time.sleep(0.02)

    def wait_until(self, condition, what):
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"never: {what}")
            time.sleep(0.005)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def start(self, *command, **kwargs):
        child = subprocess.Popen(command, cwd=self.dir, env=self.env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, **kwargs)
        self.children.append(child)
        return child

    def start_writer(self, *command, **kwargs):
        """A program that was started and has published."""
        child = self.start(*(command or (WRITER, "--hold", "60s")), **kwargs)
        line = child.stdout.readline()
        self.assertTrue(line.startswith(b"published "), line)
        return child

    def run_it(self, *args, stdin=b"", program=CTXCONF, deadline_s=DEADLINE_S, **kwargs):
        begin = time.monotonic()
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, \
                tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            child = subprocess.Popen([program, *args], cwd=self.dir, env=self.env, stdin=given,
                                     stdout=out, stderr=err, **kwargs)
            self.children.append(child)
            while True:
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() > begin + deadline_s:
                    self.fail(f"{args}: still runs after {deadline_s} s")
                time.sleep(0.002)
            child.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.monotonic() - begin
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="surrogateescape"))
        return Done(args, child.returncode, *texts, seconds, usage)

    def expect_exit(self, code, *args, out=(), err=(), **kwargs):
        """Runs ctxconf; `out` and `err` are patterns that its output must match."""
        done = self.run_it(*args, **kwargs)
        self.assertEqual(done.code, code, done)
        for patterns, text in ((out, done.out), (err, done.err)):
            for pattern in [patterns] if isinstance(patterns, str) else patterns:
                if not re.search(pattern, text, re.M):
                    self.assertRegex(done.unfolded(), re.compile(pattern, re.M), done)
        return done

    def complains(self, code, *args, about):
        """The complaint comes first on stderr, and nothing looks like a report."""
        done = self.expect_exit(code, *args, err=["^ctxconf: "] + list(about))
        self.assertEqual(done.out, "", done)
        return done

    def result(self, name="out"):
        return json.loads(self.read(os.path.join(name, "result.json")))

    def outcomes(self, name="out"):
        return {r["id"]: r["outcome"] for r in self.result(name)["results"]}


class WrapTest(Case):
    def test_reference_writer_is_all_green(self):
        done = self.expect_exit(
            CLEAN, "wrap", "--out", "out", "--expect-resource", "service.name=shop", "--", WRITER,
            "--resource", "service.name=shop", "--update-every", "120", "--updates", "1", "--hold",
            "500ms",
            out=["OTEP 4719@2026-04-07", r"service\.name=shop", r"^\d+ passed, 0 failed, .* of \d+ "
                 "selected", r"^exit 0: \d+ of \d+ requirements judged, none failed"])
        self.assertNotIn("FAIL", done.out, done)
        passed, of = map(int, re.search(r"exit 0: (\d+) of (\d+)", done.out).groups())
        self.assertGreaterEqual(passed, 28, done)
        totals = self.result()["totals"]
        self.assertEqual((totals["pass"], totals["fail"], totals["selected"]), (passed, 0, of))

    def test_ctypes_writer_is_green(self):
        self.expect_exit(CLEAN, "wrap", "--", PYTHON, CTYPES_WRITER, "--hold", "1", out="^exit 0: ")

    def test_state_beyond_those_that_are_kept(self):
        """Misleads a reader, however often the context has changed before."""
        command = ("wrap", "--out", "out", "--", PYTHON, "-c", MANY_UPDATES, BIN)
        self.expect_exit(CLEAN, *command, "676f6f64")
        right = self.outcomes()
        self.assertEqual(right["pctx.payload.utf8"], "pass")
        # This requirement compares all of them.
        self.assertEqual(right["pctx.update.timestamp-distinct"], "unobservable")
        self.expect_exit(FAILED, *command, "62fe64ff", out=["^FAIL +pctx.payload.utf8"])
        wrong = self.outcomes()
        self.assertEqual([requirement for requirement in wrong if wrong[requirement] == "fail"], ["pctx.payload.utf8"])
        self.expect_exit(FAILED, "replay", "out/timeline.json", out=["^FAIL +pctx.payload.utf8"])

    def test_thread_record_beyond_those_that_are_kept(self):
        command = ("wrap", "--out", "out", "--", PYTHON, "-c", LARGE_RECORDS, BIN)
        requirement = "tctx.attrs.ends-on-boundary"
        self.expect_exit(CLEAN, *command, "0004676f6f64", out="thread samples were not kept")
        self.assertEqual(self.outcomes()[requirement], "pass")
        self.expect_exit(FAILED, *command, "0009626164", out=["^FAIL +" + requirement])
        wrong = self.outcomes()
        self.assertEqual([id for id in wrong if wrong[id] == "fail"], [requirement])

    def test_expected_resource_that_is_missing(self):
        self.expect_exit(FAILED, "wrap", "--expect-resource", "service.name=shop", "--", WRITER,
                         "--hold", "200ms", out="^FAIL +pctx.payload.resource-matches-sdk")

    def test_programs_that_publish_nothing(self):
        for command in (["sleep", "0.2"], [PYTHON, "-c", "pass"], ["true"]):
            with self.subTest(command):
                self.expect_exit(NOT_JUDGED, "wrap", "--", *command,
                                 out=["^no process published a context: nothing could be judged",
                                      "^0 passed, 0 failed, ",
                                      "^exit 4: none of .* could be judged",
                                      r"^the program itself: exited 0 \(reported, not judged\)"])

    def test_programs_that_cannot_be_started(self):
        self.write("plain.txt", "hello\n", 0o755)
        self.write("empty", "", 0o755)
        self.write("not-executable", "#!/bin/sh\n", 0o644)
        self.write("no-interpreter", "#!/nonexistent/sh\n", 0o755)
        with open(WRITER, "rb") as file:
            program = file.read()
        loader = re.search(rb"/[^\0]*/ld-linux[^\0]*", program).start()
        machine = {"x86_64": 183, "aarch64": 62}[os.uname().machine]  # the other one
        for name, at, other in (("no-loader", loader, b"/nonexistent"),
                                ("foreign", 18, machine.to_bytes(2, sys.byteorder))):
            with open(self.path(name), "wb") as file:
                file.write(program[:at] + other + program[at + len(other):])
            os.chmod(self.path(name), 0o755)
        for command, text, advice in (
                ("/nonexistent/program", "No such file", "exists"),
                ("no-such-program-anywhere", "No such file", "PATH"),
                ("./no-interpreter", "No such file", "interpreter that it names"),
                ("./no-loader", "No such file", "dynamic loader"),
                ("./foreign", "Exec format error", r"a program for (x86-64|aarch64), which .* `ctxconf elf`"),
                ("./not-executable", "Permission denied", r"chmod \+x"),
                (self.dir, "Permission denied|Is a directory", r"executable|directory"),
                ("./plain.txt", "Exec format error", r"#!/bin/sh"),
                ("./empty", "Exec format error", r"#!/bin/sh"),
                ("", ".", ".")):
            with self.subTest(command):
                if command == "./not-executable" and os.geteuid() == 0:
                    self.assertEqual(os.stat(self.path(command)).st_mode & 0o111, 0)
                self.complains(UNREACHABLE, "wrap", "--", command,
                               about=["cannot start " + re.escape(command), text, advice])

    def test_status_of_the_program_is_reported_and_not_judged(self):
        script = f"{WRITER} --hold 150ms; exit 7"
        self.expect_exit(CLEAN, "wrap", "--", "sh", "-c", script,
                         out=r"^the program itself: exited 7 \(reported, not judged\)")
        self.expect_exit(NOT_JUDGED, "wrap", "--", "sh", "-c", "exit 7", out="exited 7")

    def test_program_that_never_ends_is_ended(self):
        self.expect_exit(NOT_JUDGED, "wrap", "--for", "500ms", "--", "sleep", "1000",
                         out=[r"still ran after 0\.[5-9]", r"SIGTERM \(by ctxconf\)"])
        self.expect_exit(CLEAN, "wrap", "--for", "5s", "--", WRITER, out="^exit 0: ")

    def test_program_that_publishes_without_end_is_ended(self):
        script = f"while :; do {WRITER} --quiet --hold 200ms; done"
        self.expect_exit(NOT_JUDGED, "wrap", "--timeout-scale", "0.2", "--", "sh", "-c", script,
                         out=[r"still ran after \d+\.\d s and was ended",
                              r"^exit 4: the program was ended after .* use --for to set"])
        self.expect_exit(CLEAN, "wrap", "--for", "5s", "--", "sh", "-c", script)

    def test_program_that_ignores_sigterm_is_killed(self):
        script = "trap '' TERM; echo ready; while :; do sleep 1; done"
        done = self.expect_exit(NOT_JUDGED, "wrap", "--timeout-scale", "0.1", "--for", "8s", "--",
                                "sh", "-c", script, out=["^ready", r"SIGKILL|by ctxconf"])
        self.assertGreater(done.seconds, 0.9, done)
        self.assertLess(done.seconds, 30, done)

    def test_background_processes_end_with_the_observation(self):
        script = "setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & wait' & echo away"
        self.expect_exit(NOT_JUDGED, "wrap", "--timeout-scale", "0.1", "--for", "5s", "--", "sh",
                         "-c", script, out="^away")
        self.assert_nothing_runs()

    def test_crash_is_a_failure(self):
        for name in ("SEGV", "ABRT", "KILL"):
            with self.subTest(name):
                self.expect_exit(FAILED, "wrap", "--out", "out", "--", "sh", "-c",
                                 f"{WRITER} --quiet --hold 150ms; kill -{name} $$",
                                 out=[f"killed by SIG{name}", f"(died of|crash.*) SIG{name}",
                                      "^exit 1: "])
                self.assertEqual(self.result()["exit"]["code"], FAILED)
                ElementTree.fromstring(self.read("out/junit.xml"))

    def test_crash_without_publication_is_a_failure(self):
        self.expect_exit(FAILED, "wrap", "--", "sh", "-c", "kill -SEGV $$",
                         out=["SIGSEGV", "no process published", "^exit 1: "])

    def test_crash_of_a_child_that_published(self):
        script = f"{WRITER} --hold 60s & sleep {0.3 * SLOW}; kill -SEGV $!; wait; exit 0"
        self.expect_exit(FAILED, "wrap", "--", "sh", "-c", script, out=["SIGSEGV", "^exit 1: "])

    def test_processes_without_end(self):
        bomb = ("import os,time\nfor i in range(9):\n try: os.fork()\n"
                " except OSError: pass\ntime.sleep(60)\n")
        for seconds in (1, 4, 16, 64):  # a busy machine starts fewer of them in the first second
            done = self.expect_exit(NOT_JUDGED, "wrap", "--for", f"{seconds}s", "--", PYTHON, "-c", bomb,
                                    out=["^note: the program still ran"],
                                    deadline_s=seconds + DEADLINE_S)
            self.assertLess(done.seconds, seconds + DEADLINE_S / 2, done)
            self.assert_nothing_runs()
            if "more processes ran" in done.unfolded():
                return
        self.fail(done)

    def test_runaway_is_a_failure(self):
        threads = ("import threading,time,sys\nthreading.stack_size(65536)\n"
                   "try:\n for i in range(4300):\n"
                   "  threading.Thread(target=time.sleep,args=(600,),daemon=True).start()\n"
                   "except RuntimeError:\n print('too few', flush=True)\n sys.exit(0)\n"
                   "time.sleep(600)\n")
        # Seconds alone, minutes on a busy machine: for each thread, two processes take turns.
        done = self.run_it("wrap", "--for", "400s", "--out", "out", "--", PYTHON, "-c", threads,
                           deadline_s=400 + DEADLINE_S)
        if "too few" in done.out:
            self.skipTest("a limit of this user stops a runaway first")
        self.assertEqual(done.code, FAILED, done)
        self.assertRegex(done.out, r"runaway: .* threads alive at once", done)
        ElementTree.fromstring(self.read("out/junit.xml"))

    def test_forks_that_follow_each_other(self):
        chain = ("import os,time\nend=time.time()+50\nwhile time.time()<end:\n"
                 " if os.fork(): os._exit(0)\n")
        done = self.expect_exit(NOT_JUDGED, "wrap", "--timeout-scale", "0.2", "--for", "4s", "--",
                                PYTHON, "-c", chain)
        self.assertLess(done.seconds, 40, done)
        self.assert_nothing_runs()

    def test_launcher_is_two_images(self):
        self.expect_exit(CLEAN, "wrap", "--out", "out", "--", TESTEE, "--good", "exec-self",
                         "--pause", "60", "--hold", "150", out=["^  image .*replaced by exec"])
        images = self.result()["images"]
        self.assertEqual([i["image"] for i in images], [0, 1], images)
        self.assertTrue(all(i["published"] for i in images), images)
        self.assertEqual(len({i["pid"] for i in images}), 1)
        for result in self.result()["results"]:
            if result["outcome"] == "pass":
                self.assertEqual(sorted(f["image"] for f in result["findings"]
                                        if f["outcome"] == "pass"), [0, 1], result)

    def test_launcher_whose_second_image_publishes_nothing(self):
        self.expect_exit(CLEAN, "wrap", "--", TESTEE, "--good", "launcher", "--pause", "60",
                         "--hold", "100", out=["replaced by exec; a reader sees",
                                               "published nothing"])

    def test_a_child_is_judged_by_itself(self):
        script = (f"{WRITER} --quiet --hold 400ms & "
                  f"{TESTEE} --bad pctx.header.signature --pause 20 --hold 200 & wait")
        self.expect_exit(FAILED, "wrap", "--out", "out", "--", "sh", "-c", script,
                         out="^FAIL +pctx.header.signature")
        findings = next(r for r in self.result()["results"]
                        if r["id"] == "pctx.header.signature")["findings"]
        self.assertEqual(sorted(f["outcome"] for f in findings), ["fail", "pass"], findings)

    def test_streams_pass_through(self):
        done = self.expect_exit(NOT_JUDGED, "wrap", "--", "sh", "-c", "echo to-stderr >&2; cat",
                                stdin=b"first\nlast\n", out=r"\Afirst\nlast\n",
                                err="^to-stderr$")
        self.assertNotIn("ctxconf:", done.err)

    def test_words_after_the_dashes_are_not_ours(self):
        self.expect_exit(NOT_JUDGED, "wrap", "--", "echo", "--only", "--", "@nothing", "-v",
                         out=r"\A--only -- @nothing -v\n")

    def test_reader_of_the_report_that_goes_away(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        child = subprocess.Popen([CTXCONF, "wrap", "--", WRITER, "--quiet", "--hold", "150ms"],
                                 env=self.env, cwd=self.dir, stdout=write_end,
                                 stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        os.close(write_end)
        self.children.append(child)
        _, err = child.communicate(timeout=DEADLINE_S)
        self.assertEqual(child.returncode, CLEAN, err)

    def start_observation(self, *options):
        child = subprocess.Popen([CTXCONF, "wrap", "--for", "60s", "--timeout-scale", "1",
                                  *options, "--", WRITER], env=self.env, cwd=self.dir, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.children.append(child)
        self.assertTrue(child.stdout.readline().startswith(b"published "))
        return child

    def test_interrupt_ends_the_program_and_reports(self):
        for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signo):
                # What it says comes after its naming call, and so after a snapshot.
                child = self.start_observation("--out", "out")
                child.send_signal(signo)
                out, err = child.communicate(timeout=DEADLINE_S)
                self.assertIn(b"interrupted", out, err)
                self.assertEqual(child.returncode, NOT_JUDGED, (out, err))
                self.assertIn(b"\nexit 4: the observation was interrupted\n", out)
                self.assertGreaterEqual(self.result()["totals"]["pass"], 20)
                self.assert_nothing_runs()
                self.expect_exit(NOT_JUDGED, "replay", "out/timeline.json",
                                 out="^exit 4: the observation was interrupted$")

    def test_a_program_cannot_end_its_observation_as_clean(self):
        script = f"{WRITER} --hold 60s & sleep 0.5; kill -TERM $PPID; wait"
        self.expect_exit(NOT_JUDGED, "wrap", "--", "sh", "-c", script,
                         out="^exit 4: the observation was interrupted$")

    def test_a_failure_before_the_interruption_counts(self):
        script = (f"{TESTEE} --bad pctx.header.version --hold 60000 & sleep 0.5; "
                  "kill -TERM $PPID; wait")
        self.expect_exit(FAILED, "wrap", "--", "sh", "-c", script, out="interrupted")

    def test_program_goes_when_ctxconf_is_killed(self):
        child = self.start_observation()
        child.kill()
        child.communicate(timeout=DEADLINE_S)
        self.assert_nothing_runs()

    def test_file_size_limit(self):
        limit = "--faults=RLIMIT_FSIZE=0"
        self.expect_exit(CLEAN, "wrap", limit, "--only", "pctx.publish.*", "--out", "out",
                         "--", WRITER, "--quiet", "--hold", "200ms")
        self.assertEqual(self.outcomes()["pctx.publish.survives-file-size-limit"], "pass")
        self.expect_exit(FAILED, "wrap", limit, "--strict", "--", TESTEE, "--quiet", "--bad",
                         "pctx.publish.survives-file-size-limit", "--pause", "20", "--hold", "100",
                         out=["^WARN +pctx.publish.survives-file-size-limit", "SIGXFSZ"])

    def test_a_broken_layout_is_shown_next_to_a_vector(self):
        for testee, name, vector, lines in (
                ("process_writer", "pctx.header.layout", "pctx/inline-one-page",
                 ["00000c  04 01 00 00                                      payload_size = 260"]),
                ("thread_writer", "tctx.record.byte-order", "rec/layout",
                 ["00001a  12 00                                            attrs-data-size = 18",
                  " found  00 12", "        ^^ ^^"]),
                ("process_writer", "pctx.header.payload-size", "pctx/inline-one-page",
                 ["00000c  .. .. .. ..                                      payload_size: u32 == "
                  "length of the encoded message",
                  " found  05 01 00 00", "        ^^ ^^ ^^ ^^"])):
            done = self.expect_exit(FAILED, "wrap", "--out", "out", "--only", name, "--",
                                    os.path.join(BIN, testee), "--quiet", "--bad", name)
            self.assertIn(f"\n  vector {vector}, field by field:\n", done.out)
            for line in lines:
                self.assertIn(f"\n         {line}\n", done.out)
            result = self.result()
            (finding,) = result["results"][0]["findings"]
            dump = finding["hexdumps"][0]
            self.assertEqual(dump["expected"]["vector"], vector)
            self.assert_marks_cover_differences(dump)

    def assert_marks_cover_differences(self, dump):
        want, have = (bytes.fromhex(d["bytes"]) for d in (dump["expected"], dump))
        spans = lambda key, d: {i for m in d[key] for i in range(m["offset"], m["offset"] + m["length"])}
        masked, marked = spans("masks", dump["expected"]), spans("marks", dump)
        differing = {i for i, (w, h) in enumerate(zip(want, have)) if w != h} - masked
        self.assertTrue(differing | masked & marked)
        self.assertLessEqual(differing, marked)

    def test_strict(self):
        command = [TESTEE, "--quiet", "--bad", "pctx.header.version-development", "--pause", "20",
                   "--hold", "150"]
        self.expect_exit(CLEAN, "wrap", "--", *command,
                         out=["^WARN +pctx.header.version-development", "1 warning"])
        self.expect_exit(FAILED, "wrap", "--strict", "--out", "out", "--", *command,
                         out="^exit 1: .*pctx.header.version-development")
        suites = ElementTree.fromstring(self.read("out/junit.xml"))
        self.assertEqual(suites.get("failures"), "1")

    def test_stores(self):
        timestamp = 4  # the bit of the timestamp's word
        for options, stores, lifetime in (([], 7, True), (["--watch", "lifetime"], 7, True),
                                          (["--watch", "publication"], 1, False),
                                          (["--level", "syscalls"], 0, False),
                                          (["--only", "pctx.header.*"], 0, False)):
            self.expect_exit(CLEAN, "wrap", "--out", "out", *options, "--", TESTEE, "--quiet",
                             "--good", "updates", "--hold", "0")
            timeline = json.loads(self.read("out/timeline.json"))
            host = {fact["name"]: fact["available"] for fact in timeline["host"]}
            image = timeline["processes"][0]["images"][-1]
            if stores and not host["watchpoints"]:
                self.assertIn("no watchpoints", image["stores_unseen"])
                continue
            # The compiler chooses how many stores the other fields need.
            seen = [s for s in image["stores"] if s["words"] == timestamp]
            self.assertEqual(len(seen), stores, options)
            self.assertEqual(timeline["watches_lifetime"], lifetime, options)
            self.assertEqual(bool(image["stores_unseen"]), not stores, options)

    def test_require_observable(self):
        self.expect_exit(NOT_JUDGED, "wrap", "-v", "--require-observable", "--", WRITER, "--hold",
                         "150ms", out=["^exit 4: .*had to be judged but could not be", "to see it: --faults",
                              "^required but not judged$"])
        self.expect_exit(CLEAN, "wrap", "--require-observable", "--only", "pctx.header.signature",
                         "--", WRITER, "--hold", "150ms", out="^1 passed, .* of 1 selected")

    def test_how_a_program_ends_under_denial_is_compared(self):
        requirement = "pctx.publish.survives-total-denial"
        self.expect_exit(CLEAN, "wrap", "--faults", "--require-observable", "--only", requirement, "--", WRITER,
                         "--hold", "100ms", deadline_s=300,
                         out=[f"^INFO +{requirement}", "it exited 1, but 0 when no call is denied"])

    def test_require_observable_takes_globs(self):
        wrap = ("--", WRITER, "--hold", "150ms")
        self.expect_exit(CLEAN, "wrap", "--require-observable=pctx.header.sig*",
                         "--require-observable=pctx.publish.discoverable", *wrap)
        self.expect_exit(NOT_JUDGED, "wrap", "--require-observable=pctx.header.sig*",
                         "--require-observable=pctx.payload.resource-matches-sdk", *wrap,
                         out="^exit 4: 1 requirement .*: pctx.payload.resource-matches-sdk$")
        self.expect_exit(NOT_JUDGED, "wrap", "--require-observable=pctx.update.*", "--only",
                         "pctx.header.*", *wrap, out="now    no requirement that matches it was selected")
        self.expect_exit(USAGE, "wrap", "--require-observable=no.such", *wrap,
                         err="no requirement matches no.such")

    def test_what_the_baseline_judged_is_judged(self):
        wrap = ("--", WRITER, "--hold", "150ms")
        self.expect_exit(CLEAN, "wrap", "--out", "out", *wrap)
        base = "out/result.json"
        # --out may be the directory of the baseline.
        self.expect_exit(CLEAN, "wrap", "--baseline", base, "--out", "out", *wrap)
        self.expect_exit(NOT_JUDGED, "wrap", "--baseline", base, "--level", "snapshot", "--out",
                         "less", *wrap, out=["^exit 4: .*had to be judged", "as pass",
                                             "now    not selected"])
        result = json.loads(self.read("less/result.json"))
        self.assertIn("judged in out/result.json, as pass", [f["why"] for f in result["floor"]])
        self.assertIn(b"ctxconf.floor", self.read("less/junit.xml"))
        self.assertIn(b'id="floor"', self.read("less/report.html"))
        self.assertIn(b"Required but not judged", self.read("less/summary.md"))
        self.expect_exit(NOT_JUDGED, "replay", "--baseline", base, "--skip", "pctx.header.version",
                         "out/timeline.json", out="pctx.header.version")
        self.expect_exit(CLEAN, "replay", "--baseline", base, "out/timeline.json")
        self.expect_exit(USAGE, "wrap", "--baseline", "out/timeline.json", *wrap, err="--baseline")
        self.expect_exit(USAGE, "wrap", "--baseline", "none.json", *wrap, err="--baseline")
        self.expect_exit(NOT_JUDGED, "elf", "--baseline", base, WRITER, out="not selected")

    def test_what_the_baseline_of_an_adapter_judged_is_judged(self):
        for command, adapter, some, others in (
                ("run", "adapter_cpp", "pctx.header.*", "pctx.header.s*"),
                ("reader", "reader.py", "pctx.reader.signature*", "pctx.reader.version*")):
            with self.subTest(command):
                program = ("--", os.path.join(BIN, adapter))
                base = command + "/result.json"
                self.expect_exit(CLEAN, command, "--only", some, "--out", command, *program)
                self.expect_exit(CLEAN, command, "--only", some, "--baseline", base, *program)
                self.expect_exit(NOT_JUDGED, command, "--only", others, "--baseline", base, *program,
                                 out=["^exit 4: .*had to be judged", f"judged in {base}, as pass"])
                self.expect_exit(USAGE, command, "--baseline", "none.json", *program, err="--baseline")

    def test_the_expectations_file_has_a_floor(self):
        wrap = ("--", WRITER, "--hold", "150ms")
        self.expect_exit(CLEAN, "wrap", "--out", "out", *wrap)
        self.expect_exit(CLEAN, "expect", "init", "known", "--floor", "--from", "out/result.json")
        self.assertIn(b"\njudged   pctx.header.signature\n", self.read("known"))
        self.expect_exit(CLEAN, "expect", "lint", "known")
        self.expect_exit(CLEAN, "wrap", "--expect", "known", *wrap)
        with open(os.path.join(self.dir, "known"), "a", encoding="utf-8") as file:
            file.write("judged pctx.payload.resource-matches-sdk\n")
        self.expect_exit(NOT_JUDGED, "wrap", "--expect", "known", *wrap,
                         out=["known, line [0-9]+: judged pctx.payload.resource-matches-sdk",
                              "^exit 4: 1 requirement "])
        self.expect_exit(CLEAN, "wrap", "--expect", "known", "--only", "pctx.header.*", *wrap)

    def test_selection(self):
        self.expect_exit(CLEAN, "wrap", "--only", "pctx.header.*", "--skip", "*.version*", "--out",
                         "out", "--", WRITER, "--hold", "150ms")
        requirements = self.outcomes()
        self.assertIn("pctx.header.signature", requirements)
        for requirement in requirements:
            self.assertTrue(requirement.startswith("pctx.header.") and ".version" not in requirement, requirement)


class UsageTest(Case):
    def test_bad_use(self):
        self.write("file", "")
        self.write("ok.expect", "# ctxconf-expect 1\n")
        for args, about in (
                ([], ["ctxconf --help"]),
                (["bogus"], ["ctxconf --help"]),
                (["wrap"], ["no command", "-- CMD"]),
                (["wrap", "--"], ["no command", "-- CMD"]),
                (["wrap", "true"], ["true", "put -- before the program"]),
                (["wrap", "true", "--version"], ["--version", "put -- before the program"]),
                (["wrap", "--bogus", "--", "true"], ["--bogus", "ctxconf wrap --help"]),
                (["wrap", "--watch", "never", "--", "true"], ["--watch", "publication"]),
                (["wrap", "--only", "pctx.nope", "--", "true"],
                 ["pctx.nope matches no", "ctxconf list"]),
                (["wrap", "--skip", "pctx.nope", "--", "true"],
                 ["pctx.nope matches no", "ctxconf list"]),
                (["wrap", "--skip", "*", "--", "true"], ["none is left", "left out by --skip"]),
                (["wrap", "--only", "tctx.reader.*", "--", "true"], ["none is left"]),
                (["wrap", "--level", "bogus", "--", "true"], ["bogus", "static, snapshot"]),
                (["wrap", "--for", "soon", "--", "true"], ["soon is not a duration", "500ms"]),
                (["wrap", "--for", "-1s", "--", "true"], ["."]),
                (["wrap", "--timeout-scale", "0", "--", "true"], ["timeout-scale"]),
                (["wrap", "--timeout-scale", "nan", "--", "true"], ["timeout-scale"]),
                (["wrap", "--color", "red", "--", "true"], ["red"]),
                (["wrap", "--spec", "4719=1999-01-01", "--", "true"], ["1999-01-01"]),
                (["wrap", "--spec", "9999=2026-04-07", "--", "true"], ["9999"]),
                (["wrap", "--expect-resource", "key", "--", "true"], ["key is not KEY=VALUE"]),
                (["wrap", "--expect-trace-id", "4bf9", "--", "true"],
                 ["4bf9 is not a trace id", "32 hexadecimal digits"]),
                (["wrap", "--expect-trace-id", "0" * 32, "--", "true"], ["is not a trace id"]),
                (["replay", "--expect-span-id", "b7ad6b716920333x", "file"], ["is not a span id"]),
                (["wrap", "--expect", "nowhere", "--", "true"],
                 ["nowhere: No such file", "expect init"]),
                (["wrap", "--out", "file", "--", "true"], ["--out", "file", "directory"]),
                (["wrap", "--out", "/proc/nowhere", "--", "true"], ["/proc/nowhere", "directory"]),
                (["wrap", "--inject", "open:error=EPERM", "--", "true"],
                 ["cannot inject into call open", "memfd_create, ftruncate, mmap", "CALL.*error=ERRNO"]),
                (["wrap", "--inject", "", "--", "true"], ["names no call", "value=frozen"]),
                (["wrap", "--inject", "memfd_create:error=EPREM", "--", "true"],
                 ["unknown errno EPREM"]),
                (["wrap", "--inject", "mmap:error=EPERM:value=1", "--", "true"],
                 ["error= or value="]),
                (["wrap", "--inject", "mmap:error=EPERM:when=0", "--", "true"],
                 ["when=0 is not a count"]),
                (["wrap", "--inject", "mmap:error=EPERM:junk", "--", "true"], ["junk is not one of"]),
                (["wrap", "--inject", "mmap", "--", "true"], ["error=ERRNO or value=N"]),
                (["attach", "--inject", "mmap:error=EPERM", "1"], ["--inject"]),
                (["attach"], ["--all"]),
                (["attach", "--all", "1"], ["--all"]),
                (["attach", "--faults", "1"], ["--faults"]),
                (["attach", "--", "true"], ["only run, wrap"]),
                (["attach", "self"], ["self is not a process id"]),
                (["attach", "12x"], ["12x is not a process id"]),
                (["attach", "0"], ["0 is not a process id"]),
                (["attach", "-1"], ["-1"]),
                (["attach", "99999999999999999999"], ["99999999999999999999"]),
                (["replay"], ["TIMELINE", "ctxconf replay --help"]),
                (["list", "--bogus"], ["--bogus"]),
                (["list", "--spec", "4719=1999-01-01"], ["1999-01-01"]),
                (["explain"], ["ID"]),
                (["explain", "pctx.fork.dontfrok"],
                 ["pctx.fork.dontfrok", "did you mean pctx.fork.dontfork", "ctxconf list"]),
                (["doctor", "now"], ["now"]),
                (["report", "nowhere"], ["nowhere: No such file"]),
                (["report", "file"], ["file"]),
                (["expect", "bogus", "ok.expect"], ["bogus"]),
                (["expect", "init", "new.expect"], ["--from RESULT.json"]),
                (["expect", "init", "new.expect", "--from", "nowhere"], ["nowhere: No such file"]),
                (["expect", "lint", "nowhere"], ["nowhere: No such file"]),
                (["@nowhere"], ["nowhere: No such file"])):
            with self.subTest(args=args):
                self.complains(USAGE, *args, about=about)
        self.assertFalse(os.path.exists(self.path("new.expect")))

    def test_output_directory_without_permission(self):
        if os.geteuid() == 0:
            self.skipTest("root may write everywhere")
        os.mkdir(self.path("closed"), 0o500)
        self.complains(USAGE, "wrap", "--out", "closed", "--", "true", about=["closed"])

    def test_help_and_version(self):
        self.expect_exit(CLEAN, "--version", out=r"\Actxconf \d+\.\d+\.\d+ \(\S+\)\n\Z")
        top = self.expect_exit(CLEAN, "--help", out=["Exit codes", "attach", r"wrap \[OPTIONS\] -- CMD \[ARGS\.{3}\]$",
                                                     "4 nothing", "ctxconf COMMAND --help"])
        commands = re.findall(r"^  ([\w-]+) {2,}", top.out.split("Subcommands:")[1], re.M)
        self.assertEqual(set(commands), {*self.TAKES, *self.EXIT_CODES, "attach"})
        for command in commands:
            with self.subTest(command):
                program = f" -- {self.TAKES[command]} [ARGS...]" if command in self.TAKES else ""
                done = self.expect_exit(CLEAN, command, "--help",
                                        out=f"^Usage: ctxconf {command} .*{re.escape(program)}$")
                self.assertEqual("-- " in done.out.split("Usage:")[1].split("\n")[0], command in self.TAKES, done)
                self.assertEqual(done.out.count("Exit codes:"), 1, done)
                codes = " ".join(done.out.split("Exit codes:")[1].split())
                for text in self.EXIT_CODES.get(command, ("1 a requirement is broken", "5 the expectations")):
                    self.assertIn(text, codes)
                self.assertTrue(codes.endswith("70 a bug in ctxconf."), codes)
                # Commands that judge nothing do not end with 1 for a requirement.
                if command not in ("wrap", "run", "reader", "attach", "replay", "puppet"):
                    self.assertNotIn("a requirement is broken", codes)

    # What follows `--`.
    TAKES = {"wrap": "CMD", "run": "ADAPTER", "reader": "ADAPTER", "adapter-lint": "ADAPTER", "repl": "ADAPTER"}
    # Of commands that have other exit codes than wrap.
    EXIT_CODES = {
        "adapter-lint": ("1 a finding", "2 usage, or the adapter cannot be started", "3 /proc is not mounted"),
        "repl": ("0 the conversation ended", "3 the adapter cannot be started or did not answer"),
        "replay": ("1 a requirement is broken", "2 usage, or TIMELINE cannot be read", "3 output could not"),
        "puppet": ("1 a requirement is broken", "2 usage, or the script is wrong"),
        "elf": ("0 it will be found", "1 a finding", "3 output could not be written", "4 --require-observable"),
        "decode": ("0 the bytes are valid", "1 they are not", "2 usage", "3 stdout"),
        "doctor": ("0 the list was printed, whatever this host allows, 2 usage", "3 stdout"),
        "list": ("0 the list was printed, 2 usage, 3 stdout",),
        "explain": ("0 the requirement was printed, 2 usage, or an unknown ID, 3 stdout",),
        "expect": ("0 clean, 2 usage", "3 a file or stdout", "5 lint found a stale line"),
        "drift": ("1 some changed, moved or vanished", "3 stdout"),
        "report": ("0 the report was printed, whatever it says, 2 usage", "3 stdout"),
        "golden": ("1 verify found something", "3 a file or stdout"),
        "selftest": ("0 every verdict is right", "1 a verdict is wrong", "3 /proc is not mounted"),
    }

    def test_help_says_what_is_true_of_the_command(self):
        attach = self.expect_exit(CLEAN, "attach", "--help", out=[
            r"\Ajudge processes that already run; it stops threads for microseconds, to read their contexts$"])
        self.assertNotIn("single-steps", attach.out)
        for command in ("wrap", "replay", "reader", "puppet"):
            self.assertNotIn("single-steps", self.expect_exit(CLEAN, command, "--help", out="--level").out)
        self.expect_exit(CLEAN, "run", "--help", out="run is faster: it single-steps only where")
        watch = self.expect_exit(CLEAN, "wrap", "--help").out.split("--watch")[1].split("--on-fail")[0]
        self.assertRegex(watch, re.compile(r"^ +publication: .*^ +lifetime \(default\): .*^ +threads: ", re.M | re.S))

    def test_options_from_a_file(self):
        self.write("options", "wrap --only pctx.header.* # which\n\n  --quiet\n--out\nout\n")
        self.expect_exit(CLEAN, "@options", "--", WRITER, "--quiet", "--hold", "150ms")
        self.assertTrue(all(requirement.startswith("pctx.header.") for requirement in self.outcomes()))


class FaultsTest(Case):
    def cells(self):
        return {f["step"] + ("/" + f["fault"] if f["fault"] else ""): f
                for f in self.result()["faults"]}

    def test_a_writer_that_copes_is_clean_under_every_fault(self):
        done = self.expect_exit(CLEAN, "wrap", "--out", "out", "--faults", "--", WRITER, "--quiet",
                                "--hold", "60ms", "--update-every", "10", "--updates", "3",
                                out=["^fault matrix: 4[0-9] of 5[0-9] faults occurred"])
        cells = self.cells()
        # Without the privilege that it needs.
        moved = cells["time-namespace"]
        self.assertTrue(moved["outcome"] == "pass" or os.geteuid() != 0 or moved["text"], done)
        # It says by its exit code that it could not publish.
        denied = cells["memfd_create+madvise+prctl/EPERM"]
        self.assertEqual(denied["outcome"], "info", done)
        self.assertEqual({f["outcome"] for f in cells.values() if f not in (moved, denied)},
                         {"pass", "na"}, done)
        missing = {name for name, f in cells.items() if f["outcome"] == "na"}
        self.assertLessEqual(missing, {f"update:mremap/{e}" for e in ("EPERM", "EINVAL", "ENOMEM")}
                             | {"mmap(MAP_ANONYMOUS)/ENOMEM"}, done)
        # The last one shows that a memfd was published at all.
        for requirement in ("memfd-retry", "fallback-anon", "name-failure-ignored", "failure-madvise",
                            "failure-mmap", "failure-ftruncate", "failure-other-steps"):
            self.assertEqual(self.outcomes()["pctx.publish." + requirement], "pass", requirement)
        for requirement in ("pctx.update.timestamp-later", "pctx.header.timestamp-clock",
                            "pctx.publish.survives-file-size-limit"):
            self.assertEqual(self.outcomes()[requirement], "pass", requirement)
        outcomes = self.outcomes()
        self.expect_exit(CLEAN, "replay", "--out", "again", "out/timeline.json")
        self.assertEqual(self.outcomes("again"), outcomes)
        self.assertEqual(self.result("again")["faults"], list(cells.values()))

    def test_the_matrix_shows_under_which_fault_a_writer_breaks(self):
        denied = "memfd_create+madvise+prctl/EPERM"
        for requirement, asked, broken in (
                ("pctx.publish.failure-madvise", "m*",
                 {"madvise/" + e for e in ("EPERM", "ENOSYS", "EINVAL", "ENOMEM")} | {denied}),
                ("pctx.publish.failure-other-steps", "clock*",
                 {"clock_gettime/" + e for e in ("EPERM", "ENOSYS", "EINVAL")}),
                ("pctx.update.timestamp-later", "clock/*",
                 {"clock/" + how for how in ("frozen", "back", "zero")}),
                ("pctx.publish.survives-total-denial", "*+*", {denied})):
            # The OTEP leaves open whether a context without MADV_DONTFORK may be published.
            word = "WARN" if requirement.endswith("madvise") else "FAIL"
            done = self.expect_exit(FAILED, "wrap", "--strict", "--out", "out", f"--faults={asked}",
                                    "--", TESTEE, "--quiet", "--bad", requirement, "--pause", "10",
                                    "--hold", "50", out=[f"{word} +{requirement}"])
            self.assertEqual({name for name, f in self.cells().items() if requirement in f["requirements"]},
                             broken, done)
            again = re.search(f"{word} +{requirement}.*?  again +(.*?)(?=  offline)", done.unfolded(), re.S)
            again = shlex.split(again.group(1))
            self.assertIn("--inject", again)
            self.assertFalse([word for word in again if word.startswith("--faults")], again)
            repeated = self.run_it(*again[1:], program=again[0])
            self.assertEqual(repeated.code, FAILED, repeated)
            self.assertIn("of 1 selected", repeated.out, repeated)

    def test_a_death_is_of_its_fault(self):
        done = self.expect_exit(FAILED, "wrap", "--out", "out", "--faults=memfd_create/E*", "--",
                                TESTEE, "--quiet", "--bad", "pctx.publish.survives-total-denial",
                                "--pause", "10", "--hold", "50")
        cells = self.cells()
        self.assertEqual({f["outcome"] for f in cells.values()}, {"crash"}, done)
        self.assertEqual(cells["memfd_create/EPERM"]["text"], "the program was killed by SIGABRT")
        self.assertIn("terminate called", cells["memfd_create/EPERM"]["output"])
        self.assertRegex(done.out, r"(?m)^  CRASH memfd_create \(EPERM, EACCES, .*SIGABRT")

    def test_a_program_that_hangs_or_prints_under_a_fault(self):
        script = ("import ctypes, sys, time\n"
                  "libc = ctypes.CDLL(None)\n"
                  "fd = libc.memfd_create(b'OTEL_CTX', 3)\n"
                  "if fd < 0:\n"
                  "    print('HANGS' * 5000, flush=True)\n"
                  "    print(sys.stdin.read() + 'waits', flush=True)\n"
                  "    time.sleep(60)\n")
        done = self.expect_exit(FAILED, "wrap", "--out", "out", "--faults=memfd_create/EPERM",
                                "--timeout-scale", "0.4", "--", PYTHON, "-c", script)
        cell = self.cells()["memfd_create/EPERM"]
        self.assertEqual(cell["outcome"], "timeout", done)
        self.assertRegex(cell["text"], r"it still ran after \S+ s .* without a fault it ended")
        self.assertTrue(cell["output"].endswith("HANGS\nwaits\n"), cell)
        self.assertLess(len(cell["output"]), 3000)
        self.assertRegex(done.out, r"(?m)^    \| waits$")
        self.assert_nothing_runs()

    def test_what_cannot_be_asked(self):
        for arguments, about in ((["--faults=nothing"], ["no fault matches"]),
                                 (["--faults", "--hide-vdso"], ["fault of its own"]),
                                 (["--faults", "--inject", "mmap:error=ENOMEM"], ["of its own"])):
            self.complains(USAGE, "wrap", *arguments, "--", "true", about=about)
        self.expect_exit(FAILED, "wrap", "--faults", "--", "sh", "-c", "kill -SEGV $$",
                         out=["fault matrix was not run"])

    def test_interrupted(self):
        # The first run is without a fault.
        child = self.start(CTXCONF, "wrap", "--faults", "--", "sh", "-c",
                           f"echo >> starts; exec {WRITER} --quiet --hold 400ms", stderr=subprocess.PIPE)
        self.wait_until(lambda: os.path.exists(self.path("starts")) and len(self.read("starts")) > 1,
                        "the matrix runs")
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=DEADLINE_S)
        self.assertIn(b"the fault matrix was interrupted", out, err)
        self.assert_nothing_runs()


class InjectTest(Case):
    def test_failure_names_the_fault_and_how_to_repeat_it(self):
        spec = "ftruncate:error=ENOSPC"
        done = self.expect_exit(
            FAILED, "wrap", "--out", "out", "--inject", spec, "--", TESTEE, "--bad",
            "pctx.publish.failure-ftruncate", out=["injected: ftruncate:error=ENOSPC, 1 time"])
        self.assertEqual(self.result()["run"]["injections"], [spec + ", 1 time"])
        self.assertRegex(done.out, "FAIL +pctx.publish.failure-ftruncate")
        again = shlex.split(re.search("^  again +(.*)", done.unfolded(), re.M).group(1))
        self.assertIn(spec, again)
        repeated = self.run_it(*again[1:], program=again[0])
        self.assertEqual(repeated.code, FAILED, repeated)
        self.assertIn("of 1 selected", repeated.out, repeated)
        offline = self.run_it("replay", "out/timeline.json")
        self.assertEqual(offline.code, FAILED, offline)
        self.assertIn("injected: " + spec, offline.out, offline)

    def test_fault_that_never_happens_is_said(self):
        done = self.run_it("wrap", "--out", "out", "--only", "pctx.publish.failure-*", "--inject",
                           "mremap:error=ENOMEM", "--", WRITER, "--hold", "150ms")
        self.assertEqual(done.code, NOT_JUDGED, done)
        self.assertIn("mremap:error=ENOMEM, 0 times", done.out, done)
        self.assertIn("never applied", done.unfolded())

    def test_requirements_that_the_fault_may_explain_are_not_judged(self):
        self.expect_exit(CLEAN, "wrap", "--out", "out", "--inject",
                         "memfd_create(MFD_NOEXEC_SEAL):error=EINVAL:when=1", "--", WRITER,
                         "--hold", "150ms")
        outcomes = self.outcomes()
        self.assertEqual(outcomes["pctx.publish.memfd-retry"], "pass")
        self.assertEqual(outcomes["pctx.header.signature"], "pass")
        self.assertEqual(outcomes["pctx.publish.memfd-flags"], "unobservable")

    def test_clock_of_a_program_is_seen(self):
        programs = [(WRITER, "--hold", "150ms"), (TESTEE, "--good", "default", "--hold", "150")]
        if os.path.exists(TESTEE_32) and runs(TESTEE_32, "--good", "default", "--hold", "0"):
            programs.append((TESTEE_32, "--good", "default", "--hold", "150"))
        for program in programs:
            with self.subTest(program):
                self.expect_exit(CLEAN, "wrap", "--out", "out", "--only",
                                 "pctx.header.timestamp-clock", "--hide-vdso", "--", *program)
                self.assertEqual(self.outcomes(), {"pctx.header.timestamp-clock": "pass"})


class ThreadsTest(Case):
    RECORD = r"; \d+: trace [0-9a-f]{32}, span [0-9a-f]{16}"

    def assert_no_thread_requirement_failed(self, done):
        self.assertNotIn("FAIL", done.out, done)
        self.assertNotIn("WARN", done.out, done)
        outcomes = self.outcomes()
        for requirement in ("tctx.record.layout", "tctx.attrs.key-in-map", "tctx.tls.dynsym-exported",
                            "tctx.refdata.schema-version-value"):
            self.assertEqual(outcomes[requirement], "pass", requirement)

    def test_reference_writer_with_threads_is_all_green(self):
        for style in ("pointer", "in-place"):
            with self.subTest(style):
                done = self.expect_exit(
                    CLEAN, "wrap", "--out", "out", "--", WRITER, "--threads", "3", "--thread-style",
                    style, "--thread-attribute", "http.route=/cart", "--rotate", "1ms", "--hold",
                    "1s")
                self.assert_no_thread_requirement_failed(done)
                self.assertRegex(done.unfolded(), "3 threads with a record" + self.RECORD +
                                 ", http.route=/cart")

    def test_what_is_seen_is_what_the_program_says(self):
        done = self.expect_exit(CLEAN, "wrap", "--out", "out", "--", WRITER, "--threads", "2",
                                "--hold", "1s")
        said = {int(tid): (slot, trace, span) for tid, slot, trace, span in re.findall(
            r"thread (\d+) slot (\S+) trace (\w+) span (\w+)", done.out)}
        self.assertEqual(len(said), 2, done)
        (process,) = json.loads(self.read("out/timeline.json"))["processes"]
        seen = {}
        for sample in process["images"][0]["threads"]:
            if "record" in sample:
                data = sample["record"]["bytes"]
                seen[sample["tid"]] = (sample["slot"], data[:32], data[32:48])
        self.assertEqual(seen, said)

    @unittest.skipUnless(has_ptrace_of_strangers(), "yama lets only root look at other processes")
    def test_attach_sees_threads_that_run_and_that_sleep(self):
        child = self.start_writer(WRITER, "--threads", "2", "--thread-attribute", "a=b",
                                  "--rotate", "1ms", "--hold", "20s")
        done = self.expect_exit(CLEAN, "attach", "--out", "out", str(child.pid))
        self.assert_no_thread_requirement_failed(done)
        self.assertRegex(done.unfolded(), "2 threads with a record" + self.RECORD)
        self.assertIsNone(child.poll())

    def test_launcher_without_threads_hides_nothing(self):
        done = self.expect_exit(
            CLEAN, "wrap", "--out", "out", "--", "sh", "-c",
            f"'{WRITER}' --quiet --hold 150ms; exec '{WRITER}' --threads 1 "
            "--thread-attribute a=b --quiet --hold 1s")
        self.assert_no_thread_requirement_failed(done)

    def test_failure_shows_the_record(self):
        command = [os.path.join(BIN, "thread_writer"), "--quiet", "--bad", "tctx.record.aligned"]
        done = self.expect_exit(FAILED, "wrap", "--out", "out", "--", *command,
                                out=["^FAIL +tctx.record.aligned", "^  bytes +record at 0x",
                                     "^  saw +.*address"])
        self.assertIn("1 of ", done.out)
        again = self.expect_exit(FAILED, "replay", "out/timeline.json")
        for text in (done.out, again.out):
            self.assertEqual(text.count("\nFAIL"), 1, done)

    def test_program_without_the_variable(self):
        done = self.expect_exit(NOT_JUDGED, "wrap", "--spec", "4947=2026-07-17", "--", "true")
        self.assertRegex(done.unfolded(), "no thread context: neither the symbol")


class ReportsTest(Case):
    def run_mutant(self, *options, code=FAILED):
        return self.expect_exit(
            code, "wrap", "--out", "out", *options, "--", "sh", "-c",
            f"exec '{TESTEE}' --quiet --bad pctx.header.signature --pause 20 --hold 150")

    def test_files(self):
        self.run_mutant()
        self.assertEqual(sorted(os.listdir(self.path("out"))),
                         ["junit.xml", "report.html", "result.json", "results.sarif", "summary.md",
                          "timeline.json", "traces"])
        result = self.result()
        self.assertEqual(result["exit"]["code"], FAILED)
        for name in ("kernel", "arch", "libc", "facts"):
            self.assertTrue(result["host"][name], name)
        self.assertEqual(result["totals"]["fail"], 1)
        self.assertEqual(sum(v for k, v in result["totals"].items()
                             if k not in ("selected", "expected_failures")),
                         result["totals"]["selected"])
        requirement = next(r for r in result["results"] if r["id"] == "pctx.header.signature")
        self.assertEqual((requirement["outcome"], requirement["strength"]), ("fail", "MUST"))
        finding = requirement["findings"][0]
        self.assertTrue(finding["saw"])
        if next(fact["available"] for fact in result["host"]["facts"] if fact["name"] == "watchpoints"):
            self.assertRegex(finding["at"], r"publish.*, thread \d+$", "who stored the signature")
            self.assertIn("publish", finding["code"][0]["function"])
        suites = ElementTree.fromstring(self.read("out/junit.xml"))
        self.assertEqual((suites.get("tests"), suites.get("failures")),
                         (str(result["totals"]["selected"]), "1"))
        (case,) = [c for c in suites.iter("testcase") if c.find("failure") is not None]
        self.assertEqual(case.get("name"), "pctx.header.signature")
        self.assertTrue(case.get("classname").startswith("otep4719."))
        self.assertIn("OTEL-CTX", case.find("failure").text)
        sarif = check_sarif("results.sarif", json.loads(self.read("out/results.sarif")))
        self.assertEqual([r["ruleId"] for r in sarif["results"]], ["pctx.header.signature"])
        self.assertEqual(json.loads(self.read("out/timeline.json"))["format"], "ctxconf-timeline")
        page = page_reader.check_page("report.html", self.read("out/report.html").decode())
        self.assertEqual(len(page.rows()), result["totals"]["selected"])
        self.assertEqual([row["id"] for row in page.rows().values() if "open" in row],
                         ["pctx.header.signature"])
        self.assertRegex(self.read("out/summary.md").decode(),
                         r"(?m)^## ctxconf failed\n[^|]*\|[^|]*\|[^|]*\|[^|]*\|\n.*\n"
                         r"\| \*\*FAIL\*\* \| `pctx.header.signature` \| .*OTEL-CTX")

    def test_nothing_green_is_left_of_an_earlier_run(self):
        reports = ["junit.xml", "report.html", "result.json", "results.sarif", "summary.md"]
        os.mkdir(self.path("out"))
        recording = self.write("half.json", "{")
        for code, words in ((UNREACHABLE, ["attach", "2147483647"]), (USAGE, ["attach", "x"]),
                            (USAGE, ["elf", "nowhere"]), (USAGE, ["elf", "--only", "x", CTXCONF]),
                            (USAGE, ["replay", recording]), (USAGE, ["replay", "nowhere"]),
                            (USAGE, ["wrap", "--only", "nothing.*", "--", "true"]),
                            (UNREACHABLE, ["wrap", "--", "./nowhere"]),
                            (USAGE, ["run", "--seed", "x", "--", "true"]),
                            (USAGE, ["attach"]), (USAGE, ["attach", "--bogus", "1"]),
                            (USAGE, ["attach", "--for", "banana", "1"]),
                            (USAGE, ["attach", "--color", "purple", "1"]),
                            (USAGE, ["attach", "--timeout-scale", "nan", "1"]),
                            (USAGE, ["attach", "--", "true"]), (USAGE, ["attach", "@nowhere"]),
                            (USAGE, ["attach", "--out", "other", "1"]),
                            (USAGE, ["attach", "1", "--for"]),
                            (USAGE, ["elf"]), (USAGE, ["elf", "--bogus", CTXCONF]),
                            (USAGE, ["replay"]), (USAGE, ["replay", "--bogus", recording]),
                            (USAGE, ["puppet"]), (USAGE, ["wrap", "--for", "soon", "--", "true"]),
                            (USAGE, ["wrap", "--watch", "never", "--", "true"]),
                            (USAGE, ["wrap", "true"]), (USAGE, ["wrap", "--"]),
                            (USAGE, ["run", "--race", "nan", "--", "true"]),
                            (USAGE, ["run", "--jobs", "x", "--", "true"]),
                            (USAGE, ["run", "true"]), (USAGE, ["reader", "true"]),
                            (USAGE, ["reader", "--generate", "0", "--", "true"])):
            with self.subTest(words):
                for name in reports:
                    self.write(os.path.join("out", name), "green")
                self.complains(code, words[0], "--out", "out", *words[1:], about=[])
                self.assertEqual([n for n in os.listdir(self.path("out")) if n in reports], [])

    def test_usage_error_keeps_the_baseline(self):
        os.mkdir(self.path("out"))
        baseline = self.write("out/result.json", "{}")
        self.expect_exit(USAGE, "elf", "--baseline", "out/result.json", "--out", "out", "--bogus")
        self.assertTrue(os.path.exists(baseline))

    def test_usage_error_removes_only_the_reports_of_out(self):
        os.mkdir(self.path("out"))
        mine = self.write("mine", "mine")
        self.write("options", "--bogus --out\nout # which\n")
        self.write("end", "--bogus --\n--out out\n")
        reports = {"junit.xml", "report.html", "result.json", "results.sarif", "summary.md"}
        others = {"timeline.json", "events.jsonl", "mine.xml"}
        for words, removes in ((["attach", "--bogus", "--out=out", "1"], True),
                               (["attach", "@options", "1"], True),
                               (["@nowhere", "attach", "@options", "1"], True),
                               (["attach", "--only", "x", "--bogus", "1", "--out", "out"], True),
                               (["attach", "--only", "--out", "out", "--bogus"], False),
                               (["attach", "@end"], False),
                               (["attach", "--out", "@nowhere", "out"], False),
                               (["wrap", "--bogus", "--", "true", "--out", "out"], False),
                               (["list", "--out", "out"], False),
                               (["bogus", "--out", "out"], False)):
            with self.subTest(words):
                for name in (reports | others) - {"result.json"}:
                    self.write(os.path.join("out", name), "green")
                if not os.path.lexists(self.path("out/result.json")):
                    os.symlink(mine, self.path("out/result.json"))
                self.complains(USAGE, *words, about=[])
                self.assertEqual(set(os.listdir(self.path("out"))),
                                 others if removes else reports | others)
                self.assertEqual(self.read("mine"), b"mine")
        self.expect_exit(CLEAN, "attach", "--out", "out", "--help")
        self.assertIn("result.json", os.listdir(self.path("out")))

    def test_what_lies_in_the_output_directory(self):
        os.makedirs(self.path("out/elsewhere"))
        mine = self.write("mine", "mine")
        names = ("junit.xml", "report.html", "result.json", "results.sarif", "summary.md",
                 "timeline.json", "events.jsonl")
        adapter = os.path.join(BIN, "adapter_cpp")
        only = ("--only", "pctx.publish.timestamp-last")
        for make in (os.mkfifo, lambda path: os.symlink(mine, path)):
            for name in names:
                make(self.path(f"out/{name}"))
            # Names that temporary files had in earlier versions.
            script = ('for name in "$0"/*.*; do mkfifo "$name.$$.tmp"; done; exec "$@"')
            self.expect_exit(CLEAN, "-c", script, "out", CTXCONF, "run", "--out", "out", *only,
                             "--", adapter, program="sh")
            self.assertEqual(self.read("mine"), b"mine")
            for name in names:
                self.assertTrue(os.path.isfile(self.path(f"out/{name}")), name)
                self.assertFalse(os.path.islink(self.path(f"out/{name}")), name)
                os.unlink(self.path(f"out/{name}"))
            for name in os.listdir(self.path("out")):
                if name.endswith(".tmp"):
                    self.assertRegex(name, r"\.\d+\.tmp$", "left behind")
                    os.unlink(self.path(f"out/{name}"))
        self.write("out/elsewhere/pctx.header.version.trace", "mine")
        os.symlink("elsewhere", self.path("out/traces"))
        self.complains(USAGE, "wrap", "--out", "out", "--", "true", about=["out/traces: Not a dir"])
        self.assertEqual(self.read("out/elsewhere/pctx.header.version.trace"), b"mine")

    def test_the_output_directory_is_held_open(self):
        self.expect_exit(FAILED, "wrap", "--out", "out", "--", "sh", "-c",
                         f"mv out moved; mkdir new; ln -s new out; exec {TESTEE} --quiet --bad "
                         "pctx.header.version --hold 200")
        self.assertEqual(os.listdir(self.path("new")), [])
        self.assertIn("result.json", os.listdir(self.path("moved")))
        self.assertEqual(os.listdir(self.path("moved/traces")), ["pctx.header.version.trace"])

    def test_reports_that_cannot_be_written(self):
        self.expect_exit(CLEAN, "wrap", "--out", "whole", "--", WRITER, "--hold", "150ms")
        self.expect_exit(CLEAN, "elf", "--out", "audit", os.path.join(BIN, "adapter_cpp"))
        def half(folder):
            return os.path.getsize(self.path(f"{folder}/result.json")) // 2
        for words, some in ((["wrap", "--out", "out", "--", WRITER, "--quiet", "--hold", "150ms"],
                             half("whole")),
                            (["replay", "--out", "out", "whole/timeline.json"], half("whole")),
                            (["elf", "--out", "out", os.path.join(BIN, "adapter_cpp")],
                             half("audit"))):
            for limit in (0, some):
                with self.subTest(words=words, limit=limit):
                    def set_limit():
                        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
                    done = self.run_limited(words, set_limit)
                    self.assertEqual(done.returncode, UNREACHABLE, done)
                    self.assertRegex(done.stdout, r"exit 3: .*\bout/.*: File too large")
                    self.assertNotIn("exit 0", done.stdout)
                    self.assertEqual(
                        [n for n in os.listdir(self.path("out"))
                         if n not in ("timeline.json", "traces")], [])

    @unittest.skipUnless(can_unshare("-m"),
                         "needs root and unshare(1): makes namespaces")
    def test_full_disk(self):
        adapter = os.path.join(BIN, "adapter_cpp")
        script = ('mkdir -p "$0" && mount -t tmpfs -o size=8k none "$0" && head -c "$1" /dev/zero '
                  '> "$0/other"; shift; "$@"; code=$?; ls -A "$0" >&2; exit $code')
        for words in (["wrap", "--out", "out", "--", WRITER, "--quiet", "--hold", "100ms"],
                      ["run", "--out", "out", "--only", "pctx.publish.timestamp-last", "--", adapter]):
            for taken in ("0", "8192"):
                with self.subTest(words=words, taken=taken):
                    done = self.expect_exit(
                        UNREACHABLE, "-m", "sh", "-c", script, "out", taken, CTXCONF, *words,
                        program="unshare",
                        out="^exit 3: --out is incomplete: .*: No space left on device$")
                    self.assertNotIn("exit 0", done.out)
                    self.assertNotIn("trace saved", done.out)
                    self.assertNotRegex(done.err, "junit|result|summary|report|tmp")

    def run_limited(self, words, limit):
        return subprocess.run([CTXCONF, *words], cwd=self.dir, env=self.env, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.PIPE, timeout=DEADLINE_S, preexec_fn=limit)

    def test_progress_that_cannot_be_written(self):
        adapter = os.path.join(BIN, "adapter_cpp")
        run = ["run", "--only", "pctx.header.signature"]
        for words in (["wrap", "--", WRITER, "--quiet", "--hold", "100ms"], [*run, "--", adapter],
                      [*run, "--jobs", "2", "--repeat", "2", "--", adapter],
                      ["reader", "--only", "pctx.reader.name-memfd", "--", os.path.join(BIN, "reader.py")]):
            for kind in ("full", "pipe", "closed"):
                with self.subTest(words=words, kind=kind):
                    shutil.rmtree(self.path("out"), ignore_errors=True)
                    ours, theirs = os.pipe()
                    os.close(ours)
                    with open("/dev/full", "wb") as full:
                        done = subprocess.run(
                            [CTXCONF, words[0], "--out", "out", *words[1:]], cwd=self.dir, env=self.env, check=False,
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=DEADLINE_S,
                            stderr=theirs if kind == "pipe" else full,
                            preexec_fn=(lambda: os.close(2)) if kind == "closed" else None)
                    os.close(theirs)
                    self.assertEqual(done.returncode, CLEAN)
                    self.assertTrue(os.path.isfile(self.path("out/result.json")))

    def test_a_terminal_that_goes_away(self):
        for words in (["wrap", "--out", "out", "--", WRITER, "--quiet", "--hold", "100s"],
                      ["run", "--out", "out", "--", os.path.join(BIN, "adapter_cpp")],
                      ["run", "--jobs", "2", "--out", "out", "--", os.path.join(BIN, "adapter_cpp")],
                      ["reader", "--out", "out", "--", os.path.join(BIN, "reader.py")]):
            with self.subTest(words=words):
                shutil.rmtree(self.path("out"), ignore_errors=True)
                child, terminal = pty.fork()
                if child == 0:
                    os.chdir(self.dir)
                    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                    os.execve(CTXCONF, [CTXCONF, *words], {**os.environ, **self.env})
                os.read(terminal, 1)  # it shows how far it is
                os.close(terminal)
                _, status = os.waitpid(child, 0)
                self.assertEqual(os.waitstatus_to_exitcode(status), NOT_JUDGED)
                self.assertTrue(os.path.isfile(self.path("out/result.json")))

    def test_output_that_cannot_be_written(self):
        adapter = os.path.join(BIN, "adapter_cpp")
        for words in (["wrap", "--out", "wrap", "--", WRITER, "--quiet", "--hold", "100ms"],
                      ["elf", "--out", "elf", os.path.join(BIN, "slot_pie")], ["list"],
                      ["selftest", "--only", "bad_header_version"], ["repl", "--", adapter],
                      ["--version"], ["wrap", "--help"]):
            with self.subTest(words=words):
                with open("/dev/full", "wb") as full:
                    done = self.print_to(full, words)
                self.assertEqual(done.returncode, UNREACHABLE, done)
                self.assertEqual(done.stderr.count(b"cannot write to stdout: No space left"), 1, done)
                if words[0] in ("wrap", "elf") and "--out" in words:
                    self.assertEqual(self.result(words[0])["exit"], {
                        "code": UNREACHABLE, "reason": "stdout could not be written"})

    def print_to(self, output, words):
        return subprocess.run([CTXCONF, *words], cwd=self.dir, env=self.env, check=False,
                              stdin=subprocess.DEVNULL, stdout=output, timeout=DEADLINE_S,
                              stderr=subprocess.PIPE)

    def test_output_that_nobody_reads(self):
        for words in (["list", "--json"], ["--version"],
                      ["repl", "--", os.path.join(BIN, "adapter_cpp")]):
            with self.subTest(words=words):
                ours, theirs = os.pipe()
                os.close(ours)
                with os.fdopen(theirs, "wb") as pipe:
                    done = self.print_to(pipe, words)
                self.assertEqual((done.returncode, done.stderr), (CLEAN, b""), done)
        # More than one buffer: it ends in the middle of its work, so it cannot say how that ends.
        ours, theirs = os.pipe()
        os.close(ours)
        with os.fdopen(theirs, "wb") as pipe:
            done = self.print_to(pipe, ["selftest", "--generate", "30", "--seed", "1", "-v"])
        self.assertEqual(done.returncode, UNREACHABLE, done)
        self.assertRegex(done.stderr, b"\\Actxconf: cannot write to stdout: .*\n\\Z")

    def test_expectations_that_cannot_be_written(self):
        self.run_mutant()
        self.write("known", "# ctxconf-expect 1\n")
        for action, name in (("init", "new"), ("update", "known")):
            with self.subTest(action):
                done = self.run_limited(
                    ["expect", action, name, "--from", "out/result.json"],
                    lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
                self.assertEqual(done.returncode, UNREACHABLE, done)
                self.assertIn(f"{name}: File too large", done.stderr)
        self.assertFalse(os.path.exists(self.path("new")))
        self.assertEqual(self.read("known"), b"# ctxconf-expect 1\n")

    def test_traces(self):
        done = self.run_mutant()
        trace = "out/traces/pctx.header.signature.trace"
        self.assertRegex(done.out, f"\n  offline .*ctxconf'? replay --only pctx.header.signature {trace}\n")
        requirement = next(r for r in self.result()["results"] if r["id"] == "pctx.header.signature")
        self.assertEqual(requirement["trace"], trace)
        # It does not have the shell before the exec.
        self.assertEqual(len(json.loads(self.read("out/timeline.json"))["processes"][0]["images"]), 2)
        (process,) = json.loads(self.read(trace))["processes"]
        self.assertEqual(len(process["images"]), 1)
        again = self.expect_exit(FAILED, "replay", trace, out="^FAIL +pctx.header.signature")
        self.assertEqual(again.out.count("\nFAIL"), 1, again)
        # The next run removes our files of an earlier run.
        for name in ("pctx.header.version.trace", "mine.trace", "pctx.header.version"):
            with open(self.path(f"out/traces/{name}"), "w", encoding="ascii"):
                pass
        os.symlink("/dev/null", self.path("out/traces/pctx.header.layout.trace"))
        self.expect_exit(NOT_JUDGED, "wrap", "--out", "out", "--", "true")
        self.assertEqual(sorted(os.listdir(self.path("out/traces"))),
                         ["mine.trace", "pctx.header.layout.trace", "pctx.header.version"])

    @unittest.skipUnless(jsonschema, "no jsonschema module")
    def test_result_keeps_its_schema(self):
        path = os.path.join(SOURCE, "conformance", "report", "result.schema.json")
        with open(path, encoding="utf-8") as file:
            validator = jsonschema.Draft202012Validator(json.load(file))
        self.run_mutant()
        validator.validate(self.result())
        self.expect_exit(NOT_JUDGED, "wrap", "--out", "silent", "--", "true")
        validator.validate(self.result("silent"))
        self.expect_exit(FAILED, "wrap", "--out", "crash", "--", "sh", "-c", "kill -SEGV $$")
        validator.validate(self.result("crash"))

    def test_failure_tells_what_to_do(self):
        done = self.run_mutant()
        for line in ("^  rule   .*OTEL_CTX", "^  saw    .*OTEL-CTX", "^  bytes ", "want 5f",
                     "^  why    ", "^  again  ", "^  offline "):
            self.assertRegex(done.out, re.compile(line, re.M), done)
        again = shlex.split(re.search("^  again +(.*)", done.out, re.M).group(1))
        offline = shlex.split(re.search("^  offline +(.*)", done.out, re.M).group(1))
        # `again` comes first: it writes the recording that `offline` reads.
        for words in (again, offline):
            with self.subTest(words):
                repeated = self.run_it(*words[1:], program=words[0])
                self.assertEqual(repeated.code, FAILED, repeated)
                self.assertRegex(repeated.out, re.compile("^FAIL +pctx.header.signature", re.M))
                self.assertIn("of 1 selected", repeated.out, repeated)

    def test_report_again_from_its_result(self):
        first = self.run_mutant()
        again = self.expect_exit(CLEAN, "report", "out/result.json")
        tail = first.out[first.out.index("FAIL"):]
        self.assertEqual(again.out[again.out.index("FAIL"):], tail)
        junit = self.expect_exit(CLEAN, "report", "--junit", "out/result.json")
        suites = ElementTree.fromstring(junit.out)
        self.assertEqual(suites.get("failures"), "1")
        for option, name in (("--html", "report.html"), ("--markdown", "summary.md"),
                             ("--sarif", "results.sarif"), ("--json", "result.json")):
            made = self.expect_exit(CLEAN, "report", option, "out/result.json")
            self.assertEqual(made.out, self.read("out/" + name).decode(), option)
        self.complains(USAGE, "report", "--html", "--junit", "out/result.json", about=["--html"])

    def test_redacted_reports_do_not_quote_the_program(self):
        secret = "s3cr3t"
        self.expect_exit(FAILED, "wrap", "--out", "out", "--expect-resource",
                         f"service.name={secret}", "--", WRITER, "--hold", "150ms",
                         "--resource", f"host.name={secret}", "--resource", "service.name=other")
        self.assertIn(secret, self.read("out/result.json").decode())
        redacted = self.expect_exit(CLEAN, "report", "--redact", "--json", "out/result.json").out
        self.write("redacted.json", redacted)
        # All formats can be made from a redacted result, with the same hashes.
        program = json.loads(redacted)["images"][0]["executable"]
        self.assertRegex(program, "^redacted-[0-9a-f]{12}$")
        for option in ("--console", "--html", "--junit", "--markdown", "--json"):
            text = self.expect_exit(CLEAN, "report", option, "redacted.json").out
            self.assertIn(program, text, option)
            for words in (text, self.expect_exit(CLEAN, "report", "--redact", option,
                                                 "out/result.json").out):
                for word in (secret, secret.encode().hex(), os.path.basename(WRITER)):
                    self.assertNotIn(word, words, option)
        self.assertIn("pctx.payload.resource-matches-sdk", redacted)
        self.assertIn("service.name=redacted-", redacted)

    def test_report_refuses_what_is_no_result(self):
        self.run_mutant()
        whole = self.read("out/result.json").decode()
        self.write("half.json", whole[:len(whole) // 2])
        self.write("newer.json", re.sub('"version": 1', '"version": 99', whole))
        self.write("list.json", "[]")
        for name, about in (("half.json", "."), ("newer.json", "99"), ("list.json", "."),
                            ("out/timeline.json", "ctxconf-timeline")):
            with self.subTest(name):
                self.complains(USAGE, "report", name, about=[name, about])
                self.complains(USAGE, "expect", "init", "x", "--from", name, about=[name, about])

    def test_replay_has_the_verdicts_of_the_run(self):
        for kind, name in (("--bad", "pctx.payload.utf8"), ("--bad", "pctx.publish.singleton"),
                           ("--bad", "pctx.fork.dontfork"),
                           ("--bad", "pctx.payload.no-dictionary-references"),
                           ("--bad", "pctx.update.timestamp-distinct"), ("--good", "value-kinds"),
                           ("--good", "exec-self"), ("--good", "publish-nothing")):
            with self.subTest(name):
                run = self.run_it("wrap", "--out", "out", "--", TESTEE, "--quiet", kind, name,
                                  "--pause", "120", "--hold", "150")
                if kind == "--bad":
                    self.assertIn(self.outcomes()[name], ("fail", "warn"), run)
                replay = self.run_it("replay", "--out", "again", "out/timeline.json")
                self.assertEqual(replay.code, run.code, replay)
                self.assertEqual(self.outcomes("again"), self.outcomes())
                self.assertIn("replay", replay.out.splitlines()[0])

    def test_replay_refuses_what_is_no_recording(self):
        self.expect_exit(CLEAN, "wrap", "--out", "out", "--", WRITER, "--hold", "150ms")
        whole = self.read("out/timeline.json").decode()
        value = json.loads(whole)
        self.write("half.json", whole[:len(whole) // 2])
        self.write("newer.json", json.dumps(value | {"version": 99}))
        self.write("garbage", "\x00\x01garbage")
        self.write("deep.json", "[" * 200000)
        self.write("types.json", json.dumps(value | {"processes": 7}))
        for name, about in (("half.json", "not JSON"), ("newer.json", "version 99"),
                            ("garbage", "not JSON"), ("deep.json", "."), ("types.json", "."),
                            ("out/result.json", "not a recording"), ("nowhere", "No such file"),
                            (".", "directory")):
            with self.subTest(name):
                self.complains(USAGE, "replay", name, about=["replay: ", about])

    def test_replay_of_what_would_fill_the_memory(self):
        head = '{"format": "ctxconf-timeline", "version": %s, "a": '
        self.expect_exit(NOT_JUDGED, "wrap", "--out", "out", "--", "true")
        version = json.loads(self.read("out/timeline.json"))["version"]
        for name, text, about in (
                ("brackets", "[" * (24 << 20), "nests more than 64 deep"),
                ("objects", '{"a":' * (4 << 20), "nests more than 64 deep"),
                ("behind", head % version + "[" * (24 << 20), "nests more than 64 deep"),
                ("other", head % 3 + "[" * (24 << 20), "version 3 of the format"),
                ("text", head % '"12"' + "[" * (24 << 20), "version a text of the format"),
                ("values", head % version + "[" + "[]," * (17 << 20) + "0]}", "more than 16777216"),
                ("large", "[" * ((256 << 20) + 1), "File too large")):
            with self.subTest(name):
                done = self.complains(USAGE, "replay", self.write(name, text), about=[about])
                if not SANITISED:
                    self.assertLess(done.peak, 1 << 20, "kB")
                os.unlink(self.path(name))

    def test_replay_of_lines_that_would_fill_the_memory(self):
        """They are JSON in a text of the recording."""
        self.expect_exit(NOT_JUDGED, "wrap", "--out", "out", "--", "true")
        whole = json.loads(self.read("out/timeline.json"))
        session = {"group": "g", "number": 1, "repeat": 0, "pid": 0, "image": 0, "hello": "{}",
                   "checks": [{"name": "c", "requirements": [], "ending": "done", "text": "",
                               "details": []}],
                   "operations": [], "ending": "", "noise_lines": 0, "noise": "",
                   "left_behind": [], "faults": []}
        operation = {"check": 0, "request": "{}", "reply": "{}", "sent_ns": 0, "answered_ns": 0,
                     "after": []}
        flat = '{"a":[0' + ",0" * (32 << 20) + "]}"
        line = '{"a":[0' + ",0" * ((1 << 20) - 8) + "]}"
        too_long = " is longer than a line of the testee protocol"
        for name, changed, about in (
                ("hello", {"hello": flat}, "/sessions/0/hello" + too_long),
                ("reply", {"operations": [operation | {"reply": flat}]},
                 "/sessions/0/operations/0/reply" + too_long),
                ("request", {"operations": [operation | {"request": flat}]},
                 "/sessions/0/operations/0/request" + too_long),
                ("lines", {"operations": [operation | {"reply": line}] * 20},
                 "/sessions have too many values")):
            with self.subTest(name):
                self.write(name, json.dumps(whole | {"sessions": [session | changed]}))
                done = self.complains(USAGE, "replay", name, about=[about])
                if not SANITISED:
                    self.assertLess(done.peak, 1 << 20, "kB")
                os.unlink(self.path(name))
        self.write("deep", json.dumps(whole | {"sessions": [session | {"hello": "[" * (1 << 20)}]}))
        self.expect_exit(NOT_JUDGED, "replay", "deep")

    def test_replay_of_a_changed_recording(self):
        """Every number in a recording is judged or refused."""
        self.expect_exit(CLEAN, "wrap", "--out", "out", "--", WRITER, "--hold", "150ms")
        value = json.loads(self.read("out/timeline.json"))

        def places(node, path=()):
            if isinstance(node, dict):
                for key, inner in node.items():
                    yield from places(inner, path + (key,))
            elif isinstance(node, list):
                for index, inner in enumerate(node[:2]):
                    yield from places(inner, path + (index,))
            elif isinstance(node, (int, str)) and not isinstance(node, bool):
                yield path

        seen = set()
        for path in places(value["processes"]):
            kind = tuple(p for p in path if isinstance(p, str))
            if kind in seen:
                continue
            seen.add(kind)
            changed = json.loads(json.dumps(value))
            node = changed["processes"]
            for step in path[:-1]:
                node = node[step]
            for new in ((2**64 - 1, -1) if isinstance(node[path[-1]], int) else ("zz", "")):
                node[path[-1]] = new
                self.write("changed.json", json.dumps(changed))
                done = self.run_it("replay", "changed.json", "--out", "again")
                self.assertIn(done.code, range(6), (path, new, str(done)))
        self.assertGreater(len(seen), 15)


class ExpectationsTest(Case):
    BAD = [TESTEE, "--quiet", "--bad", "pctx.header.signature", "--pause", "20", "--hold", "150"]
    GOOD = [WRITER, "--quiet", "--hold", "150ms"]

    def test_life_of_a_file(self):
        self.expect_exit(FAILED, "wrap", "--out", "out", "--", *self.BAD)
        self.expect_exit(CLEAN, "expect", "init", "known", "--from", "out/result.json",
                         out="wrote known; now name an issue")
        text = self.read("known").decode()
        self.assertRegex(text, r"\A# ctxconf-expect 1\n")
        self.assertRegex(text, r"(?m)^fail +pctx\.header\.signature .*TODO")
        self.complains(USAGE, "expect", "init", "known", "--from", "out/result.json",
                       about=["known exists", "expect update"])
        self.complains(USAGE, "expect", "lint", "known", about=["known:[0-9]+:", "issue"])
        self.complains(USAGE, "wrap", "--expect", "known", "--", *self.BAD, about=["known:[0-9]+:"])
        text = re.sub(r"issue=\S+", "issue=https://bugs.example/1", text)
        text = re.sub(r"until=\S+", "until=2099-01-01", text)
        self.write("known", text)
        self.expect_exit(CLEAN, "expect", "lint", "known", out="in order")
        self.expect_exit(CLEAN, "wrap", "--expect", "known", "--out", "out", "--", *self.BAD,
                         out=["^exit 0: .*1 failed as expected", "https://bugs.example/1"])
        suites = ElementTree.fromstring(self.read("out/junit.xml"))
        self.assertEqual(suites.get("failures"), "0")
        self.expect_exit(STALE, "wrap", "--expect", "known", "--out", "good", "--", *self.GOOD,
                         out=["^exit 5: .*pctx.header.signature", "prune"])
        self.expect_exit(CLEAN, "expect", "prune", "known", "--from", "good/result.json",
                         out="0 lines added, 1 removed")
        self.assertNotIn(b"pctx.header.signature", self.read("known"))
        self.expect_exit(CLEAN, "wrap", "--expect", "known", "--", *self.GOOD)
        self.expect_exit(CLEAN, "expect", "update", "known", "--from", "out/result.json",
                         out="1 lines? added, 0 removed")
        self.assertIn(b"pctx.header.signature", self.read("known"))

    def test_lines(self):
        requirement = "pctx.header.signature"
        due = "issue=https://bugs.example/1 until=2099-01-01"
        for text, code, about in (
                (f"fail {requirement} {due}", CLEAN, "failed as expected"),
                (f'fail {requirement} {due} saw="something else"', FAILED, 'listed is "something'),
                (f"fail {requirement} issue=https://bugs.example/1 until=2001-01-01", STALE, "2001-01-01"),
                (f"fail {requirement} until=2099-01-01", USAGE, "issue"),
                (f"fail {requirement} {due}\nfail {requirement} {due}", USAGE, "line|twice|duplicate"),
                (f"fail pctx.* {due}", USAGE, "glob|\\*"),
                (f"crash {requirement} {due}", FAILED, requirement),
                (f"bogus {requirement} {due}", USAGE, "bogus"),
                (f"fail {requirement} {due} sow=x", USAGE, "sow")):
            with self.subTest(text):
                self.write("known", "# ctxconf-expect 1\n" + text + "\n")
                done = self.run_it("wrap", "--expect", "known", "--", *self.BAD)
                self.assertEqual(done.code, code, done)
                self.assertRegex(done.unfolded(), about, done)
        self.write("known", f"# ctxconf-expect 1\nfail pctx.header.signatrue {due}\n")
        self.expect_exit(STALE, "wrap", "--expect", "known", "--", *self.GOOD,
                         out="did you mean\\s+pctx.header.signature")
        self.write("known", f"fail {requirement} {due}\n")
        self.complains(USAGE, "wrap", "--expect", "known", "--", *self.BAD,
                       about=["ctxconf-expect 1"])


@unittest.skipUnless(has_ptrace_of_strangers(), "yama lets only root look at other processes")
class AttachTest(Case):
    def test_running_writer(self):
        writer = self.start_writer(WRITER, "--resource", "service.name=shop", "--hold", "60s")
        done = self.expect_exit(
            CLEAN, "attach", "--for", "400ms", "--out", "out", str(writer.pid),
            out=["attach, level snapshot", r"service\.name=shop", "^exit 0: "])
        self.assertGreaterEqual(self.result()["totals"]["pass"], 25, done)
        self.assertIsNone(writer.poll())

    def test_broken_writer(self):
        writer = self.start_writer(TESTEE, "--bad", "pctx.header.signature", "--pause", "20",
                                   "--hold", "60000")
        self.expect_exit(FAILED, "attach", "--for", "200ms", str(writer.pid),
                         out=["^FAIL +pctx.header.signature", "^  again  .*ctxconf attach"])

    def test_several(self):
        writers = [self.start_writer(), self.start_writer()]
        self.expect_exit(CLEAN, "attach", "--for", "200ms", "--out", "out",
                         *(str(w.pid) for w in writers))
        self.assertEqual({i["pid"] for i in self.result()["images"]}, {w.pid for w in writers})

    @unittest.skipUnless(can_unshare("-mpf"),
                         "needs root and unshare(1): makes namespaces")
    def test_all_where_no_other_program_is(self):
        script = ('mkfifo ready; "$1" --hold 60s >ready & read line <ready; '
                  '"$1" --hold 60s >ready & read line <ready; shift; "$@"')
        done = self.expect_exit(
            CLEAN, "-mpf", "--mount-proc", "--kill-child", "sh", "-c", script, "sh", WRITER,
            CTXCONF, "attach", "--all", "--for", "200ms", "--out", "out", program="unshare",
            out=[r"^note: \d processes examined, 2 with a mapping named OTEL_CTX$", "^exit 0: "])
        self.assertEqual(len(self.result()["images"]), 2, done)

    def test_all(self):
        writers = {self.start_writer().pid, self.start_writer().pid}
        # Other programs of this machine may publish too, badly or too much to be judged.
        done = self.run_it("attach", "--all", "--for", "200ms", "--out", "out")
        self.assertIn(done.code, (CLEAN, FAILED, NOT_JUDGED), done)
        self.assertRegex(done.out, r"\d+ processes examined, \d+ with a mapping", done)
        images = {i["pid"]: i for i in self.result()["images"]}
        self.assertLessEqual(writers, images.keys(), done)
        for result in self.result()["results"]:
            for finding in result["findings"]:
                if finding["pid"] in writers:
                    self.assertIn(finding["outcome"], ("pass", "na", "unobservable"), result)

    def test_program_that_publishes_nothing(self):
        child = self.start("sleep", "60")
        self.expect_exit(NOT_JUDGED, "attach", "--for", "200ms", str(child.pid),
                         out=["^no process published a context", "^exit 4: "])

    def test_one_of_several_that_publishes_nothing(self):
        writer, silent = self.start_writer(), self.start("sleep", "60")
        about = f"^exit 4: process {silent.pid}: neither a context nor otel_thread_ctx_v1 was seen$"
        self.expect_exit(NOT_JUDGED, "attach", "--for", "200ms", "--out", "out", str(writer.pid),
                         str(silent.pid), out=about)
        self.expect_exit(NOT_JUDGED, "replay", "out/timeline.json", out=about)
        broken = self.start_writer(TESTEE, "--bad", "pctx.header.signature", "--pause", "20",
                                   "--hold", "60000")
        self.expect_exit(FAILED, "attach", "--for", "200ms", str(broken.pid), str(silent.pid))
        loaded = self.start(PYTHON, "-c", LOADED_SLOT, os.path.join(BIN, "slot_general_dynamic.so"))
        self.assertEqual(loaded.stdout.readline(), b"loaded\n")
        self.expect_exit(CLEAN, "attach", "--for", "200ms", str(writer.pid), str(loaded.pid))

    def test_no_such_process(self):
        child = subprocess.Popen(["true"])
        child.wait()
        self.complains(UNREACHABLE, "attach", str(child.pid),
                       about=["cannot attach", "no such process"])
        self.complains(UNREACHABLE, "attach", "2147483647", about=["no such process"])

    def test_zombie(self):
        child = self.start("true")
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        done = self.run_it("attach", "--for", "200ms", str(child.pid))
        self.assertIn(done.code, (UNREACHABLE, NOT_JUDGED), done)

    def test_process_that_ends_meanwhile(self):
        for hold_ms in (500 * SLOW, 5000 * SLOW):
            writer = self.start_writer(WRITER, "--hold", f"{hold_ms}ms")
            done = self.run_it("attach", "--for", f"{2 * hold_ms}ms", str(writer.pid))
            if done.code not in (UNREACHABLE, NOT_JUDGED):
                break
            # ctxconf got a processor too late: once more, with a longer life
        self.assertEqual(done.code, CLEAN, done)
        self.assertIn("ended while it was observed", done.out)

    def test_process_that_is_killed_meanwhile(self):
        writer = self.start_writer()
        ctxconf = self.start(CTXCONF, "attach", "--for", "700ms", str(writer.pid))
        # It reads the memory of others in a thread that another one watches.
        self.wait_until(lambda: len(os.listdir(f"/proc/{ctxconf.pid}/task")) > 1, "it observes")
        writer.kill()
        writer.wait()
        out, _ = ctxconf.communicate(timeout=DEADLINE_S)
        self.assertIn(ctxconf.returncode, (CLEAN, UNREACHABLE), out)

    @unittest.skipUnless(os.geteuid() == 0, "needs root: starts a program of another user")
    def test_process_of_another_user(self):
        os.chmod(self.dir, 0o755)
        if not may_nobody_run(CTXCONF):
            self.skipTest(f"another user may not run {CTXCONF}")
        writer = self.start_writer()
        done = self.expect_exit(UNREACHABLE, "attach", "--for", "200ms", str(writer.pid),
                                preexec_fn=become_nobody)
        self.assertRegex(done.out + done.err, "as root|CAP_SYS_PTRACE", done)
        own = self.start_writer(preexec_fn=become_nobody)
        if os.path.exists("/proc/sys/kernel/yama/ptrace_scope"):
            return
        self.expect_exit(CLEAN, "attach", "--for", "200ms", str(own.pid),
                         preexec_fn=become_nobody)
        done = self.expect_exit(CLEAN, "attach", "--all", "--for", "200ms", "--only",
                                "pctx.publish.discoverable", preexec_fn=become_nobody,
                                out="processes could not be examined")

    @unittest.skipUnless(can_unshare("-m"),
                         "needs root and unshare(1): makes namespaces")
    def test_without_proc(self):
        def expect(code, *words, **kwargs):
            return self.expect_exit(code, "-m", "sh", "-c",
                                    'mount -t tmpfs none /proc && exec "$@"', "sh", CTXCONF, *words,
                                    program="unshare", **kwargs)

        adapter = os.path.join(BIN, "adapter_cpp")
        script = self.write("script.jsonl", '{"ctxconf-script":1}\n{"op":"exit","code":0}\n')
        for words in (["wrap", "--", "true"], ["run", "--", "true"], ["reader", "--", "true"],
                      ["adapter-lint", "--", adapter], ["repl", "--", adapter], ["attach", "1"],
                      ["attach", "--all"], ["puppet", script], ["selftest"],
                      ["selftest", "--generate", "1", "--seed", "1"]):
            with self.subTest(words):
                done = expect(UNREACHABLE, *words, err=[
                    f"\\Actxconf: {words[0]} needs /proc, which is not mounted here$",
                    "^ +mount -t proc proc /proc$"])
                self.assertEqual(done.out, "", done)
                self.assert_nothing_runs()
        expect(CLEAN, "doctor", out=["^no +proc +/proc is not mounted here$",
                                     "^ +to get it: mount -t proc proc /proc$",
                                     "^ctxconf wrap +does not work here: needs /proc$",
                                     "^ctxconf attach +does not work here: needs /proc$"])
        # Nothing else of the host is needed.
        plain = self.expect_exit(CLEAN, "elf", adapter)
        self.assertEqual(expect(CLEAN, "elf", adapter).out, plain.out)
        expect(USAGE, "elf", "nowhere", err="nowhere: No such file")
        expect(CLEAN, "reader", "--show=list")
        folder = os.path.join(SOURCE, "golden")
        self.assertEqual(expect(CLEAN, "golden", "list", "--dir", folder).out,
                         self.expect_exit(CLEAN, "golden", "list", "--dir", folder).out)
        expect(USAGE, "golden", "list",
               err=["golden: without /proc the folder golden/ next to this program is not found$",
                    "^ +--dir DIR names it$"])

    @unittest.skipUnless(os.path.exists(TESTEE_32) and runs(TESTEE_32, "--list"),
                         "no 32-bit programs here")
    def test_32_bit_program(self):
        writer = self.start_writer(TESTEE_32, "--good", "default", "--pause", "20", "--hold",
                                   "60000")
        self.expect_exit(CLEAN, "attach", "--for", "300ms", "--out", "out", str(writer.pid))
        self.assertGreaterEqual(self.result()["totals"]["pass"], 25)
        self.assertEqual(self.outcomes()["pctx.header.wide-fields-on-32-bit"], "pass")
        self.expect_exit(CLEAN, "wrap", "--out", "wrapped", "--", TESTEE_32, "--good", "default",
                         "--pause", "20", "--hold", "200")
        self.assertGreaterEqual(self.result("wrapped")["totals"]["pass"], 25)

    @unittest.skipUnless(can_unshare("-mpf"),
                         "needs root and unshare(1): makes namespaces")
    def test_process_in_other_namespaces(self):
        outer = self.start_writer("unshare", "-mpf", "--mount-proc", "--kill-child", WRITER,
                                  "--hold", "60s")
        (pid,) = map(str, children(outer.pid))
        self.expect_exit(CLEAN, "attach", "--for", "300ms", "--out", "out", pid, out="^exit 0: ")
        self.assertGreaterEqual(self.result()["totals"]["pass"], 25)
        self.expect_exit(CLEAN, "wrap", "--out", "wrapped", "--", "unshare", "-mpf",
                         "--mount-proc", WRITER, "--hold", "200ms", out="^exit 0: ")
        self.assertGreaterEqual(self.result("wrapped")["totals"]["pass"], 25)


class HostileTest(Case):
    def assert_harmless(self, text, what):
        """No control character reaches a terminal, and no text reverses its direction."""
        for character in text:
            code = ord(character)
            if code >= 0xD800 and code <= 0xDFFF:
                self.fail(f"{what}: a byte that is no UTF-8")
            if (code < 0x20 and character != "\n") or 0x7F <= code <= 0x9F or \
                    0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069:
                at = text.index(character)
                self.fail(f"{what}: {character!r} in {text[max(0, at - 80):at + 80]!r}")

    def assert_bounded(self, done):
        self.assertLess(done.cpu_seconds, 10 * SLOW, done)
        if not SANITISED:  # shadow memory would count
            self.assertLess(done.peak, 512 * 1024, done)

    def wrap_ill(self, spec, *arguments, options=()):
        self.write("ill.py", ILL_WRITER)
        return self.run_it("wrap", "--out", "out", "--for", "5s", "-vv", *options, "--", PYTHON,
                           "ill.py", json.dumps(spec), *arguments)

    def start_ill(self, spec, *arguments):
        """It has published and continues."""
        self.write("ill.py", ILL_WRITER)
        child = self.start(PYTHON, "ill.py", json.dumps(spec), *arguments)
        deadline = time.monotonic() + DEADLINE_S
        published = False
        while not published:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
            with open(f"/proc/{child.pid}/maps", encoding="utf-8", errors="replace") as file:
                published = "OTEL_CTX" in file.read()
        return child

    def assert_reports_harmless(self, done):
        self.assert_harmless(done.out + done.err, "console")
        for args in (["report", "out/result.json"], ["decode", "out/timeline.json"],
                     ["replay", "-vv", "out/timeline.json"]):
            again = self.run_it(*args)
            self.assert_harmless(again.out + again.err, args[0])
        page_reader.check_page("report.html", self.read("out/report.html").decode())
        for name in ("junit.xml", "report.html", "result.json", "results.sarif", "summary.md",
                     "timeline.json"):
            raw = self.read("out/" + name)
            self.assert_harmless(raw.decode(), name)
            if name in ("junit.xml", "result.json", "results.sarif"):
                self.assertNotRegex(raw, b"</script>|<b>", name)
        check_sarif("results.sarif", json.loads(self.read("out/results.sarif")))
        self.assertNotIn(b"]]>", self.read("out/junit.xml"))
        ElementTree.fromstring(self.read("out/junit.xml"))

    def test_thousands_of_contexts(self):
        """A look examines so many of them; the others are counted."""
        examined = 16
        contexts = 1000 if SANITISED else 5000
        script = """
import os, sys
sys.path.insert(0, sys.argv[1])
import ctypes_writer
contexts = [ctypes_writer.ProcessContext() for i in range(int(sys.argv[2]))]
for context in contexts:
    context.publish({"service.name": "many"})
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
"""
        words = (PYTHON, "-c", script, BIN, str(contexts))
        # On a busy machine each of its thousands of stops waits for a processor.
        done = self.expect_exit(FAILED, "wrap", "--out", "wrapped", "--", *words, deadline_s=400,
                                out=["^FAIL +pctx.publish.singleton", "the program itself: exited 0"])
        self.assertLess(done.cpu_seconds, 60 * SLOW, done)
        self.assertNotIn("was ended", done.out, done)
        program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self.dir, env=self.env)
        self.addCleanup(lambda: (program.kill(), program.communicate()))
        self.assertEqual(program.stdout.readline(), b"ready\n")
        self.expect_exit(FAILED, "attach", "--for", "300ms", "--out", "attached", str(program.pid),
                         out="^FAIL +pctx.publish.singleton")
        for out in ("wrapped", "attached"):
            with self.subTest(out):
                image = json.loads(self.read(out + "/timeline.json"))["processes"][0]["images"][-1]
                self.assertEqual(max(len(s["candidates"]) for s in image["snapshots"]), examined)
                self.assertEqual(image["unexamined"], contexts - examined)

    def test_memory_that_a_filter_refuses(self):
        """As in a container whose filter forbids process_vm_readv and process_vm_writev."""
        command = ("wrap", "--out", "out", "--", WRITER, "--hold", "1s")
        self.expect_exit(CLEAN, *command)
        plain = self.outcomes()
        done = self.run_it(*command, preexec_fn=lambda: refuse(PROCESS_VM_READV, PROCESS_VM_WRITEV))
        self.assertEqual(done.code, CLEAN, done)
        self.assertIn("memory is read through /proc/PID/mem", done.out)
        self.assertEqual(self.outcomes(), plain)
        writer = self.start_writer()
        self.expect_exit(CLEAN, "attach", "--for", "100ms", str(writer.pid),
                         preexec_fn=lambda: refuse(PROCESS_VM_READV))
        # Neither way works.
        done = self.expect_exit(UNREACHABLE, *command,
                                preexec_fn=lambda: refuse(PROCESS_VM_READV, PREAD64))
        self.assertIn("needs to read the memory of what it starts", done.err)
        self.assertIn("a seccomp filter may refuse it", done.err)
        for words in (["run", "--", os.path.join(BIN, "adapter_cpp")],
                      ["reader", "--", os.path.join(BIN, "reader.py")]):
            with self.subTest(words[0]):
                done = self.expect_exit(UNREACHABLE, *words, err="a seccomp filter may refuse it",
                                        preexec_fn=lambda: refuse(PROCESS_VM_READV, PREAD64))
                self.assertIn(f"{words[0]} needs to read the memory of what it starts", done.err)
                self.assertEqual(done.out, "")
        # With --all, other programs of this machine may end meanwhile, or be traced by others.
        for which, codes in ((str(writer.pid), (UNREACHABLE,)), ("--all", (UNREACHABLE, NOT_JUDGED))):
            with self.subTest(which):
                done = self.run_it("attach", which, "--for", "100ms",
                                   preexec_fn=lambda: refuse(PROCESS_VM_READV, PREAD64))
                self.assertIn(done.code, codes, done)
                self.assertRegex(done.out, rf"image +{writer.pid} .*\n +memory cannot be read")
                self.assertRegex(done.out, r"exit [34]: ")

    @unittest.skipUnless(can_unshare("-mpf"),
                         "needs root and unshare(1): makes namespaces")
    def test_memory_that_does_not_answer_where_no_other_program_is(self):
        script = """
"$1" withheld & withheld=$!
until grep -q OTEL_CTX /proc/$withheld/maps; do kill -0 $withheld || exit 77; sleep 0.01; done
mkfifo ready; "$2" --hold 60s >ready & read line <ready
shift 2; exec "$@"
"""
        done = self.run_it(
            "-mpf", "--mount-proc", "--kill-child", "sh", "-c", script, "sh",
            os.path.join(BIN, "store_target"), WRITER, CTXCONF, "attach", "--all", "--for", "100ms",
            "--timeout-scale", "0.05", "--out", "out", program="unshare")
        if done.code == 77:
            self.skipTest("this user may not withhold pages from the kernel")
        self.assertEqual(done.code, NOT_JUDGED, done)
        self.assertRegex(done.out, r"exit 4: process \d+ was left out: one of its pages could not be read in time")
        self.assertEqual(len(json.loads(self.read("out/result.json"))["images"]), 1, done)

    def test_memory_that_does_not_answer(self):
        withheld = [os.path.join(BIN, "store_target"), "withheld"]
        program = subprocess.Popen(withheld)
        self.addCleanup(lambda: (program.kill(), program.wait()))
        while program.poll() is None:
            with open(f"/proc/{program.pid}/maps", encoding="utf-8") as maps:
                if "OTEL_CTX" in maps.read():
                    break
            time.sleep(0.01)
        if program.poll() == 77:
            self.skipTest("this user may not withhold pages from the kernel")
        for target in (["attach", str(program.pid)], ["wrap", "--", *withheld],
                       ["wrap", "--level", "syscalls", "--", *withheld]):
            with self.subTest(target[:2]):
                done = self.expect_exit(UNREACHABLE, target[0], "--timeout-scale", "0.05",
                                        *target[1:])
                self.assertIn("could not be read in time", done.err)
        # With --all the others are judged. Other programs of this machine may publish badly, too.
        other = self.start_writer()
        done = self.run_it("attach", "--all", "--for", "100ms", "--timeout-scale", "0.05", "--out",
                           "out")
        self.assertIn(done.code, (FAILED, NOT_JUDGED), done)
        left_out = f"process {program.pid} was left out: one of its pages could not be read in time"
        self.assertIn("note: " + left_out, done.out)
        pids = [image["pid"] for image in json.loads(self.read("out/result.json"))["images"]]
        self.assertIn(other.pid, pids)
        self.assertNotIn(program.pid, pids)
        self.assertIsNone(program.poll())

    def test_strings_of_a_testee(self):
        spec = {"value": HOSTILE, "name": HOSTILE[:15].replace("\0", "")}
        done = self.wrap_ill(spec, HOSTILE.replace("\0", ""), "\udcff\udcfe")
        self.assertEqual(done.code, CLEAN, done)
        self.assert_reports_harmless(done)

    def test_name_of_a_program(self):
        name = "w\x1b[31m\n::error::]]></script>".replace("/", "")
        os.symlink(WRITER, self.path(name))
        with open(WRITER, "rb") as source, open(self.path("x" + name), "wb") as copy:
            copy.write(source.read())
        os.chmod(self.path("x" + name), 0o755)
        done = self.run_it("wrap", "--out", "out", "-vv", "--expect-resource",
                           "service.name=\x1b[31m", "--", "./x" + name, "--hold", "150ms")
        self.assertEqual(done.code, FAILED, done)
        out = done.out
        self.assertTrue(out.startswith("published "), done)
        self.assert_harmless(out + done.err, "console")
        self.assert_reports_harmless(done)
        missing = self.run_it("wrap", "--", "./no\x1b[31m")
        self.assertEqual(missing.code, UNREACHABLE)
        self.assert_harmless(missing.out + missing.err, "complaint")
        for args in (["explain", "\x1b[31m"], ["--\x1b[31m"], ["attach", "\x1b[31m"],
                     ["wrap", "--only", "\x1b[31m", "--", "true"], ["decode", "\x1b[31m"],
                     ["@\x1b[31m"], ["wrap", "--expect", "\x1b", "--", "true"]):
            done = self.run_it(*args)
            self.assertEqual(done.code, USAGE, done)
            self.assert_harmless(done.out + done.err, args)

    def test_sizes_and_addresses(self):
        unreadable = "^FAIL +pctx.(header.payload-(pointer|size)|payload.readable)"
        for spec, code, about in (
                ({"size": 0xFFFFFFFF}, FAILED, unreadable),
                ({"size": 0xFFFFFFFF, "zeros": 1 << 32}, NOT_JUDGED,
                 "^exit 4: a payload of up to 4294967295 bytes was not judged"),
                ({"size": 80 << 20, "zeros": 80 << 20}, NOT_JUDGED,
                 "^INFO +pctx.publish.footprint"),
                ({"at": 0}, CLEAN, "^WARN +pctx.publish.fields-nonzero"),
                ({"at": 8}, FAILED, unreadable),
                ({"at": 0x7FFFFFFFF000, "size": 4096}, FAILED, unreadable),
                ({"at": 2**64 - 1, "size": 0xFFFFFFFF}, FAILED, unreadable),
                ({"at": 0xFFFFFFFFFF600000}, FAILED, unreadable)):
            with self.subTest(spec):
                done = self.wrap_ill(spec)
                self.assertEqual(done.code, code, done)
                self.assertRegex(done.out, re.compile(about, re.M), done)
                self.assert_bounded(done)

    @unittest.skipUnless(has_ptrace_of_strangers(), "yama lets only root look at other processes")
    def test_attach_to_more_than_can_be_judged(self):
        child = self.start_ill({"size": 0xFFFFFFFF, "zeros": 1 << 32, "hold": 60})
        about = "^exit 4: a payload of up to 4294967295 bytes was not judged"
        self.expect_exit(NOT_JUDGED, "attach", "--for", "1s", "--out", "out", str(child.pid),
                         out=[about])
        self.expect_exit(NOT_JUDGED, "replay", "out/timeline.json", out=[about])

    def test_large_attribute(self):
        done = self.wrap_ill({"value": "\x1b", "times": 1 << 20})
        self.assertEqual(done.code, CLEAN, done)
        self.assertLess(len(done.out), 1 << 20)
        self.assert_bounded(done)

    def test_mapping_with_a_long_name(self):
        deep = self.dir
        while len(deep) < 3900:
            deep = os.path.join(deep, "OTEL_CTX\n" + "x" * 150)
        deep = os.path.join(deep, "y" * (4090 - len(deep)))
        os.makedirs(os.path.dirname(deep))
        with open(deep, "wb") as file:
            file.write(b"file")
        self.assertGreater(len(deep), 4000)
        done = self.wrap_ill({"map": deep})
        self.assertEqual(done.code, CLEAN, done)
        self.assert_bounded(done)
        self.assert_reports_harmless(done)

    def test_names_in_a_process_that_is_watched(self):
        if not has_ptrace_of_strangers():
            self.skipTest("yama lets only root look at other processes")
        child = self.start_ill({"value": HOSTILE, "hold": 60}, HOSTILE.replace("\0", ""))
        done = self.run_it("attach", "--for", "300ms", "-vv", "--out", "out", str(child.pid))
        self.assertEqual(done.code, CLEAN, done)
        self.assert_reports_harmless(done)


class DecodeTest(Case):
    def test_header(self):
        self.expect_exit(CLEAN, "decode", "--hex", H3_HEADER,
                         out=["late October to early December 2025", "timestamp at 12",
                              r"20 size +336\b", r"12 timestamp +1764606693650819083"])
        self.expect_exit(FAILED, "decode", "--hex", "4f54454c5f435458" + "00" * 24,
                         out="would not accept")
        self.complains(USAGE, "decode", "--as", "header", "--hex", "4f54", about=["32 bytes"])

    def test_payload(self):
        self.expect_exit(CLEAN, "decode", "--hex", "0a0a 0a08 0a0161 12030a0162",
                         out=["ProcessContext", 'resource a = "b"'])
        with open(self.path("payload"), "wb") as file:
            file.write(bytes.fromhex("0a0a0a080a016112030a0162"))
        self.expect_exit(CLEAN, "decode", "payload", out='resource a = "b"')
        self.expect_exit(CLEAN, "decode", "-", stdin=bytes.fromhex("0a0a0a080a016112030a0162"),
                         out='resource a = "b"')
        self.expect_exit(FAILED, "decode", "--as", "payload", "--hex", "0a7f")

    def test_record(self):
        record = "4bf92f3577b34da6a3ce929d0e0e4736 00f067aa0ba902b7 01 01 0700 0005 2f63617274"
        self.expect_exit(CLEAN, "decode", "--as", "record", "--hex", record,
                         out=["a reader would use it", "0 trace-id +4bf92f3577b34da6a3ce929d0e0e4736",
                              "16 span-id +00f067aa0ba902b7", "25 trace-flags +0x01",
                              '28 key +0, +5 bytes: "/cart"'])
        self.expect_exit(FAILED, "decode", "--as", "record", "--hex", record.replace("0700", "0600"),
                         out=["before the damage", "28 6 bytes are not a whole entry"])
        self.expect_exit(FAILED, "decode", "--as", "record", "--hex", record.replace("0700", "0900"),
                         out="2 bytes are missing")
        self.expect_exit(FAILED, "decode", "--as", "record", "--hex", record.replace("0700", "0007"),
                         out="other byte order")
        self.expect_exit(FAILED, "decode", "--as", "record", "--hex", "00" * 28,
                         out=["would ignore it", r"trace-id +0{32} \(none\)"])
        self.complains(USAGE, "decode", "--as", "record", "--hex", "00" * 27, about=["28 bytes"])

    def test_snapshot(self):
        self.expect_exit(CLEAN, "wrap", "--out", "out", "--", WRITER, "--resource",
                         "service.name=shop", "--hold", "150ms")
        self.expect_exit(CLEAN, "decode", "out/timeline.json",
                         out=["exited 0", "a reader would accept it", "shop", "OTEL_CTX"])
        self.complains(USAGE, "decode", "--as", "snapshot", "--hex", "00", about=["JSON"])

    def test_bad_input(self):
        for args, about in ((["--hex", "zz"], "hex"), (["--hex", "123"], "hex"),
                            (["--hex", ""], "."), ([], "FILE"), (["nowhere"], "No such file"),
                            (["--as", "bogus", "--hex", "00"], "bogus"),
                            (["--hex", "00", "nowhere"], "one of"), (["/"], "directory")):
            with self.subTest(args):
                self.complains(USAGE, "decode", *args, about=[about])

    def test_endless_input(self):
        done = self.complains(USAGE, "decode", "/dev/zero", about=["too large|too big"])
        self.assertLess(done.cpu_seconds, 10 * SLOW)

    def test_random_bytes(self):
        state = 1
        for length in (0, 1, 31, 32, 33, 200):
            data = bytearray()
            for _ in range(length):
                state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
                data.append(state >> 56)
            for kind in ("header", "payload", "record", "snapshot"):
                done = self.run_it("decode", "--as", kind, "-", stdin=bytes(data))
                self.assertIn(done.code, (CLEAN, FAILED, USAGE), done)
                self.assertTrue(done.out + done.err, (kind, length))


class CatalogueTest(Case):
    def test_list(self):
        requirements = json.loads(self.expect_exit(CLEAN, "list", "--json").out)
        checks = json.loads(self.expect_exit(CLEAN, "list", "--checks", "--json").out)
        ids = [r["id"] for r in requirements]
        self.assertEqual(len(set(ids)), len(ids))
        # A rule judges each requirement that the catalogue does not exclude.
        self.assertEqual([r["id"] for r in checks], [r["id"] for r in requirements if "excluded" not in r])
        self.assertEqual({r["role"] for r in checks}, {"writer", "reader"})
        levels = {"writer": ("static", "snapshot", "syscalls", "stores", "steps", "race"),
                  "reader": ("syscalls", "puppet")}
        for requirement in checks:
            self.assertIn(requirement["level"], levels[requirement["role"]], requirement)
        self.expect_exit(CLEAN, "list", out=f"^{len(requirements)} requirements")
        self.expect_exit(CLEAN, "list", "--checks", out=f"^{len(checks)} requirements")
        only = self.expect_exit(CLEAN, "list", "--json", "--spec", "4719=2026-04-07").out
        self.assertEqual({r["otep"] for r in json.loads(only)}, {4719})

    def test_selftest_names_a_program_that_was_not_built(self):
        for name in os.listdir(BIN):
            if name.endswith("mutants.json"):
                shutil.copy(os.path.join(BIN, name), self.dir)
        self.expect_exit(FAILED, "selftest", "--dir", self.dir, "--only", "bad_header_version",
                         "--only", "bad_driven_update_visible",
                         out=[r"^time, summed over all jobs: wrap \d+ s \(1 program\), run \d+ s \(1 program\)$",
                              "^ +process_writer was not built$", "^ +driven_process_writer was not built$",
                              ", 0 missed, .* 2 could not be judged$"])

    def test_selftest_writes_a_line_about_each_program(self):
        only = ("--only", "bad_header_version", "--only", "good_default", "--only", "bad_driven_update_visible")
        self.expect_exit(CLEAN, "selftest", "--json", "lines", "--timeout-scale", "2", "--dir", BIN, *only)
        with open(self.path("lines"), encoding="ascii") as f:
            host, *programs = map(json.loads, f)
        self.assertEqual({name: host[name] for name in ("kind", "kernel", "arch", "programs")}, {
            "kind": "selftest", "kernel": os.uname().release, "arch": os.uname().machine, "programs": 3})
        self.assertEqual({(p["kind"], p["name"], p["mutant"], p["command"], p["verdict"]) for p in programs}, {
            ("program", "bad_header_version", True, "wrap", "killed"), ("program", "good_default", False, "wrap", "clean"),
            ("program", "bad_driven_update_visible", True, "run", "killed")})

    def test_selftest_gives_programs_as_much_time_as_it_is_told(self):
        for name in os.listdir(BIN):
            if name.endswith("mutants.json"):
                self.write(name, '{"version": 1, "mutants": []}')
        self.write("mutants.json", json.dumps({"version": 1, "mutants": [
            {"name": "endless", "kind": "variant", "program": "endless"},
            {"name": "judged_for_hours", "kind": "variant", "program": "endless", "wrap_args": ["--for=6000s"]}]}))
        self.write("endless", "#!/bin/sh\nexec sleep 600\n", mode=0o755)
        self.write("lines", "of an earlier run\n" * 100)
        # wrap ends the one after 3 s, and selftest ends the wrap of the other after 1.8 s.
        for scale, name, text in (("0.1", "endless", "killed by SIGTERM (by ctxconf)"), ("0.01", "judged_for_hours", "no result")):
            with self.subTest(name):
                self.expect_exit(FAILED, "selftest", "--json", "lines", "--timeout-scale", scale, "--dir", self.dir, "--only", name)
                program = json.loads(self.read("lines").splitlines()[1])
                self.assertEqual((program["name"], program["mutant"], program["verdict"]), (name, False, "broken"))
                self.assertIn(text, program["text"])
                self.assert_nothing_runs()

    def test_selftest_lines_that_cannot_be_written(self):
        only = ("--dir", BIN, "--only", "bad_header_version")
        self.complains(USAGE, "selftest", "--json", "absent/lines", *only, about=["--json: open: absent/lines"])
        self.expect_exit(UNREACHABLE, "selftest", "--json", "/dev/full", *only,
                         err="^ctxconf: selftest: cannot write /dev/full: No space left", out="^1 broken programs killed")
        self.complains(USAGE, "selftest", "--timeout-scale", "nan", *only, about=["timeout-scale"])
        self.complains(USAGE, "selftest", "--json", "lines", "--generate", "1", about=["--json"])
        self.complains(USAGE, "selftest", "--timeout-scale", "2", "--script", "s", about=["--timeout-scale"])

    def test_capabilities_and_doctor(self):
        self.expect_exit(CLEAN, "list", "--capabilities", out="^(yes|no) +ptrace ")
        out = self.expect_exit(CLEAN, "doctor", out=["^ctxconf wrap +works", "^ctxconf attach ", "^(yes|no) +same-user ",
                                                     "^(yes|no) +all-processes "]).out
        lacks_anonymous, lacks_memfds = (bool(re.search(f"^no +{name} ", out, re.M))
                                         for name in ("anon-vma-name", "shmem-vma-name"))
        self.assertEqual("this kernel names no " in out, lacks_anonymous or lacks_memfds, out)
        self.assertEqual("readers cannot find a context in anonymous memory\n" in out, lacks_anonymous, out)

    def test_explain(self):
        done = self.expect_exit(CLEAN, "explain", "pctx.fork.dontfork",
                                out=["pctx.fork.dontfork", "  check ", "  mutant ", "dc"])
        self.assertEqual(done.err, "")
        for requirement in json.loads(self.expect_exit(CLEAN, "list", "--checks", "--json").out)[:4]:
            self.expect_exit(CLEAN, "explain", requirement["id"], out=re.escape(requirement["id"]))


# Takes over the terminal on which it was started, as a full-screen program does.
GREEDY_ADAPTER = r"""
import os, signal, sys, tty
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
terminal = os.open("/dev/tty", os.O_RDWR)
tty.setraw(terminal)
if sys.argv[1] == "foreground":
    os.tcsetpgrp(terminal, os.getpgrp())
os.close(terminal)
os.execv(sys.argv[2], sys.argv[2:])
"""


# Signals whose default action ends a process, and which a process can handle. ctxconf ignores
# SIGPIPE and SIGXFSZ.
ENDS_A_PROCESS = sorted({
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGSEGV,
    signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS, signal.SIGALRM,
    signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1, signal.SIGUSR2, signal.SIGIO, signal.SIGPWR,
    signal.SIGXCPU, 16, signal.SIGRTMIN, signal.SIGRTMAX})  # 16: SIGSTKFLT


class ReplTest(Case):
    def test_the_terminal_is_as_before(self):
        for end in ("quit", "adapter", "foreground", *ENDS_A_PROCESS):
            with self.subTest(end):
                self.check(end)

    def check(self, end):
        ours, theirs = os.pipe()
        leader, terminal = pty.fork()
        if leader == 0:
            try:
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                # A background job of a shell, or nohup, ignores some signals.
                for signo in ENDS_A_PROCESS:
                    signal.signal(signo, signal.SIG_DFL)
                child = subprocess.Popen([CTXCONF, "repl", "--", PYTHON, "-c", GREEDY_ADAPTER,
                                          str(end), os.path.join(BIN, "adapter_cpp")],
                                         env=self.env | {"PYTHONWARNINGS": "ignore"}, cwd=self.dir)
                os.write(theirs, f"{child.pid}\n".encode())
                child.wait()
                os.write(theirs, b"ended\n")
                signal.pause()
            finally:
                os._exit(1)
        os.close(theirs)
        try:
            before = termios.tcgetattr(terminal)
            with open(ours, encoding="ascii") as told:
                pid = int(told.readline())
                shown = b""
                while b"\n> " not in shown.replace(b"\r", b""):
                    shown += os.read(terminal, 4096)
                self.assertNotEqual(termios.tcgetattr(terminal)[3], before[3])
                if end in ("quit", "foreground"):
                    os.write(terminal, b"quit\n")
                elif end == "adapter":
                    (adapter,) = children(pid)
                    os.kill(adapter, signal.SIGKILL)
                    os.write(terminal, b"process.drop\n")
                else:
                    os.kill(pid, end)
                self.assertEqual(told.readline(), "ended\n")
            after = termios.tcgetattr(terminal)
            self.assertEqual(after, before)
            self.assertEqual(os.tcgetpgrp(terminal), leader)
        finally:
            os.kill(leader, signal.SIGKILL)
            os.waitpid(leader, 0)
            os.close(terminal)


class CompleteTest(unittest.TestCase):
    def test_every_class_here_is_run(self):
        with open(os.path.join(SOURCE, "CMakeLists.txt"), encoding="utf-8") as file:
            named = set(re.findall(r"\b[A-Z][A-Za-z]+Test\b", file.read()))
        here = {name for name, value in globals().items()
                if isinstance(value, type) and issubclass(value, unittest.TestCase)
                and name.endswith("Test")}
        self.assertEqual(here - named, set())


if __name__ == "__main__":
    heed_signals()
    # Reap the orphans of a killed ctxconf, or they would stay as zombies.
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    unittest.main(verbosity=2)
