#!/usr/bin/env python3
"""Runs `ctxconf run` as its users do, with the adapters in this repository.

usage: run_test.py SOURCE_DIR BIN_DIR
"""

import json
import os
import platform
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

from leftovers import children, marked

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
TOO_SLOW = "no reply|did not say hello"
BROKEN = [os.path.join(BIN, "driven_process_writer"), "--bad", "pctx.update.visible"]
SHORT_RACE = "0.1"  # seconds, for runs that do not test races
QUICKLY = ["--level", "stores"]  # without most of the single-stepping


def ctxconf(*words, timeout=600):
    return subprocess.run([os.path.join(BIN, "ctxconf"), *words], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="backslashreplace",
                          timeout=timeout, check=False)


def outcomes(path):
    with open(os.path.join(path, "result.json"), encoding="utf-8") as file:
        return {r["id"]: r["outcome"] for r in json.load(file)["results"]}


def sleeps(pid):
    """How often the main thread went to sleep."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        switches = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", file.read(), re.MULTILINE)
    return int(switches[1]) if switches else 0


class RunTest(unittest.TestCase):
    maxDiff = None
    whole_runs = {}  # by command: what was run and the folder of its reports

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name

    def whole_run(self, adapter, code=0):
        """Of all requirements, against a file that expects no failure. Tests share it."""
        if tuple(adapter) not in self.whole_runs:
            expect = os.path.join(self.folder, "expect")
            with open(expect, "w", encoding="utf-8") as file:
                file.write("# ctxconf-expect 1\n")
            out = os.path.join(self.folder, str(len(self.whole_runs)))
            done = ctxconf("run", "--race", SHORT_RACE, "--color", "never", "--expect", expect, "--out", out, "--",
                           *adapter)
            self.whole_runs[tuple(adapter)] = done, out
        done, out = self.whole_runs[tuple(adapter)]
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done, out

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "out")

    def run_it(self, adapter, *options, code=0):
        done = ctxconf("run", "--race", SHORT_RACE, "--color", "never", *options, "--", *adapter)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_every_shipped_adapter_is_green_without_expected_failures(self):
        least = {"adapter_cpp": 120, "adapter_c": 110, "adapter.py": 60, "adapter.sh": 50}
        for name, adapter in ADAPTERS.items():
            with self.subTest(adapter=name):
                done, out = self.whole_run(adapter)
                verdicts = list(outcomes(out).values())
                self.assertGreaterEqual(verdicts.count("pass"), least[name], done.stdout)
                self.assertNotIn("fail", verdicts)
                self.assertNotIn("warn", verdicts)
                self.assertNotIn("note: warning: ", done.stdout)

    @unittest.skipUnless(platform.machine() == "x86_64", "other processors need a barrier")
    def test_of_many_processes_those_speak_that_were_looked_at_deepest(self):
        requirement = "pctx.update.fence-before-timestamp"
        self.run_it(CPP, "--only", requirement, "--out", self.out, code=4)
        with open(os.path.join(self.out, "result.json"), encoding="utf-8") as file:
            result = json.load(file)
        for finding in result["results"][0]["findings"]:
            self.assertIn("none is needed", finding["saw"])

    def test_descriptor_3_says_the_same(self):
        self.run_it(CPP, *QUICKLY, "--out", self.out)
        first = outcomes(self.out)
        self.run_it(CPP, *QUICKLY, "--out", self.out, "--channel", "fd3")
        self.assertEqual(first, outcomes(self.out))

    def test_a_recording_judged_again_says_the_same(self):
        _, out = self.whole_run(BROKEN, code=1)
        done = ctxconf("replay", "--out", self.out, os.path.join(out, "timeline.json"))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(outcomes(out), outcomes(self.out))

    def test_a_failure_names_what_runs_it_alone(self):
        done = self.run_it(BROKEN, *QUICKLY, "--out", self.out, code=1)
        again = re.search(r"^  again  (.*)$", done.stdout, re.MULTILINE)
        self.assertIsNotNone(again, done.stdout)
        self.assertNotIn(self.out, again[1], "it replaces the reports of the whole run")
        with open(os.path.join(self.out, "events.jsonl"), encoding="utf-8") as file:
            seed = json.loads(file.readline())["seed"]
        self.assertIn(f" --seed {seed} ", again[1])
        alone = subprocess.run(["sh", "-c", again[1]], capture_output=True, text=True, timeout=300,
                               check=False)
        self.assertEqual(alone.returncode, 1, alone.stdout + alone.stderr)
        self.assertIn("of 1 selected", alone.stdout)
        trace = os.path.join(self.out, "traces", "pctx.update.visible.trace")
        self.assertEqual(ctxconf("replay", "--only", "pctx.update.visible", trace).returncode, 1)

    def test_a_death_after_all_was_answered_is_not_one_of_an_injected_fault(self):
        self.run_it([os.path.join(BIN, "bad_adapter"), "bye-then-dies"], "--only", "pctx.*", *QUICKLY,
                    "--out", self.out, code=1)
        self.assertNotIn("fail", outcomes(self.out).values())

    def test_an_adapter_that_publishes_nothing_is_not_judged(self):
        words = ["--only", "pctx.publish.*", "--only", "pctx.update.*", *QUICKLY]
        done = self.run_it([os.path.join(BIN, "bad_adapter"), "publishes-nothing"], *words,
                           "--out", self.out, code=4)
        self.assertEqual(outcomes(self.out)["pctx.publish.on-init"], "info")
        self.assertIn("no published context was seen", done.stdout)

    def test_only_what_is_selected_is_asked(self):
        self.run_it(CPP, "--only", "pctx.fork.parent-untouched", "--out", self.out)
        with open(os.path.join(self.out, "timeline.json"), encoding="utf-8") as file:
            checks = {check["name"] for session in json.load(file)["sessions"]
                      for check in session["checks"]}
        self.assertNotIn("switch", checks)
        self.assertEqual(outcomes(self.out), {"pctx.fork.parent-untouched": "pass"})

    def test_below_the_level_of_steps_groups_that_step_are_asked_for_their_own_requirements_only(self):
        words = ["--only", "pctx.update.*", "--only", "tctx.attach.*", "--out", self.out]
        stepping = {"update-by-instructions", "update-while-a-reader-reads", "contexts-by-instructions"}
        self.run_it(CPP, *words)
        every, groups = outcomes(self.out), {group for group, *_ in self.sessions()[0]}
        self.run_it(CPP, *words, "--level", "stores")
        some = outcomes(self.out)
        self.assertEqual(some, {requirement: every[requirement] for requirement in some})
        self.assertEqual(groups - {group for group, *_ in self.sessions()[0]}, stepping)
        self.run_it(CPP, *words, "--only", "tctx.exit.no-dangling", "--level", "stores")
        self.assertEqual(stepping & {group for group, *_ in self.sessions()[0]}, {"contexts-by-instructions"})

    def test_repeats_keep_the_worst_and_say_so(self):
        counter = self.out + ".count"
        sometimes = self.out + ".sh"
        # In the first repeat one process does not show updates, in the last some are noisy.
        with open(sometimes, "w", encoding="utf-8") as file:
            file.write(f"""#!/bin/sh
