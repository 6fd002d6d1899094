#!/usr/bin/env python3
"""Known failures of driven programs. Each problem of the file names a command; the test runs it as printed,
and then the same recording, or another run, is as expected.

usage: run_expectations_test.py SOURCE_DIR BIN_DIR
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BIN = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
CTXCONF = os.path.join(BIN, "ctxconf")
WRITER = os.path.join(BIN, "driven_process_writer")
REQUIREMENT = "pctx.update.visible"
GOOD = [WRITER, "--good", "default"]
BROKEN = [WRITER, "--bad", REQUIREMENT]
CRASHES = [os.path.join(BIN, "bad_adapter"), "dies-in-update"]
HANGS = [os.path.join(BIN, "bad_adapter"), "reply-never"]
REFUSES = [os.path.join(BIN, "bad_adapter"), "refuses"]
QUICKLY = ["--level", "stores"]  # without most of the single-stepping
SELECTED = ["--only", "pctx.update.*", *QUICKLY]
PASSED, FAILED, USAGE, UNREACHABLE, NOT_JUDGED, STALE = 0, 1, 2, 3, 4, 5
ISSUE = "issue=https://bugs.example/1"
# More requirements that CRASHES and REFUSES break.
OTHERS = ("pctx.update.complete-state", "pctx.update.failure-recoverable",
          "pctx.update.no-mixed-read", "pctx.update.timestamp-later")


class ExpectationsTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def expect(self, *lines, adapter=None, name="known"):
        others = {id(CRASHES): "crash", id(REFUSES): "fail"}
        if id(adapter) in others:
            lines += tuple(f"{others[id(adapter)]} {requirement} {ISSUE}" for requirement in OTHERS)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write("\n".join(["# ctxconf-expect 1", *lines, ""]))

    def file(self, name="known"):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read().splitlines()[1:]

    def sh(self, command, **environment):
        return subprocess.run(["sh", "-c", command], cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="backslashreplace", timeout=300,
                              env=os.environ | environment, check=False)

    def run_it(self, adapter, *options, code=PASSED, selected=SELECTED, name="known"):
        words = [CTXCONF, "run", "--race", "0.1", "--color", "never", *selected, "--expect", name, *options, "--",
                 *adapter]
        done = self.sh(shlex.join(words))
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, code, said)
        return said

    def judge_again(self, selected=SELECTED):
        """What run_it() has just recorded is as expected now."""
        words = [CTXCONF, "replay", "--color", "never", *selected, "--expect", "known", "out/timeline.json"]
        done = self.sh(shlex.join(words))
        self.assertEqual(done.returncode, PASSED, done.stdout + done.stderr)

    def mends(self, said):
        """The commands in a report or a complaint, each once."""
        lines = said.splitlines()
        found = re.findall(r"^ +fix +(.*)$", said, re.MULTILINE)
        found += [after.strip() for line, after in zip(lines, lines[1:])
                  if line.startswith("ctxconf: ")]
        return list(dict.fromkeys(found))

    def mend(self, said, **environment):
        commands = self.mends(said)
        self.assertTrue(commands, said)
        for command in commands:
            done = self.sh(command, **environment)
            self.assertEqual(done.returncode, 0, command + "\n" + done.stdout + done.stderr)
        return commands

    def editor(self, script):
        """Acts for the user, who sees +LINE FILE."""
        path = self.path("editor")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nsed -E -i "${{1#+}}{script}" "$2"\n')
        os.chmod(path, 0o755)
        return path

    def test_what_is_listed_is_excused(self):
        for adapter, verb in ((BROKEN, "fail"), (CRASHES, "crash"), (REFUSES, "flaky")):
            with self.subTest(adapter=adapter, verb=verb):
                self.expect(f"{verb} {REQUIREMENT} {ISSUE} until=2999-01-01", adapter=adapter)
                self.assertRegex(self.run_it(adapter), r"\nexit 0: .*, [1345] failed as expected")
        self.expect('na-ok tctx.* reason="no thread context"')
        self.run_it(GOOD, selected=["--only", REQUIREMENT, "--only", "tctx.attach.*", *QUICKLY])

    def test_what_init_writes_holds(self):
        for adapter in (CRASHES, REFUSES):
            with self.subTest(adapter=adapter):
                self.expect(name="none")
                self.run_it(adapter, "--out", "out", code=FAILED, selected=["--only", "pctx.*", *QUICKLY],
                            name="none")
                init = f"{shlex.quote(CTXCONF)} expect init known --from out/result.json"
                self.assertEqual(self.sh(init).returncode, 0)
                while "issue=TODO" in "".join(self.file()):
                    said = self.run_it(adapter, code=USAGE)
                    self.assertIn("  # issue=URL", said)
                    self.mend(said, EDITOR=self.editor(f"s,issue=TODO,{ISSUE},"))
                self.run_it(adapter, selected=["--only", "pctx.*", *QUICKLY])
                os.unlink(self.path("known"))

    def test_a_failure_that_is_gone(self):
        for verb, options in (("fail", ["--out", "out"]), ("crash", [])):
            with self.subTest(verb=verb):
                self.expect(f"{verb} {REQUIREMENT} {ISSUE}")
                said = self.run_it(GOOD, *options, code=STALE)
                self.assertIn("does not fail any more, it ended as pass", said)
                self.assertIn("sed ", "".join(self.mend(said)))
                self.judge_again() if options else self.run_it(GOOD)
                self.assertFalse([line for line in self.file() if not line.startswith("#")])

    def test_all_that_is_gone_at_once(self):
        self.expect(f"fail {REQUIREMENT} {ISSUE}", f"fail pctx.update.same-mapping {ISSUE}")
        said = self.run_it(GOOD, "--out", "out", code=STALE)
        prune = re.findall(r"^note: finally, remove .* no longer hold:\s+(.*)$", said, re.MULTILINE)
        self.assertEqual(len(prune), 1, said)
        self.assertEqual(self.sh(prune[0]).returncode, 0)
        self.assertEqual(self.file(), [])
        self.judge_again()

    def test_a_run_without_an_end_makes_no_line_stale(self):
        adapter = [os.path.join(BIN, "bad_adapter"), "bye-twice"]
        self.expect(f"fail pctx.update.complete-state {ISSUE}", f"fail {REQUIREMENT} {ISSUE}",
                    f"fail {REQUIREMENT}x {ISSUE}")
        said = self.run_it(adapter, "--out", "out", code=UNREACHABLE)
        self.assertNotIn("does not fail any more", said)
        self.assertNotIn("prune", said)
        self.assertEqual(len(self.mends(said)), 1, said)  # for the unknown requirement

    def test_a_run_without_an_end_is_judged_again_as_such(self):
        adapter = shlex.join([os.path.join(BIN, "bad_adapter"), "reply-twice"])
        run = self.sh(f"{shlex.quote(CTXCONF)} run --level stores --out out -- {adapter}")
        self.assertEqual(run.returncode, UNREACHABLE, run.stdout + run.stderr)
        again = self.sh(f"{shlex.quote(CTXCONF)} replay --color never out/timeline.json")
        self.assertEqual(again.returncode, NOT_JUDGED, again.stdout + again.stderr)
        self.assertRegex(again.stdout, r"(?m)^exit 4: the adapter `.*reply-twice` sent a message")

    def test_an_interrupted_run_makes_no_line_stale(self):
        adapter = self.path("hangs-later")
        with open(adapter, "w", encoding="utf-8") as file:
            file.write(f"""#!/bin/sh
