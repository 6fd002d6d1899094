#!/usr/bin/env python3
"""Runs `ctxconf attach` as an operator of many hosts does: one verdict for each process, as metrics and as JSON. As
root it runs in a PID namespace of its own, where no other program publishes.

usage: fleets_test.py SOURCE_DIR BIN_DIR
"""

import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import jsonschema
except ImportError:
    jsonschema = None
try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None

from exposition import parse
from leftovers import children, heed_signals
from strangers import become_nobody, can_unshare, has_ptrace_of_strangers, may_nobody_run

ALONE = "CTXCONF_FLEETS_TEST_ALONE"
NAMESPACE = ["unshare", "-mpf", "--mount-proc", "--kill-child"]
SOURCE, BIN = map(os.path.abspath, sys.argv[1:3])
CTXCONF = os.path.join(BIN, "ctxconf")
WRITER = os.path.join(BIN, "writer_ref")
TESTEE = os.path.join(BIN, "process_writer")

CLEAN, FAILED, USAGE, UNREACHABLE, NOT_JUDGED = range(5)
DEADLINE_S = 120
HOSTILE = 'shop"} 1\n# HELP x\\ny\\\x1b[31m\u202e'
SHOWN = 'shop"} 1\\x0a# HELP x\\ny\\\\x1b[31m\\xe2\\x80\\xae'
SCHEMA = os.path.join(SOURCE, "conformance", "report", "process_line.schema.json")


@unittest.skipUnless(has_ptrace_of_strangers(), "yama lets only root look at other processes")
class Case(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="ctxconf_fleets_test.")
        self.addCleanup(directory.cleanup)
        self.dir = directory.name
        self.file = self.path("ctxconf.prom")

    def path(self, name):
        return os.path.join(self.dir, name)

    def read(self):
        with open(self.file, "rb") as file:
            return file.read()

    def metrics(self):
        data = self.read()
        metrics = parse(data)
        if text_string_to_metric_families:
            theirs = {(s.name, tuple(sorted(s.labels.items()))): s.value
                      for family in text_string_to_metric_families(data.decode()) for s in family.samples}
            ours = {(name, labels): value for name, samples in metrics.items() for labels, value in samples.items()}
            self.assertEqual(ours, theirs)
        return metrics

    def start(self, *command, **kwargs):
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=self.dir, **kwargs)

        def end():
            child.kill()
            child.wait()
            child.stdout.close()

        self.addCleanup(end)
        return child

    def start_writer(self, *command, **kwargs):
        child = self.start(*(command or (WRITER, "--resource", "service.name=shop", "--hold", "600s")), **kwargs)
        self.assertTrue(child.stdout.readline().startswith(b"published "))
        return child

    def start_broken(self):
        return self.start_writer(TESTEE, "--bad", "pctx.header.signature", "--pause", "20", "--hold", "600000")

    def attach(self, *words, **kwargs):
        done = subprocess.run([CTXCONF, "attach", "--for", "200ms", *map(str, words)], stdin=subprocess.DEVNULL,
                              capture_output=True, cwd=self.dir, timeout=DEADLINE_S, check=False, **kwargs)
        return done.returncode, done.stdout.decode("ascii", "replace"), done.stderr.decode()

    def lines(self, out):
        """The lines by pid, and the last one, which is about the run."""
        values = [json.loads(line) for line in out.splitlines()]
        if jsonschema:
            with open(SCHEMA, encoding="utf-8") as file:
                validator = jsonschema.Draft7Validator(json.load(file))
            for value in values:
                validator.validate(value)
        *processes, run = values
        self.assertEqual({p["kind"] for p in processes} | {run["kind"]}, {"process", "run"}, out)
        return {p["pid"]: p for p in processes}, run

    def assert_nothing_half_written(self):
        self.assertLessEqual(set(os.listdir(self.dir)), {"ctxconf.prom"})


