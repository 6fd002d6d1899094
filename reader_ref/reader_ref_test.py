#!/usr/bin/env python3
"""Runs reader_ref as its users do, on programs that publish well, badly, or with ill will.

usage: reader_ref_test.py BIN_DIR
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
READER = os.path.join(BIN, "reader_ref")
WRITER = os.path.join(BIN, "writer_ref")
TARGET = os.path.join(BIN, "reader_test_target")
TARGET_BARE = os.path.join(BIN, "reader_test_target_bare")

FOUND, USAGE, UNREACHABLE, NO_CONTEXT = 0, 2, 3, 4
NOBODY = 65534
DEADLINE_S = 60  # generous: it only ends what hangs


class Target:
    """A program under observation that is obeyed line by line."""

    def __init__(self, *args, program=TARGET):
        self.child = subprocess.Popen([program, *args], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.pid = self.child.pid
        self.threads = {}  # kind: tid
        while (line := self.line()) != "ready":
            self.add(line)

    def add(self, line):
        kind, tid = re.fullmatch(r"thread (\S+) (\d+) \S+", line).groups()
        self.threads[kind] = int(tid)

    def line(self):
        line = self.child.stdout.readline()
        if not line:
            raise AssertionError("the target has ended")
        return line.rstrip("\n")

    def send(self, order):
        self.child.stdin.write(order + "\n")
        self.child.stdin.flush()

    def tell(self, order):
        self.send(order)
        return self.line()

    def end(self):
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


class Watch:
    """reader_ref watch --json, one object at a time."""

    def __init__(self, pid, *args):
        self.child = subprocess.Popen([READER, "watch", str(pid), "--json", "--interval", "20ms",
                                       *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True)
        self.timer = threading.Timer(DEADLINE_S, self.child.kill)
        self.timer.start()

    def until(self, is_it):
        for line in self.child.stdout:
            seen = json.loads(line)
            if is_it(seen):
                return seen
        raise AssertionError("watch has ended: " + self.child.stderr.read())

    def end(self, signo=signal.SIGINT):
        if signo is not None:
            self.child.send_signal(signo)
        self.child.stdout.read()
        code = self.child.wait()
        self.close()
        return code

    def close(self):
        self.timer.cancel()
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.child.stdout.close()
        self.child.stderr.close()


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0]


def run(*args, **kwargs):
    return subprocess.run([READER, *map(str, args)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=DEADLINE_S, check=False, **kwargs)


def service(seen):
    context = seen.get("context")
    return context and (context["resource"] or {}).get("service.name")


class Case(unittest.TestCase):
    def target(self, *args, **kwargs):
        target = Target(*args, **kwargs)
        self.addCleanup(target.end)
        return target

    def watch(self, *args):
        watch = Watch(*args)
        self.addCleanup(watch.close)
        return watch

    def dump(self, pid, *args):
        done = run("dump", pid, "--json", *args)
        self.assertEqual(done.returncode, FOUND, done)
        self.assertEqual(done.stdout.count("\n"), 1)
        return json.loads(done.stdout)

    def complains(self, code, text, *args):
        done = run(*args)
        self.assertEqual(done.returncode, code, done)
        self.assertIn(text, done.stderr)
        return done

    def threads(self, seen):
        """By tid."""
        self.assertTrue(seen["thread_contexts"]["read"], seen)
        return {t["tid"]: t for t in seen["thread_contexts"]["threads"]}


class CommandLine(Case):
    def test_usage(self):
        pid = os.getpid()
        for args in ([], ["dump"], ["dump", "1x"], ["dump", "0"], ["dump", "-1"],
                     ["dump", "99999999999999"], ["dump", pid, pid], ["dump", "--all", pid],
                     ["dump", pid, "--interval", "1s"], ["watch"], ["watch", "--all"],
                     ["watch", pid, "--interval", "1ms"], ["watch", pid, "--for", "soon"],
                     ["watch", pid, "--interval", "nan"], ["dump", pid, "--timeout", "0s"],
                     ["serve", "--relist", "601s"], ["serve", "--interval", "11m"],
                     ["nothing"], ["dump", pid, "--nothing"]):
            with self.subTest(args=args):
                done = run(*args)
                self.assertEqual(done.returncode, USAGE, done)
                self.assertEqual(done.stdout, "")
                self.assertTrue(done.stderr.startswith("reader_ref: "))

    def test_help_names_the_exit_codes(self):
        for args in (["--help"], ["dump", "--help"], ["watch", "--help"]):
            done = run(*args)
            self.assertEqual(done.returncode, 0)
            self.assertIn("4 no usable context", done.stdout)

    def test_no_such_process(self):
        self.complains(UNREACHABLE, "there is no process 4194305", "dump", 4194305)
        self.complains(UNREACHABLE, "there is no process 4194305", "watch", 4194305)

    def test_a_thread_is_no_process(self):
        target = self.target("good")
        for command in ("dump", "watch"):
            self.complains(UNREACHABLE, f"is a thread of process {target.pid}",
                           command, target.threads["good"])

    def test_a_zombie_has_ended(self):
        child = subprocess.Popen(["true"])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        self.complains(UNREACHABLE, "has ended", "dump", child.pid)
        child.wait()

    def test_without_a_context(self):
        self.complains(NO_CONTEXT, "publishes no context", "dump", os.getpid())
        with open("/proc/2/cmdline", "rb") as file:
            if not file.read():  # a kernel thread
                self.complains(NO_CONTEXT, "publishes no context", "dump", 2)

    def test_itself(self):
        done = subprocess.run(["sh", "-c", f"exec '{READER}' dump $$"], capture_output=True,
                              text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, NO_CONTEXT, done)

    def test_no_permission(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become somebody else")
        target = self.target()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        os.chmod(directory.name, 0o755)
        reader = shutil.copy(READER, directory.name)
        # No other process of this user publishes; other tests may run some of nobody's.
        stranger = 40_000 + os.getpid() % 20_000
        def as_stranger(*args):
            return subprocess.run([reader, *args], user=stranger, group=NOBODY, extra_groups=[],
                                  cwd="/", capture_output=True, text=True, timeout=DEADLINE_S,
                                  check=False)
        done = as_stranger("dump", str(target.pid))
        self.assertEqual(done.returncode, UNREACHABLE, done)
        self.assertIn("may not be read", done.stderr)
        done = as_stranger("dump", "--all")
        self.assertEqual(done.returncode, NO_CONTEXT, done)
        self.assertRegex(done.stderr, r"\d+ process(es)? may not be read")

    def test_process_that_proc_hides(self):
        script = """
            mount -t proc -o hidepid=2 proc /proc || exit 77
            sleep 60 &
            setpriv --reuid 65534 --regid 65534 --clear-groups "$0" dump $!
            code=$?; kill $!; exit $code"""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        os.chmod(directory.name, 0o755)
        reader = shutil.copy(READER, directory.name)
        try:
            done = subprocess.run(["unshare", "-mpf", "sh", "-c", script, reader], cwd="/",
                                  capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        except OSError as error:
            self.skipTest(f"unshare: {error}")
        if done.returncode in (1, 77, 127):
            self.skipTest(f"no namespaces, or no setpriv: {done.stderr}")
        self.assertEqual(done.returncode, UNREACHABLE, done)
        self.assertRegex(done.stderr, r"process \d+ may not be read")


class ProcessContext(Case):
    def test_of_the_reference_writer(self):
        child = subprocess.Popen([WRITER, "--resource", "service.name=shop", "--attribute", "a=b",
                                  "--hold", "60s"], stdout=subprocess.PIPE)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        child.stdout.readline()
        seen = self.dump(child.pid)
        self.assertEqual(service(seen), "shop")
        self.assertEqual(seen["context"]["attributes"], {"a": "b"})
        self.assertFalse(seen["thread_contexts"]["read"])
        text = run("dump", child.pid).stdout
        self.assertIn("service.name  shop\n", text)

    def test_a_stopped_process_is_read(self):
        target = self.target("good")
        os.kill(target.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WNOWAIT)
        seen = self.dump(target.pid)
        self.assertEqual(service(seen), "shop")
        self.assertIsNotNone(self.threads(seen)[target.threads["good"]]["context"])
        # A thread that is detached runs for a moment before it stops again.
        deadline = time.monotonic() + DEADLINE_S
        while state_of(target.pid) != "T":
            self.assertLess(time.monotonic(), deadline, "it runs")
        os.kill(target.pid, signal.SIGCONT)
        self.assertEqual(target.tell("grow x"), "done")

    def test_of_two_mappings_the_valid_one(self):
        target = self.target("--context", "two")
        seen = self.dump(target.pid)
        self.assertEqual(service(seen), "shop")
        self.assertTrue(seen["notes"])

    def test_what_cannot_be_used(self):
        for kind, why in (("garbage", "not a ProcessContext message"), ("huge", "the limit is 1048576"),
                          ("unmapped", "cannot be read"), ("stuck", "timestamp 0"),
                          ("version", "version 3"), ("none", "publishes no context")):
            with self.subTest(kind=kind):
                target = self.target("--context", kind)
                done = self.complains(NO_CONTEXT, why, "dump", target.pid)
                self.assertEqual(done.stdout, "")
                done = run("dump", target.pid, "--json")
                self.assertEqual(done.returncode, NO_CONTEXT)
                seen = json.loads(done.stdout)
                self.assertIsNone(seen["context"])
                self.assertEqual(seen["busy"], kind == "stuck")

    def test_hostile_text_is_inert(self):
        target = self.target("--context", "hostile")
        for args in ([], ["-v"], ["--json"]):
            done = run("dump", target.pid, *args)
            self.assertEqual(done.returncode, FOUND)
            self.assertRegex(done.stdout, r"\A[ -~\n]*\Z")
        self.assertEqual(self.dump(target.pid)["context"]["resource"]["\x1b[2Jkey"],
                         "a\x1b]0;owned\x07\r\nb\u202e")

    def test_all(self):
        good = self.target()
        stuck = self.target("--context", "stuck")
        bad = self.target("--context", "garbage")
        # Other tests run meanwhile, and a thread has one tracer at a time.
        done = run("dump", "--all", "--json", "--no-threads")
        self.assertEqual(done.returncode, FOUND, done)
        seen = {s["pid"]: s for s in map(json.loads, done.stdout.splitlines())}
        self.assertEqual(service(seen[good.pid]), "shop")
        self.assertNotIn(stuck.pid, seen)
        self.assertNotIn(bad.pid, seen)
        self.assertRegex(done.stderr, rf"process {stuck.pid}: .*timestamp 0")
        self.assertRegex(done.stderr, rf"process {bad.pid}: .*not a ProcessContext")

    def test_processes_that_end_meanwhile(self):
        """Whatever the moment, the answer is one of the documented ones."""
        for delay in [i * 0.0005 for i in range(30)]:
            target = self.target("good", "good", "good")
            timer = threading.Timer(delay, target.child.kill)
            timer.start()
            done = run("dump", target.pid)
            timer.join()
            self.assertIn(done.returncode, (FOUND, UNREACHABLE), done)
            target.end()

    def test_processes_that_become_others_meanwhile(self):
        for delay in [i * 0.0005 for i in range(30)]:
            target = self.target("good", "good", "good")
            timer = threading.Timer(delay, target.send, ["exec"])
            timer.start()
            done = run("dump", target.pid)
            timer.join()
            self.assertIn(done.returncode, (FOUND, NO_CONTEXT), done)
            self.assertEqual(done.returncode == FOUND, "reader_test_target" in done.stdout, done)
            target.end()

    def test_a_leader_that_has_left(self):
        target = self.target("good")
        target.tell("leave")
        seen = self.dump(target.pid)
        self.assertEqual(service(seen), "shop")
        threads = self.threads(seen)
        self.assertIsNotNone(threads[target.threads["good"]]["context"])
        self.assertNotIn(target.pid, threads)


class Silent(Case):
    """Pages that nobody fills: a read of them does not return."""

    def target(self, *args, **kwargs):
        try:
            return super().target(*args, **kwargs)
        except AssertionError:
            self.skipTest("userfaultfd is not available")

    def test_a_context(self):
        silent = self.target("--context", "silent")
        good = self.target()
        self.complains(UNREACHABLE, f"process {silent.pid} did not answer", "dump", silent.pid,
                       "--timeout", "200ms")
        done = run("dump", "--all", "--json", "--no-threads", "--timeout", "1s")
        self.assertEqual(done.returncode, FOUND, done)
        self.assertIn(good.pid, [json.loads(line)["pid"] for line in done.stdout.splitlines()])
        self.assertIn(f"process {silent.pid} did not answer", done.stderr)

    def test_a_record(self):
        target = self.target("silent")
        self.complains(UNREACHABLE, "did not answer", "dump", target.pid, "--timeout", "500ms")
        with open(f"/proc/{target.threads['silent']}/stat", encoding="ascii") as file:
            self.assertNotIn(file.read().split(")")[1].split()[0], "tT")  # it continues

    def test_signals_end_it(self):
        target = self.target("--context", "silent")
        for command, code in (("dump", -signal.SIGINT), ("watch", NO_CONTEXT)):
            child = subprocess.Popen([READER, command, str(target.pid)])
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)
            deadline = time.monotonic() + 10
            while not self.reads(child.pid):
                if time.monotonic() > deadline:
                    self.skipTest("the kernel does not show what a thread waits in")
                time.sleep(0.01)
            child.send_signal(signal.SIGINT)
            self.assertEqual(child.wait(timeout=DEADLINE_S), code)

    def reads(self, pid):
        """Whether it, or a child of it, hangs in the read."""
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            pids = [pid, *map(int, file.read().split())]
        for each in pids:
            with open(f"/proc/{each}/wchan", encoding="ascii") as file:
                if "userfault" in file.read():
                    return True
        return False


class Threads(Case):
    def one(self, kind, *args):
        """The only thread of this kind, and the main thread."""
        target = self.target(*args, kind)
        seen = self.dump(target.pid)
        threads = self.threads(seen)
        self.assertEqual(sorted(threads), sorted([target.pid, target.threads[kind]]))
        self.assertIsNone(threads[target.pid]["context"])
        thread = threads[target.threads[kind]]
        self.assertEqual(thread["name"], kind)
        return thread

    def span_of(self, tid):
        return f"b0b0b0b0{tid:08x}"

    def test_ids_flags_and_attributes(self):
        thread = self.one("good", "--keys", "http_route")
        self.assertEqual(thread["context"], {
            "trace_id": "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf", "span_id": self.span_of(thread["tid"]),
            "flags": 1, "attributes": {"http_route": "/cart"}, "unknown_indexes": [], "notes": []})

    def test_both_schema_versions(self):
        for schema in ("tlsdesc_v1_dev", "tls_v1"):
            self.assertIsNotNone(self.one("good", "--schema", schema)["context"])

    def test_other_schemas_are_left_alone(self):
        for schema in ("go_pprof_labels_v1", "tls_v2", "", "-"):
            target = self.target("--schema", schema, "good")
            threads = self.dump(target.pid, "-v")["thread_contexts"]
            self.assertEqual((threads["read"], threads["threads"]), (False, []))
            self.assertNotEqual(threads["why"], "")
        self.assertIn("threads not read: ", run("dump", target.pid).stdout)

    def test_no_threads(self):
        target = self.target("good")
        self.assertIsNone(self.dump(target.pid, "--no-threads")["thread_contexts"])

    def test_many_threads_each_with_its_own(self):
        target = self.target(*["good"] * 8)
        threads = self.threads(self.dump(target.pid))
        del threads[target.pid]
        self.assertEqual(len(threads), 8)
        for tid, thread in threads.items():
            self.assertEqual(thread["context"]["span_id"], self.span_of(tid))

    def test_records_that_change_all_the_time(self):
        """A sample never mixes two of them: the halves of the trace id give the span id."""
        for style in ("pointer", "in-place"):
            child = subprocess.Popen([WRITER, "--threads", "2", "--thread-style", style,
                                      "--thread-attribute", "k=v", "--rotate", "0s", "--quiet"])
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)
            samples = set()
            deadline = time.monotonic() + DEADLINE_S
            while len(samples) < 20:
                self.assertLess(time.monotonic(), deadline, "no samples")
                done = run("dump", child.pid, "--json")
                if done.returncode != FOUND:  # has not begun
                    continue
                for thread in json.loads(done.stdout)["thread_contexts"]["threads"]:
                    context = thread["context"]
                    if context and context["trace_id"]:
                        trace, span = context["trace_id"], context["span_id"]
                        self.assertEqual(int(trace[:16], 16) ^ int(trace[16:], 16), int(span, 16))
                        self.assertEqual(context["attributes"], {"k": "v"})
                        samples.add(trace)
            child.kill()

    def test_without_a_context(self):
        for kind, why in (("null", "null"), ("invalid", "not valid"), ("odd", "odd address"),
                          ("low", "cannot be read"), ("kernel", "cannot be read"),
                          ("unmapped", "cannot be read"), ("crossing", "cannot be read")):
            with self.subTest(kind=kind):
                thread = self.one(kind)
                self.assertIsNone(thread["context"])
                self.assertIn(why, thread["why"])

    def test_a_bad_thread_costs_only_itself(self):
        kinds = ["null", "odd", "low", "kernel", "unmapped", "crossing", "beyond", "large", "good"]
        target = self.target(*kinds)
        threads = self.threads(self.dump(target.pid))
        with_context = {k for k in kinds if threads[target.threads[k]]["context"]}
        self.assertEqual(with_context, {"beyond", "large", "good"})
        text = run("dump", target.pid, "-v").stdout
        self.assertIn("threads: 3 of 10 have a context", text)
        self.assertRegex(text, r"crossing +none: the slot points to memory that cannot be read")
        self.assertNotIn("crossing", run("dump", target.pid).stdout)

    def test_a_bare_record_at_the_end_of_memory(self):
        self.assertEqual(self.one("bare")["context"]["attributes"], {})

    def test_an_area_beyond_the_page(self):
        context = self.one("beyond", "--keys", "k")["context"]
        self.assertEqual(context["attributes"], {"k": "/cart"})
        self.assertEqual(context["notes"], ["only 8 of 600 attribute bytes can be read"])

    def test_a_large_record(self):
        self.assertEqual(self.one("large", "--keys", "k")["context"]["attributes"], {"k": "last"})

    def test_the_last_occurrence(self):
        self.assertEqual(self.one("twice", "--keys", "k")["context"]["attributes"], {"k": "/pay"})

    def test_zero_and_half_ids(self):
        for kind in ("zero", "half"):
            context = self.one(kind, "--keys", "k")["context"]
            self.assertEqual((context["trace_id"], context["span_id"], context["flags"]), (None,) * 3)
            self.assertEqual(context["attributes"], {"k": "/cart"})
            self.assertEqual(bool(context["notes"]), kind == "half")

    def test_a_cut_entry(self):
        context = self.one("cut", "--keys", "k")["context"]
        self.assertEqual(context["attributes"], {"k": "/cart"})
        self.assertTrue(context["notes"])

    def test_a_value_that_is_not_utf8(self):
        target = self.target("--keys", "k", "utf8")
        context = self.threads(self.dump(target.pid))[target.threads["utf8"]]["context"]
        self.assertEqual(context["attributes"], {"k": "\ufffd\x1b[31m"})
        self.assertIn(r"k=\xff\x1b[31m", run("dump", target.pid).stdout)

    def test_an_index_without_a_name(self):
        context = self.one("index1", "--keys", "k")["context"]
        self.assertEqual(context["attributes"], {"k": "/cart"})
        self.assertEqual(context["unknown_indexes"], [1])

    def test_no_key_map(self):
        context = self.one("good")["context"]
        self.assertIsNotNone(context["trace_id"])
        self.assertEqual(context["attributes"], {})

    def test_a_thread_that_runs(self):
        self.assertIsNotNone(self.one("spin")["context"])

    def test_threads_that_come_and_go(self):
        target = self.target("brief", "good")
        for _ in range(20):
            threads = self.threads(self.dump(target.pid))
            self.assertIsNotNone(threads[target.threads["good"]]["context"])

    def test_somebody_elses_tracee(self):
        target = self.target("good")
        tracer = subprocess.Popen([sys.executable, "-c", """if 1:
            import ctypes, sys
            libc = ctypes.CDLL(None, use_errno=True)
            libc.ptrace.argtypes = [ctypes.c_long] * 4
            assert libc.ptrace(0x4206, int(sys.argv[1]), 0, 0) == 0  # PTRACE_SEIZE
            print("seized", flush=True)
            sys.stdin.read()
        """, str(target.threads["good"])], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(tracer.stdout.close)
        self.addCleanup(tracer.wait)
        self.addCleanup(tracer.stdin.close)
        self.assertEqual(tracer.stdout.readline(), b"seized\n")
        seen = self.dump(target.pid)
        self.assertEqual(service(seen), "shop")
        thread = self.threads(seen)[target.threads["good"]]
        self.assertIsNone(thread["context"])
        self.assertIn("not permitted", thread["why"])

    def test_libraries(self):
        for dialect, model in (("gd", "General Dynamic"), ("tlsdesc", "TLSDESC")):
            with self.subTest(dialect=dialect):
                target = self.target("null", program=TARGET_BARE)
                self.assertIn("no loaded file exports", self.dump(target.pid)["thread_contexts"]["why"])
                self.assertEqual(target.tell(f"load {BIN}/reader_test_{dialect}.so"), "loaded")
                target.send("touch")
                target.add(target.line())
                seen = self.dump(target.pid)
                threads = self.threads(seen)
                self.assertEqual(threads[target.threads["touch"]]["context"]["span_id"],
                                 self.span_of(target.threads["touch"]))
                self.assertIsNone(threads[target.threads["null"]]["context"])
                self.assertEqual(seen["thread_contexts"]["variables"][0]["models"], [model])

    def test_of_several_definitions_the_valid_one(self):
        target = self.target("good")
        target.tell(f"load {BIN}/reader_test_gd.so")
        target.send("touch")
        target.add(target.line())
        seen = self.dump(target.pid)
        threads = self.threads(seen)
        self.assertEqual(len(seen["thread_contexts"]["variables"]), 2)
        for kind in ("good", "touch"):
            self.assertEqual(threads[target.threads[kind]]["context"]["span_id"],
                             self.span_of(target.threads[kind]))


class Watching(Case):
    def test_updates(self):
        target = self.target("--keys", "k", "index1")
        tid = target.threads["index1"]
        watch = self.watch(target.pid)
        first = watch.until(lambda s: True)
        self.assertEqual(first["changed"], ["context", "threads"])
        self.assertEqual(self.threads(first)[tid]["context"]["unknown_indexes"], [1])
        target.tell("grow late")
        seen = watch.until(lambda s: True)
        self.assertEqual(seen["changed"], ["context", "threads"])
        self.assertEqual(self.threads(seen)[tid]["context"]["attributes"],
                         {"k": "/cart", "late": "one"})
        self.assertEqual(watch.end(), FOUND)

    def test_a_context_that_goes_and_comes(self):
        target = self.target("--context", "good")
        watch = self.watch(target.pid)
        watch.until(service)
        target.tell("drop")
        watch.until(lambda s: s["context"] is None)
        target.tell("publish")
        watch.until(service)
        self.assertEqual(watch.end(signal.SIGTERM), FOUND)

    def test_an_exec_drops_the_context(self):
        target = self.target()
        watch = self.watch(target.pid)
        watch.until(service)
        target.send("exec")
        seen = watch.until(lambda s: s["context"] is None)
        self.assertEqual(seen["notes"], [])

    def test_reference_data_that_comes_late(self):
        target = self.target("--schema", "-", "good")
        watch = self.watch(target.pid)
        watch.until(lambda s: s["context"] and not s["thread_contexts"]["read"])
        target.tell("schema tls_v1")
        seen = watch.until(lambda s: s["thread_contexts"]["read"])
        self.assertIsNotNone(self.threads(seen)[target.threads["good"]]["context"])

    def test_a_library_that_comes_late(self):
        target = self.target(program=TARGET_BARE)
        watch = self.watch(target.pid)
        watch.until(lambda s: not s["thread_contexts"]["read"])
        self.assertEqual(target.tell(f"load {BIN}/reader_test_tlsdesc.so"), "loaded")
        target.send("touch")
        target.add(target.line())
        tid = target.threads["touch"]
        seen = watch.until(lambda s: any(t["tid"] == tid and t["context"]
                                         for t in s["thread_contexts"]["threads"]))
        self.assertEqual(service(seen), "shop")

    def test_the_end_of_the_process(self):
        target = self.target()
        watch = self.watch(target.pid)
        watch.until(service)
        target.end()
        watch.until(lambda s: s["changed"] == ["ended"])
        self.assertEqual(watch.end(signo=None), FOUND)

    def test_for_ends_it(self):
        target = self.target("--context", "none")
        done = run("watch", target.pid, "--interval", "10ms", "--for", "100ms")
        self.assertEqual(done.returncode, NO_CONTEXT, done)
        target = self.target("good")
        done = run("watch", target.pid, "--interval", "10ms", "--for", "100ms")
        self.assertEqual(done.returncode, FOUND, done)
        self.assertEqual(done.stdout.count("service.name"), 1)

    def test_text(self):
        target = self.target("--keys", "k", "good")
        child = subprocess.Popen([READER, "watch", str(target.pid), "--interval", "20ms"],
                                 stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        for line in child.stdout:
            if "k=/cart" in line:
                break
        target.end()
        rest = child.stdout.read()
        self.assertRegex(rest, rf"process {target.pid} has ended\n\Z")
        self.assertEqual(child.wait(), FOUND)


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in a background job, and reader_ref would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main()
