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

ALONE = "CTXCONF_FLEETS_TEST_ALONE"
NAMESPACE = ["unshare", "-mpf", "--mount-proc", "--kill-child"]
SOURCE, BIN = map(os.path.abspath, sys.argv[1:3])
CTXCONF = os.path.join(BIN, "ctxconf")
WRITER = os.path.join(BIN, "writer_ref")
TESTEE = os.path.join(BIN, "process_writer")

CLEAN, FAILED, USAGE, UNREACHABLE, NOT_JUDGED = range(5)
NOBODY = 65534
DEADLINE_S = 120
HOSTILE = 'shop"} 1\n# HELP x\\ny\\\x1b[31m\u202e'
SHOWN = 'shop"} 1\\x0a# HELP x\\ny\\\\x1b[31m\\xe2\\x80\\xae'
SCHEMA = os.path.join(SOURCE, "conformance", "report", "process_line.schema.json")


def become_nobody():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def has_ptrace_of_strangers():
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            return os.geteuid() == 0 or int(file.read()) == 0
    except OSError:
        return True


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
    """The samples of a metric with these labels, and no others of its labels are looked at."""
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
        self.assertEqual(series(metrics, "ctxconf_requirement_broken_processes", outcome="fail"),
                         {"pctx.header.signature": 1})
        (ended,) = metrics["ctxconf_run_timestamp_seconds"].values()
        self.assertLess(abs(time.time() - ended), DEADLINE_S)

    def test_all(self):
        good, broken, silent = self.start_writer(), self.start_broken(), self.start("sleep", "600")
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
            self.assertEqual(metrics["ctxconf_process_unread"], {})

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

    def test_strict_makes_a_warning_a_failure(self):
        writer = self.start_writer(TESTEE, "--bad", "pctx.publish.fields-nonzero", "--pause", "20", "--hold", "600000")
        for words, state in (([], "clean"), (["--strict"], "broken")):
            _, out, _ = self.attach("--json", "--only", "pctx.publish.fields-nonzero", *words, writer.pid)
            process = self.lines(out)[0][writer.pid]
            if not process["warned"]:
                self.skipTest("attach did not see it: " + out)
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
        try:
            subprocess.run([CTXCONF, "--version"], preexec_fn=become_nobody, check=True, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
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
            self.assertEqual(series(metrics, "ctxconf_process_unread", pid=str(writer.pid), exe="writer_ref"), {"": 1})
            self.assertEqual(run["exit_code"], NOT_JUDGED)

    def test_promtool(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is in the package prometheus")
        self.attach("--metrics", self.file, self.start_writer().pid, self.start_broken().pid)
        done = subprocess.run(["promtool", "check", "metrics"], input=self.read(), capture_output=True,
                              timeout=DEADLINE_S, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))


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

    def test_usage(self):
        for words, why in ((["--every", "0", "1"], "--every: 0 is not a duration of 1 s or more"),
                           (["--every", "soon", "1"], "--every: soon is not"),
                           (["--every", "10s"], "give a pid or --all")):
            with self.subTest(words):
                code, out, err = self.attach(*words)
                self.assertEqual((code, out), (USAGE, ""), err)
                self.assertIn(why, err)


def main():
    alone = os.geteuid() == 0 and shutil.which("unshare") and ALONE not in os.environ
    if alone and subprocess.run([*NAMESPACE, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        os.environ[ALONE] = "1"
        os.execvp(NAMESPACE[0], [*NAMESPACE, sys.executable, *sys.argv])
    del sys.argv[1:3]
    heed_signals()
    unittest.main()


if __name__ == "__main__":
    main()