def series(metrics, name, **labels):
    """The samples of a metric with these labels, by requirement; other labels are ignored."""
    return {dict(found).get("requirement", ""): value for found, value in metrics[name].items()
            if labels.items() <= dict(found).items()}


class FleetsTest(Case):
    def test_each_process_has_a_verdict_of_its_own(self):
        good, broken = self.start_writer(), self.start_broken()
        code, out, err = self.attach("--json", "--metrics", self.file, good.pid, broken.pid)
        self.assertEqual((code, err), (FAILED, ""), out)
        processes, run = self.lines(out)
        self.assertEqual(set(processes), {good.pid, broken.pid})
        one = processes[good.pid]
        self.assertEqual((one["state"], one["executable"], one["failed"]), ("clean", os.path.realpath(WRITER), []))
        self.assertEqual(one["resource"]["service.name"], "shop")
        self.assertGreaterEqual(one["counts"]["pass"], 20)
        self.assertEqual(one["outcomes"]["pctx.header.signature"], "pass")
        self.assertEqual(len(one["outcomes"]), sum(one["counts"].values()) - one["counts"]["na"])
        other = processes[broken.pid]
        self.assertEqual((other["state"], [f["id"] for f in other["failed"]]), ("broken", ["pctx.header.signature"]))
        self.assertIn("OTEL", other["failed"][0]["saw"])
        self.assertEqual((run["exit_code"], run["processes"]["clean"], run["processes"]["broken"]), (FAILED, 1, 1))

        metrics = self.metrics()
        self.assertEqual(series(metrics, "ctxconf_processes", state="clean"), {"": 1})
        self.assertEqual(series(metrics, "ctxconf_processes", state="broken"), {"": 1})
        self.assertEqual(series(metrics, "ctxconf_verdicts", outcome="fail"), {"": 1})
        self.assertEqual(series(metrics, "ctxconf_process_requirement_broken", outcome="fail", pid=str(broken.pid)),
                         {"pctx.header.signature": 1})
        self.assertEqual(series(metrics, "ctxconf_process_requirement_broken", outcome="fail", pid=str(good.pid)), {})
        self.assertEqual([(dict(found)["pid"], dict(found)["state"]) for found in metrics["ctxconf_process_state"]],
                         [(str(broken.pid), "broken")])
        self.assertEqual(series(metrics, "ctxconf_requirement_broken_processes", outcome="fail"),
                         {"pctx.header.signature": 1})
        (ended,) = metrics["ctxconf_run_timestamp_seconds"].values()
        self.assertLess(abs(time.time() - ended), DEADLINE_S)

    def test_all(self):
        good, broken, silent = self.start_writer(), self.start_broken(), self.start("sleep", "600")
        self.start("true").stdout.read()  # it becomes a zombie
        code, out, _ = self.attach("--all", "--json", "--metrics", self.file)
        self.assertEqual(code, FAILED, out)
        processes, run = self.lines(out)
        self.assertEqual((processes[good.pid]["state"], processes[broken.pid]["state"]), ("clean", "broken"))
        self.assertNotIn(silent.pid, processes)
        self.assertGreaterEqual(run["processes"]["no_context"], 2)  # the other is this test
        metrics = self.metrics()
        for state, number in run["processes"].items():
            self.assertEqual(series(metrics, "ctxconf_processes", state=state), {"": number})
        if os.environ.get(ALONE):
            self.assertEqual(set(processes), {good.pid, broken.pid})
            self.assertEqual(series(metrics, "ctxconf_process_state", state="unread"), {})
            self.assertEqual(run["processes"]["no_context"], 2)  # no zombie

    def test_one_process(self):
        writer = self.start_writer()
        code, out, _ = self.attach("--metrics", self.file, writer.pid)
        self.assertEqual(code, CLEAN, out)
        self.assertIn("exit 0: ", out)  # the usual report
        self.assertEqual(series(self.metrics(), "ctxconf_processes", state="clean"), {"": 1})
        code, out, _ = self.attach("--json", self.start("sleep", "600").pid)
        self.assertEqual(code, NOT_JUDGED, out)
        (process,) = self.lines(out)[0].values()
        self.assertEqual(process["state"], "no_context")

    def test_what_no_reader_can_read_is_not_judged(self):
        for fill in ("120", "0"):
            with self.subTest(fill):
                writer = self.start(sys.executable, "-c", NEVER_VALID, fill)
                self.assertEqual(writer.stdout.readline(), b"named\n")
                code, out, _ = self.attach("--json", "--metrics", self.file, writer.pid)
                process = self.lines(out)[0][writer.pid]
                self.assertEqual((code, process["state"]), (NOT_JUDGED, "not_judged"), out)
                self.assertIn("no reader can read anything of it", process["incomplete"])
                self.assertEqual(series(self.metrics(), "ctxconf_process_state", state="not_judged",
                                        pid=str(writer.pid)), {"": 1})

    def test_strict_makes_a_warning_a_failure(self):
        writer = self.start_writer(TESTEE, "--bad", "pctx.publish.memfd-closed", "--pause", "20", "--hold", "600000")
        for words, state in (([], "clean"), (["--strict"], "broken")):
            _, out, _ = self.attach("--json", "--only", "pctx.publish.memfd-closed", *words, writer.pid)
            process = self.lines(out)[0][writer.pid]
            self.assertEqual(process["state"], state, out)

    def test_hostile_names(self):
        program = self.path('a"} 1\n# TYPE \\')
        shutil.copy(WRITER, program)
        writer = self.start_writer(program, "--resource", "service.name=" + HOSTILE, "--hold", "600s")
        code, out, _ = self.attach("--json", "--metrics", self.file, "--expect-resource", "service.name=till",
                                   writer.pid)
        self.assertEqual(code, FAILED, out)
        process = self.lines(out)[0][writer.pid]
        self.assertEqual((process["executable"], process["resource"]["service.name"]),
                         (os.path.realpath(program), HOSTILE.replace("\\x", "\\x5cx")))
        self.assertTrue(out.isascii())
        ((found, _),) = ((labels, value) for labels, value
                         in self.metrics()["ctxconf_process_requirement_broken"].items()
                         if ("requirement", "pctx.payload.resource-matches-sdk") in labels)
        labels = dict(found)
        self.assertEqual(labels["service"], SHOWN)
        self.assertTrue(labels["exe"].endswith('a"} 1\\x0a# TYPE \\'), labels)

    def test_long_names(self):
        writer = self.start_writer(WRITER, "--resource", "service.name=" + 3000 * "é", "--hold", "600s")
        _, out, _ = self.attach("--json", "--metrics", self.file, "--expect-resource", "service.name=till", writer.pid)
        self.assertLess(len(self.lines(out)[0][writer.pid]["resource"]["service.name"]), 1100)
        for labels in self.metrics()["ctxconf_process_requirement_broken"]:
            self.assertRegex(dict(labels)["service"], r"\Aé{32}… \(\d+ bytes more\)\Z")

    @unittest.skipUnless(os.geteuid() == 0, "needs root: starts ctxconf as another user")
    def test_processes_that_cannot_be_read(self):
        os.chmod(self.dir, 0o777)
        if not may_nobody_run(CTXCONF):
            self.skipTest(f"another user may not run {CTXCONF}")
        writer = self.start_writer()
        _, out, _ = self.attach("--all", "--json", "--metrics", self.file, preexec_fn=become_nobody)
        processes, run = self.lines(out)
        process = processes[writer.pid]
        self.assertEqual((process["state"], process["command"]), ("unread", "writer_ref"))
        self.assertRegex(process["unread"], "denied|not permitted")
        self.assertNotIn("counts", process)
        metrics = self.metrics()
        self.assertEqual(series(metrics, "ctxconf_processes", state="unread"), {"": run["processes"]["unread"]})
        if os.environ.get(ALONE):
            self.assertEqual(series(metrics, "ctxconf_process_state", pid=str(writer.pid), exe="writer_ref",
                                    state="unread"), {"": 1})
            self.assertEqual(run["exit_code"], NOT_JUDGED)

    def test_promtool(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is in the package prometheus")
        self.attach("--metrics", self.file, self.start_writer().pid, self.start_broken().pid)
        done = subprocess.run(["promtool", "check", "metrics"], input=self.read(), capture_output=True,
                              timeout=DEADLINE_S, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))


