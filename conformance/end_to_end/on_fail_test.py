#!/usr/bin/env python3
"""--on-fail: ctxconf leaves a program stopped after the store that was wrong, starts gdb on it, or asks
it nothing more.

usage: on_fail_test.py BIN_DIR
"""

import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.path.abspath(sys.argv.pop(1))
CTXCONF = os.path.join(BIN, "ctxconf")
WRITER = os.path.join(BIN, "process_writer")
ADAPTER = os.path.join(BIN, "driven_process_writer")
BAD_STORE = "pctx.update.zero-timestamp-first"
MIXED = "pctx.update.no-mixed-read"
# Writes down its arguments and the state of the process.
GDB = """#!/bin/sh
echo "$@" > "$OUT"
grep -E '^(State|TracerPid)' "/proc/$2/status" >> "$OUT"
"""


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return dict(re.findall(r"(?m)^(\w+):\s*(\S+)", file.read()))


def is_alive(pid):
    try:
        return status_of(pid)["State"] != "Z"
    except FileNotFoundError:
        return False


def end(pid):
    os.kill(pid, signal.SIGKILL)
    for _ in range(1000):
        if not is_alive(pid):
            return
        time.sleep(0.01)
    raise AssertionError(f"{pid} does not end")


def place_of(pid):
    """The file and offset of the instruction at which a stopped process is."""
    with open(f"/proc/{pid}/syscall", encoding="utf-8") as file:
        pc = int(file.read().split()[-1], 16)
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        for line in file:
            begin, last = (int(word, 16) for word in line.split()[0].split("-"))
            if begin <= pc < last:
                return line.split()[-1], pc - begin + int(line.split()[2], 16)
    raise AssertionError(f"{pc:x} is in no mapping")


class OnFailTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = os.path.join(folder.name, "out")

    def ctxconf(self, *words, code=1, **more):
        # No pipes: the program that stays keeps them open.
        with (tempfile.TemporaryFile("w+", encoding="utf-8") as out,
              tempfile.TemporaryFile("w+", encoding="utf-8") as err):
            done = subprocess.run([CTXCONF, *words], cwd=self.folder, stdin=subprocess.DEVNULL,
                                  stdout=out, stderr=err, timeout=100, check=False, **more)
            for file in (out, err):
                file.seek(0)
            done.stdout, done.stderr = out.read(), err.read()
        self.assertEqual(done.returncode, code, (done.stdout + done.stderr)[-3000:])
        return done

    def locations(self):
        """Where the stores were, according to the recording of the first run."""
        with open(os.path.join(self.out, "timeline.json"), encoding="utf-8") as file:
            timeline = json.load(file)
        return [(location["module"], int(location["offset"], 0))
                for process in timeline["processes"] for image in process["images"]
                for location in image["locations"]]

    def check_paused(self, done, requirement):
        said = re.search(rf"ctxconf: {requirement}: process (\d+) is stopped after (.*), thread", done.stderr)
        self.assertTrue(said, done.stderr)
        pid = int(said[1])
        self.addCleanup(lambda: is_alive(pid) and end(pid))
        self.assertIn(f"gdb -p {pid}", done.stderr)
        self.assertNotIn("another path", done.stderr)
        status = status_of(pid)
        self.assertEqual((status["State"], status["TracerPid"]), ("T", "0"))
        module, offset = place_of(pid)
        near = [offset - at for of, at in self.locations() if of == module]
        # The trap comes after the store, whose instruction has at most 15 bytes.
        self.assertTrue(any(0 < distance <= 15 for distance in near), (module, offset, near))
        # It continues as if nothing had happened.
        time.sleep(0.05)
        self.assertEqual(status_of(pid)["State"], "T")
        end(pid)

    def test_wrap_leaves_it_standing(self):
        done = self.ctxconf("wrap", "--only", BAD_STORE, "--out", self.out, "--on-fail", "pause", "--",
                            WRITER, "--bad", BAD_STORE)
        self.check_paused(done, BAD_STORE)
        self.assertIn(f"--only {BAD_STORE} --on-fail gdb -- {WRITER}", done.stdout)

    def test_run_leaves_it_standing(self):
        self.check_paused(self.ctxconf("run", "--only", MIXED, "--out", self.out, "--on-fail", "pause",
                                       "--", ADAPTER, "--bad", MIXED), MIXED)

    def test_a_program_without_a_failure_is_run_once(self):
        done = self.ctxconf("wrap", "--only", BAD_STORE, "--on-fail", "pause", "--", WRITER, "--good",
                            "updates", code=0)
        self.assertEqual(done.stderr, "")

    def test_gdb_gets_it_and_it_ends_with_gdb(self):
        gdb = os.path.join(self.folder, "gdb")
        with open(gdb, "w", encoding="utf-8") as file:
            file.write(GDB)
        os.chmod(gdb, os.stat(gdb).st_mode | stat.S_IXUSR)
        seen = os.path.join(self.folder, "seen")
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        child = subprocess.Popen([CTXCONF, "wrap", "--quiet", "--only", BAD_STORE, "--on-fail", "gdb", "--",
                                  WRITER, "--bad", BAD_STORE], stdin=theirs, stdout=theirs, stderr=theirs,
                                 env=os.environ | {"OUT": seen,
                                                   "PATH": self.folder + ":" + os.environ["PATH"]})
        os.close(theirs)
        said = b""
        try:
            while chunk := os.read(ours, 65536):
                said += chunk
        except OSError:  # nobody has it open
            pass
        self.assertEqual(child.wait(timeout=100), 1, said)
        with open(seen, encoding="utf-8") as file:
            words, *status = file.read().splitlines()
        option, pid = words.split()
        self.assertEqual(option, "-p")
        self.assertRegex(status[0], r"State:\s*T")
        self.assertRegex(status[1], r"TracerPid:\s*0")
        self.assertFalse(is_alive(int(pid)))

    def test_gdb_needs_a_terminal_and_gdb(self):
        words = ("wrap", "--on-fail", "gdb", "--", "/bin/true")
        self.assertIn("no gdb", self.ctxconf(*words, code=2, env={"PATH": self.folder}).stderr)
        gdb = os.path.join(self.folder, "gdb")
        with open(gdb, "w", encoding="utf-8") as file:
            file.write(GDB)
        os.chmod(gdb, 0o755)
        self.assertIn("must be a terminal", self.ctxconf(*words, code=2, env={"PATH": self.folder}).stderr)

    def test_stop_asks_no_more(self):
        sessions = []
        for how in ("continue", "stop"):
            done = self.ctxconf("run", "--only", MIXED, "--only", "pctx.exec.*", "--out", self.out, "--on-fail", how, "--",
                                ADAPTER, "--bad", MIXED)
            with open(os.path.join(self.out, "timeline.json"), encoding="utf-8") as file:
                sessions.append(len(json.load(file)["sessions"]))
            self.assertEqual("ended at the first failure" in done.stdout, how == "stop")
        self.assertLess(sessions[1], sessions[0])


if __name__ == "__main__":
    unittest.main()