echo x >>'{self.path("count")}'
if [ $(wc -l <'{self.path("count")}') -le 2 ]; then exec {shlex.join(GOOD)}; fi
exec {shlex.join(HANGS)}
""")
        os.chmod(adapter, 0o755)
        first = "pctx.publish.discoverable"
        self.expect(f"fail {first} {ISSUE}")
        run = subprocess.Popen(
            [CTXCONF, "run", "--color", "never", "--only", first, "--only", REQUIREMENT, "--expect", "known",
             "--out", "out", "--", adapter], cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.kill)
        until = time.monotonic() + 60
        while self.checks_begun() < 2:
            self.assertLess(time.monotonic(), until, "no second check")
            time.sleep(0.01)
        run.send_signal(signal.SIGTERM)
        said = run.communicate(timeout=300)[0]
        self.assertEqual(run.returncode, NOT_JUDGED, said)
        self.assertRegex(said, r"(?m)^exit 4: the run was interrupted")
        self.assertIn(f"fail {first}: not seen, and the run is incomplete", said)
        self.assertEqual(self.mends(said), [])
        said = self.keeps_its_lines("out/timeline.json", ["--only", first, "--only", REQUIREMENT])
        self.assertRegex(said, r"(?m)^exit 4: the run was interrupted")
        self.prune_keeps(1)

    def keeps_its_lines(self, recording, options=()):
        """Judges a recording again."""
        words = [CTXCONF, "replay", "--color", "never", *options, "--expect", "known", "--out",
                 "out", recording]
        done = self.sh(shlex.join(words))
        said = done.stdout + done.stderr
        self.assertNotIn(done.returncode, (USAGE, STALE), said)
        self.assertIn("not seen, and the run is incomplete", said)
        self.assertEqual(self.mends(said), [])
        return said

    def prune_keeps(self, lines):
        before = self.file()
        done = self.sh(f"{shlex.quote(CTXCONF)} expect prune known --from out/result.json")
        self.assertEqual((done.returncode, self.file()), (0, before), done.stdout + done.stderr)
        self.assertIn(f"note: kept {lines} line", done.stdout)

    def test_what_was_not_asked_for_is_not_gone(self):
        """Recorded with --only and judged again without it; and the trace of a requirement."""
        self.expect(f"fail pctx.header.version {ISSUE}")
        self.run_it(BROKEN, "--out", "out", code=FAILED, selected=["--only", REQUIREMENT, *QUICKLY])
        trace = f"out/traces/{REQUIREMENT}.trace"
        os.rename(self.path(trace), self.path("trace"))
        os.rename(self.path("out/timeline.json"), self.path("recording"))
        for recording in ("recording", "trace"):
            with self.subTest(recording=recording):
                self.keeps_its_lines(recording)
                self.prune_keeps(1)

    def test_a_pattern_speaks_of_all_that_it_names(self):
        self.expect("na-ok pctx.update.* reason=frozen")
        self.run_it(GOOD, "--out", "out", selected=["--only", REQUIREMENT, *QUICKLY])
        prune = f"{shlex.quote(CTXCONF)} expect prune known --from out/result.json"
        self.assertIn("0 removed", self.sh(prune).stdout)

    def checks_begun(self):
        try:
            with open(self.path("out/events.jsonl"), encoding="utf-8") as file:
                return file.read().count('"event":"check"')
        except OSError:
            return 0

    def test_what_applies_although_it_may_not(self):
        selected = ["--only", "pctx.update.*"]  # all that the pattern names
        self.expect("na-ok pctx.update.* reason=frozen")
        said = self.run_it(GOOD, "--out", "out", code=STALE, selected=selected)
        self.assertIn("applies now, it ended as pass", said)
        self.mend(said)
        self.judge_again(selected)

    def test_another_way_to_fail(self):
        for line, adapter, mended in (
                (f"fail {REQUIREMENT} {ISSUE}", CRASHES, f"crash {REQUIREMENT} {ISSUE}"),
                (f"flaky {REQUIREMENT} {ISSUE}  # why", CRASHES, f"crash {REQUIREMENT} {ISSUE}  # why"),
                (f'fail {REQUIREMENT} saw="a \\" b" {ISSUE}', BROKEN,
                 f'fail {REQUIREMENT} saw="an accepted change is not visible" {ISSUE}'),
                (f"crash {REQUIREMENT} {ISSUE} saw=died until=2999-01-01", BROKEN,
                 f'fail {REQUIREMENT} {ISSUE} saw="an accepted change is not visible" until=2999-01-01')):
            with self.subTest(line=line):
                self.expect("", line, adapter=adapter)
                said = self.run_it(adapter, "--out", "out", code=FAILED)
                self.assertIn("  # if this failure is also known", "".join(self.mend(said)))
                self.assertEqual(self.file()[:2], ["", mended])
                self.judge_again()

    def test_a_line_past_its_day(self):
        self.expect(f"fail {REQUIREMENT} {ISSUE} until=2020-02-29")
        said = self.run_it(BROKEN, "--out", "out", code=STALE)
        self.assertIn("expired after 2020-02-29", said)
        self.assertIn("1 failed", said)
        self.mend(said, EDITOR=self.editor("s/until=2020/until=2996/"))
        self.judge_again()

    def test_unknown_requirements(self):
        self.expect(f"fail pctx.update.visibel {ISSUE}", f"fail nothing.at.all {ISSUE}")
        said = self.run_it(BROKEN, "--out", "out", code=FAILED)
        self.assertIn("did you mean pctx.update.visible?", said)
        self.mend(said)
        self.assertEqual(self.file()[0], f"fail {REQUIREMENT} {ISSUE}")
        self.judge_again()

    def test_lines_that_repeat_or_contradict(self):
        for second in (f"fail {REQUIREMENT} {ISSUE}", f"crash {REQUIREMENT} {ISSUE}"):
            with self.subTest(second=second):
                self.expect(f"fail {REQUIREMENT} {ISSUE}", second)
                self.mend(self.run_it(BROKEN, code=USAGE))
                self.run_it(BROKEN)

    def test_all_at_once(self):
        """The commands do not move each other's lines."""
        selected = [*SELECTED, "--only", "pctx.header.*"]
        for options in ([], ["--out", "out"]):
            with self.subTest(options=options):
                self.expect(f"fail pctx.update.complete-state {ISSUE}", f"crash {REQUIREMENT} {ISSUE}",
                            f"fail pctx.nothing.like.it {ISSUE}",
                            f"fail pctx.update.same-mapping {ISSUE}",
                            "na-ok pctx.header.version reason=none")
                said = self.run_it(BROKEN, *options, code=FAILED, selected=selected)
                self.assertEqual(len(self.mend(said)), 5, said)
                self.judge_again(selected) if options else self.run_it(BROKEN, selected=selected)

    def test_flaky(self):
        """Every second process of this adapter does not show its updates."""
        adapter = self.path("sometimes")
        with open(adapter, "w", encoding="utf-8") as file:
            file.write(f"""#!/bin/sh
echo x >>'{self.path("count")}'
if [ $(($(wc -l <'{self.path("count")}') % 2)) -eq 0 ]; then exec {shlex.join(BROKEN)}; fi
exec {shlex.join(GOOD)}
""")
        os.chmod(adapter, 0o755)
        repeat = ["--repeat", "2"]
        self.expect(f"flaky {REQUIREMENT} {ISSUE}")
        said = self.run_it([adapter], *repeat)
        self.assertIn("1 failed as expected", said)
        self.run_it(GOOD, *repeat)
        # The line holds if it fails in some repeats; it is stale only if it fails in none.
        self.expect(f"fail {REQUIREMENT} {ISSUE}")
        self.run_it([adapter], *repeat)
        self.run_it(GOOD, *repeat, code=STALE)


if __name__ == "__main__":
    unittest.main()