# A private mapping named OTEL_CTX, each byte of which is its argument.
NEVER_VALID = """
import ctypes, mmap, os, sys, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
file = os.memfd_create("OTEL_CTX", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
os.ftruncate(file, mmap.PAGESIZE)
at = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, file, 0)
os.close(file)
libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(mmap.PAGESIZE), mmap.MADV_DONTFORK)
ctypes.memset(at, int(sys.argv[1]), mmap.PAGESIZE)
print("named", flush=True)
time.sleep(600)
"""


class FileTest(Case):
    def test_every_user_may_read_it(self):
        self.attach("--metrics", "ctxconf.prom", self.start_writer().pid, preexec_fn=lambda: os.umask(0o077))
        self.assertEqual(stat.S_IMODE(os.stat(self.file).st_mode), 0o644)
        self.assert_nothing_half_written()

    def test_it_is_replaced_and_not_written_to(self):
        with open(self.file, "wb") as old:
            old.write(b"old")
        with open(self.file, "rb") as old:
            self.attach("--metrics", self.file, self.start_writer().pid)
            self.assertEqual(old.read(), b"old")
        self.metrics()

    def test_places_that_it_cannot_have(self):
        os.symlink("/dev/null", self.path("link"))
        os.mkfifo(self.path("pipe"))
        writer = self.start_writer()
        for place, why in (("none/ctxconf.prom", "No such file or directory"), (self.dir, "not a regular file"),
                           (self.dir + "/", "not a regular file"), ("link", "not a regular file"),
                           ("pipe", "not a regular file")):
            with self.subTest(place):
                code, out, err = self.attach("--json", "--metrics", place, writer.pid)
                self.assertEqual((code, out), (USAGE, ""), err)
                self.assertRegex(err, f"^ctxconf: --metrics: write: .*{why}")
        self.assertEqual(set(os.listdir(self.dir)), {"link", "pipe"})
        self.assertTrue(os.path.islink(self.path("link")))

    def test_it_stays_after_a_failure(self):
        with open(self.file, "wb") as old:
            old.write(b"old")
        writer = self.start_writer()
        code, out, err = self.attach("--metrics", self.file, 2147483647)
        self.assertEqual((code, out), (UNREACHABLE, ""), err)
        self.assertEqual(self.read(), b"old")
        code, out, _ = self.attach(
            "--metrics", self.file, writer.pid,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY)))
        self.assertEqual(code, UNREACHABLE, out)
        self.assertRegex(" ".join(out.split()), r"exit 3: --metrics: .*File too large")
        self.assertEqual(self.read(), b"old")
        self.assert_nothing_half_written()