echo x >>'{counter}'
case $(wc -l <'{counter}') in
  3) exec '{BROKEN[0]}' --bad pctx.update.visible ;;
  1[23]) echo noise ;;
esac
exec '{BROKEN[0]}' --good default
""")
        os.chmod(sometimes, 0o755)
        words = ["--only", "pctx.update.visible", *QUICKLY, "--repeat", "3", "--out", self.out]
        done = ctxconf("run", "--race", SHORT_RACE, "--color", "never", *words, "--", sometimes)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"in 3 repeats: 2 pass 1 fail")
        self.assertIn("lines that are not protocol messages, in 1 of 3 repeats, the first: noise", done.stdout)

    def findings(self, out=None):
        """A result without the parts that differ from run to run, such as the number of images
        with a finding."""
        with open(os.path.join(out or self.out, "result.json"), encoding="utf-8") as file:
            result = json.load(file)
        return {requirement["id"]: {(f["outcome"], f["signature"]) for f in requirement["findings"]}
                for requirement in result["results"]}

    def sessions(self, out=None):
        with open(os.path.join(out or self.out, "timeline.json"), encoding="utf-8") as file:
            timeline = json.load(file)
        return [(s["group"], s["repeat"], s["number"], [(c["name"], c["ending"]) for c in s["checks"]])
                for s in timeline["sessions"]], timeline["injections"], timeline["skipped"]

    def test_several_jobs_say_the_same_in_the_same_order(self):
        for adapter, code in ((CPP, 0), (BROKEN, 1)):
            with self.subTest(adapter=adapter[0]):
                _, out = self.whole_run(adapter, code)
                self.run_it(adapter, "--out", self.out, "--jobs", "3", code=code)
                self.assertEqual(self.findings(out), self.findings())
                self.assertEqual(self.sessions(out), self.sessions())

    def start_hanging(self, *options):
        """A run in which every group hangs, and the mark in its environment."""
        mark = f"CTXCONF_RUN_TEST={uuid.uuid4()}"
        run = subprocess.Popen(
            [os.path.join(BIN, "ctxconf"), "run", "--color", "never", "--only", "pctx.*", "--out",
             self.out, *options, "--", os.path.join(BIN, "bad_adapter"), "reply-never"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **dict([mark.split("=")])})
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.kill)
        return run, mark

    def wait_for_check(self):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                with open(os.path.join(self.out, "events.jsonl"), encoding="utf-8") as file:
                    if '"event":"check"' in file.read():
                        return
            except OSError:
                pass
            time.sleep(0.01)
        self.fail("no check")

    def wait_for_jobs(self, run, count):
        """The processes of the run that have an adapter."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            jobs = [child for child in children(run.pid) if children(child)]
            if len(jobs) >= count:
                return jobs
            time.sleep(0.01)
        self.fail("no jobs")

    def test_a_job_that_dies_is_a_fault_of_ours_and_the_rest_is_told(self):
        run, mark = self.start_hanging("--jobs", "2")
        os.kill(self.wait_for_jobs(run, 2)[0], signal.SIGKILL)
        text = run.communicate(timeout=300)[0]
        self.assertEqual(run.returncode, 70, text)
        self.assertRegex(text, r"the process that drove \S+ was killed by SIGKILL")
        self.assertEqual(marked(mark), [])
        with open(os.path.join(self.out, "result.json"), encoding="utf-8") as file:
            result = json.load(file)
        self.assertEqual(result["exit"]["code"], 70)
        self.assertEqual([p["outcome"] for p in result["problems"]], ["harness-error"])
        done = ctxconf("replay", "--only", "pctx.*", os.path.join(self.out, "timeline.json"))
        self.assertEqual(done.returncode, 70, done.stdout)

    def test_a_signal_ends_all_jobs(self):
        for options in ([], ["--jobs", "2"]):
            with self.subTest(options=options):
                run, mark = self.start_hanging(*options)
                if options:
                    self.wait_for_jobs(run, 2)
                else:
                    self.wait_for_check()
                run.send_signal(signal.SIGTERM)
                text = run.communicate(timeout=300)[0]
                self.assertEqual(run.returncode, 4, text)
                self.assertIn("the run was interrupted", text)
                self.assertEqual(marked(mark), [])

    def test_a_page_that_does_not_come_leaves_no_report_of_an_earlier_run(self):
        adapter = self.out + ".sh"
        with open(adapter, "w", encoding="utf-8") as file:
            file.write(f"""#!/bin/sh
while read -r line; do
  id=$(echo "$line" | sed 's/.*"id":\\([0-9]*\\).*/\\1/')
  case $line in
  *'"op":"hello"'*) echo '{{"id":'$id',"ok":true,"v":1,"pid":'$$',"adapter":{{"name":"sh","version":"1"}},"caps":{{"process.publish":{{}}}}}}' ;;
  *'"op":"process.publish"'*) '{BIN}/store_target' withheld; [ $? -ne 77 ] || : >'{self.out}.refused' ;;
  *) echo '{{"id":'$id',"ok":true}}' ;;
  esac
done
""")
        os.chmod(adapter, 0o755)
        runs = {}
        for jobs in ("1", "2"):
            out = self.out + jobs
            os.mkdir(out)
            for name in ("result.json", "junit.xml", "timeline.json"):
                with open(os.path.join(out, name), "w", encoding="ascii") as file:
                    file.write("of an earlier run")
            runs[out] = subprocess.Popen(
                [os.path.join(BIN, "ctxconf"), "run", "--color", "never", "--timeout-scale", "0.05",
                 "--only", "pctx.publish.*", "--jobs", jobs, "--out", out, "--", adapter],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.addCleanup(runs[out].stdout.close)
            self.addCleanup(runs[out].kill)
        texts = {out: run.communicate(timeout=300)[0] for out, run in runs.items()}
        if os.path.exists(self.out + ".refused"):
            self.skipTest("this user may not withhold pages from the kernel")
        for out, run in runs.items():
            with self.subTest(out):
                self.assertEqual(run.returncode, 3, texts[out])
                self.assertIn("could not be read in time", texts[out])
                with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as file:
                    events = [json.loads(line) for line in file]
                self.assertEqual([(e["event"], e["exit"]) for e in events if "exit" in e],
                                 [("end", 3)])
        # The stuck process is a job: the run itself still writes its reports.
        self.assertEqual(sorted(os.listdir(self.out + "1")), ["events.jsonl"])
        with open(os.path.join(self.out + "2", "result.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["exit"]["code"], 3)

    def test_jobs_do_not_outlive_a_run_that_was_killed(self):
        run, mark = self.start_hanging("--jobs", "2")
        self.wait_for_jobs(run, 2)
        run.kill()
        run.communicate(timeout=300)
        until = time.monotonic() + 60
        while marked(mark) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(marked(mark), [])

    def test_a_time_for_which_the_run_was_stopped_is_no_time_to_answer(self):
        adapter, begun, go = (self.out + end for end in (".sh", ".begun", ".go"))
        with open(adapter, "w", encoding="utf-8") as file:
            file.write(f"""#!/bin/sh
while read -r line; do
  case $line in
  *'"op":"hello"'*) echo '{{"id":1,"ok":true,"v":1,"pid":'$$',"adapter":{{"name":"sh","version":"1"}},"sdk":{{"name":"none","version":"1","language":"sh"}},"caps":{{"process.publish":{{}}}}}}' ;;
  *'"op":"process.publish"'*)
    : >'{begun}'
    until [ -e '{go}' ]; do sleep 0.02; done
    echo '{{"id":2,"ok":true}}' ;;
  *'"op":"bye"'*) echo '{{"id":'$(echo "$line" | sed 's/.*"id":\\([0-9]*\\).*/\\1/')',"ok":true}}'; exit ;;
  esac
done
""")
        os.chmod(adapter, 0o755)
        # Twice the limit each time: this host may need all of it without being stopped.
        for limit_s in (1.2, 2.4, 4.8, 9.6, 19.2):
            for path in (begun, go):
                if os.path.exists(path):
                    os.remove(path)
            text = self.run_stopped(adapter, begun, go, limit_s)
            if not re.search(TOO_SLOW, text):
                break
        # It answers, but it publishes nothing.
        self.assertNotRegex(text, TOO_SLOW)
        self.assertNotEqual(outcomes(self.out)["pctx.publish.discoverable"], "timeout")

    def run_stopped(self, adapter, begun, go, limit_s):
        run = subprocess.Popen(
            [os.path.join(BIN, "ctxconf"), "run", "--quiet", "--color", "never", "--timeout-scale",
             str(limit_s / 10), "--only", "pctx.publish.discoverable", "--out", self.out, "--",
             adapter],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.kill)
        until = time.monotonic() + 60
        while not os.path.exists(begun):
            if run.poll() is not None:
                text = run.communicate()[0]
                self.assertRegex(text, TOO_SLOW)
                return text
            if time.monotonic() >= until:
                self.fail("process.publish was not asked")
            time.sleep(0.01)
        run.send_signal(signal.SIGSTOP)
        time.sleep(limit_s + 0.2)
        slept = sleeps(run.pid)
        run.send_signal(signal.SIGCONT)
        # It woke up and sleeps again without an answer, or it gave up.
        while run.poll() is None and sleeps(run.pid) < slept + 2:
            time.sleep(0.01)
        with open(go, "w", encoding="utf-8"):
            pass
        return run.communicate(timeout=300)[0]

    def test_progress_is_lines_where_there_is_no_terminal(self):
        words = ["--only", "pctx.update.*", *QUICKLY]
        done = self.run_it(CPP, *words)
        lines = done.stderr.splitlines()
        self.assertRegex(lines[0], r"^\S+  \d+ of \d+ checks$")
        counts = [re.match(r"\S+  (\d+) of (\d+) checks$", line).groups() for line in lines]
        self.assertEqual(counts[-1][0], counts[-1][1])
        self.assertEqual([int(c) for c, _ in counts], sorted(int(c) for c, _ in counts))
        self.assertEqual(self.run_it(CPP, *words, "--quiet").stderr, "")
        self.assertEqual(self.run_it(CPP, *words, "--repeat", "2", "--jobs", "2").stderr,
                         "repeat 1 of 2\nrepeat 2 of 2\n")

    def test_progress_is_one_line_on_a_terminal(self):
        for options in ([], ["--jobs", "2", *QUICKLY], ["--quiet", *QUICKLY]):
            with self.subTest(options=options):
                leader, follower = pty.openpty()
                done = subprocess.run(
                    [os.path.join(BIN, "ctxconf"), "run", "--race", SHORT_RACE, "--only", "pctx.update.*",
                     *options, "--", *CPP], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=follower,
                    timeout=600, check=False)
                os.close(follower)
                seen = b""
                try:
                    while piece := os.read(leader, 65536):
                        seen += piece
                except OSError:  # EIO: the other side is closed
                    pass
                os.close(leader)
                self.assertEqual(done.returncode, 0, seen)
                if "--quiet" in options:
                    self.assertEqual(seen, b"")
                    continue
                self.assertNotIn(b"\n", seen)
                self.assertTrue(seen.endswith(b"\r\x1b[K"), seen)
                lines = seen.decode().split("\r\x1b[K")
                shown = [re.fullmatch(r"\S+/\S+  \d+ of (\d+)", line) for line in lines]
                shown = {m[0]: m[1] for m in shown if m}  # again after the steps
                self.assertTrue(shown)
                self.assertEqual(len(shown), int(list(shown.values())[-1]))
                if options:
                    continue
                # Single-stepping is reported when it begins, however long it takes.
                traces = re.findall(r"\r\x1b\[Kupdate-by-instructions\S* .*? (\d+) instructions stepped", seen.decode())
                self.assertTrue(traces, seen)

    def test_repeats_that_say_the_same_are_kept_once(self):
        words = ["--only", "pctx.publish.on-init", "--only", "pctx.fork.*", *QUICKLY, "--out", self.out]
        self.run_it(ADAPTERS["adapter.sh"], *words)
        once = self.sessions()
        done = self.run_it(ADAPTERS["adapter.sh"], *words, "--repeat", "4")
        self.assertEqual(once[0], self.sessions()[0])
        self.assertEqual(once[2], self.sessions()[2])
        with open(os.path.join(self.out, "timeline.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["repeats"], [{"repeat": 0, "times": 4}])
        self.assertNotIn("repeats:", done.stdout)

    def test_events_are_told_while_they_happen(self):
        self.run_it(CPP, "--only", "pctx.update.*", *QUICKLY, "--out", self.out, "--seed", "5eed")
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
        self.run_it(CPP, "--only", "pctx.update.visible", *QUICKLY, "--require-caps", "process.*",
                    "--require-caps", "thread.attach")
        done = self.run_it(CPP, "--only", "pctx.update.visible", *QUICKLY, "--require-caps", "reader.*",
                           code=4)
        self.assertIn("does not declare reader.*", done.stdout)

    def test_what_is_not_declared_is_not_applicable(self):
        self.run_it(ADAPTERS["adapter.sh"], "--only", "pctx.fork.*", "--only", "pctx.header.version",
                    "--out", self.out)
        verdicts = outcomes(self.out)
        self.assertEqual(verdicts["pctx.fork.child-has-none"], "na")
        self.assertEqual(verdicts["pctx.header.version"], "pass")

    def test_wrong_words_are_usage(self):
        for words in (["run"], ["run", "--"], ["run", *CPP], ["run", "--seed", "X", "--", *CPP],
                      ["run", "--channel", "tcp", "--", *CPP], ["run", "--repeat", "0", "--", *CPP],
                      ["run", "--jobs", "0", "--", *CPP], ["run", "--jobs", "-1", "--", *CPP],
                      ["run", "--jobs", "1000", "--", *CPP], ["run", "--jobs", "two", "--", *CPP],
                      ["run", "--only", "no.such.row", "--", *CPP]):
            with self.subTest(words=words):
                done = ctxconf(*words)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertTrue(done.stderr)

    def test_no_such_adapter(self):
        done = ctxconf("run", "--out", self.out, "--", os.path.join(BIN, "no_such_adapter"))
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"no_such_adapter` cannot be started: .*\n +name a program ")
        self.assertEqual(done.stdout, "")
        with open(os.path.join(self.out, "result.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["exit"]["code"], 3)
        script = self.out + ".py"
        with open(script, "w", encoding="utf-8"):
            pass
        done = ctxconf("run", "--", script)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("ctxconf run -- python3 app.py", done.stderr)

    @unittest.skipIf(jsonschema is None, "python3-jsonschema is missing")
    def test_the_result_keeps_its_schema(self):
        _, out = self.whole_run(BROKEN, code=1)
        with open(os.path.join(SOURCE, "conformance/report/result.schema.json"),
                  encoding="utf-8") as file:
            schema = json.load(file)
        with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
            jsonschema.validate(json.load(file), schema)


if __name__ == "__main__":
    unittest.main(verbosity=2)