class EveryTest(Case):
    def test_it_repeats_until_a_signal_ends_it(self):
        writer = self.start_writer()
        ctxconf = self.start(CTXCONF, "attach", "--for", "100ms", "--json", "--every", "1s", "--metrics", self.file,
                             str(writer.pid))
        files = set()
        deadline = time.monotonic() + DEADLINE_S
        kept = []
        while len(files) < 3:
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(ctxconf.poll())
            try:
                kept.append(open(self.file, "rb"))  # so that no other file gets its number
            except FileNotFoundError:
                pass
            if kept:
                self.addCleanup(kept[-1].close)
                files.add(os.fstat(kept[-1].fileno()).st_ino)
            time.sleep(0.2)
        self.metrics()
        runs = children(ctxconf.pid)
        ctxconf.send_signal(signal.SIGTERM)
        self.assertEqual(ctxconf.wait(DEADLINE_S), -signal.SIGTERM)
        while any(os.path.exists(f"/proc/{pid}/maps") and open(f"/proc/{pid}/maps", "rb").read() for pid in runs):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assert_nothing_half_written()
        self.assertGreaterEqual(ctxconf.stdout.read().count(b'"kind":"run"'), 2)

    def runs_of(self, ctxconf, number):
        """The pids of this many runs of an --every."""
        pids, deadline = set(), time.monotonic() + DEADLINE_S
        while len(pids) < number:
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(ctxconf.poll())
            pids.update(children(ctxconf.pid))
            time.sleep(0.01)
        return pids

    def test_it_ends_when_nobody_reads(self):
        ctxconf = self.start(CTXCONF, "attach", "--for", "100ms", "--json", "--every", "600s",
                             str(self.start_writer().pid))
        self.assertIn(b'"kind":"process"', ctxconf.stdout.readline())
        ctxconf.stdout.close()
        self.assertEqual(ctxconf.wait(DEADLINE_S), CLEAN)

    def test_with_metrics_it_needs_no_reader(self):
        ctxconf = self.start(CTXCONF, "attach", "--for", "100ms", "--json", "--every", "1s", "--metrics", self.file,
                             str(self.start_writer().pid))
        ctxconf.stdout.close()
        self.runs_of(ctxconf, 3)
        self.metrics()

    def test_it_repeats_where_sigchld_is_ignored(self):
        ctxconf = self.start(CTXCONF, "attach", "--for", "100ms", "--every", "1s", str(self.start_writer().pid),
                             preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.runs_of(ctxconf, 2)

    def test_a_run_that_does_not_end_is_killed(self):
        ctxconf = self.start(CTXCONF, "attach", "--for", "100ms", "--timeout-scale", "0.01", "--every", "1s",
                             str(self.start_writer().pid), stderr=subprocess.PIPE)
        self.addCleanup(ctxconf.stderr.close)
        (first,) = self.runs_of(ctxconf, 1)
        os.kill(first, signal.SIGSTOP)
        self.runs_of(ctxconf, 2)
        self.assertIn(b"did not end in time", ctxconf.stderr.readline())
        self.assertFalse(os.path.exists(f"/proc/{first}"))

    @unittest.skipUnless(os.environ.get(ALONE), "counts the processes of a PID namespace of its own")
    def test_it_does_not_count_itself(self):
        self.start(CTXCONF, "attach", "--all", "--for", "100ms", "--every", "600s", "--metrics", self.file)
        deadline = time.monotonic() + DEADLINE_S
        while not os.path.exists(self.file):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertEqual(series(self.metrics(), "ctxconf_processes", state="no_context"), {"": 1})

    def test_usage(self):
        for words, why in ((["--every", "0", "1"], "--every: 0 is not a duration of 1 s or more"),
                           (["--every", "soon", "1"], "--every: soon is not"),
                           (["--every", "", "1"], "--every: '' is not"),
                           (["--metrics", "", "1"], "--metrics: write: '' is not a regular file"),
                           (["--every", "10s"], "give a pid or --all")):
            with self.subTest(words):
                code, out, err = self.attach(*words)
                self.assertEqual((code, out), (USAGE, ""), err)
                self.assertIn(why, err)


def main():
    if ALONE not in os.environ and can_unshare(*NAMESPACE[1:]):
        os.environ[ALONE] = "1"
        os.execvp(NAMESPACE[0], [*NAMESPACE, sys.executable, *sys.argv])
    del sys.argv[1:3]
    heed_signals()
    unittest.main()


if __name__ == "__main__":
    main()
