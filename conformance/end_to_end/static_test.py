#!/usr/bin/env python3
"""Runs a static ctxconf in a root file system that has nothing but it, the program that it judges and /proc.

usage: static_test.py CTXCONF WRITER TRAMPOLINE     thread_static_pie and ctxconf-trampoline
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CTXCONF, WRITER, TRAMPOLINE = map(os.path.abspath, sys.argv[1:4])
del sys.argv[1:4]
LARGEST = 20 << 20
NOBODY = 65534
DEADLINE_S = 120
# A new mount namespace, so that nothing stays mounted.
ENTER = """
set -e
mount -t proc proc "$1/proc"
root=$1 user=$2
shift 2
exec chroot --userspec="$user:$user" "$root" "$@"
"""


def call(*words):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="backslashreplace", timeout=DEADLINE_S, check=False)


def can_enter():
    """A container may not allow it, even to root."""
    return os.geteuid() == 0 and call("unshare", "--mount", "mount", "-t", "proc", "proc", "/proc").returncode == 0


class OneFile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "ctxconf")
        subprocess.run(["strip", "-o", self.file, CTXCONF], check=True)

    def test_it_is_small(self):
        self.assertLess(os.path.getsize(self.file), LARGEST)

    def test_it_needs_no_library(self):
        said = call("readelf", "--wide", "--program-headers", "--dynamic", self.file).stdout
        self.assertIn("LOAD", said)
        self.assertNotIn("INTERP", said)
        self.assertNotIn("NEEDED", said)


@unittest.skipUnless(can_enter(), "needs root, and mounts")
class EmptyRoot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        os.chmod(self.root, 0o755)
        os.mkdir(os.path.join(self.root, "proc"))
        os.mkdir(os.path.join(self.root, "out"))
        os.chmod(os.path.join(self.root, "out"), 0o1777)
        for name, program in (("ctxconf", CTXCONF), ("writer", WRITER)):
            shutil.copy(program, os.path.join(self.root, name))

    def ctxconf(self, code, *words, user=0):
        done = call("unshare", "--mount", "sh", "-c", ENTER, "sh", self.root, str(user), "/ctxconf", *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def test_what_needs_no_program(self):
        self.assertRegex(self.ctxconf(0, "--version"), r"^ctxconf \d")
        self.assertIn("pctx.header.layout", self.ctxconf(0, "list"))
        self.assertIn("ptrace", self.ctxconf(0, "doctor"))
        self.assertIn("otel_thread_ctx_v1", self.ctxconf(0, "elf", "/writer"))

    def test_a_program_is_judged_and_judged_again(self):
        for user in (0, NOBODY):
            with self.subTest(user=user):
                out = f"/out/{user}"
                self.ctxconf(0, "wrap", "--out", out, "--", "/writer", "--good", "default", user=user)
                with open(self.root + out + "/result.json", encoding="utf-8") as file:
                    results = json.load(file)["results"]
                passed = {r["id"] for r in results if r["outcome"] == "pass"}
                self.assertGreaterEqual(passed, {"pctx.header.layout", "tctx.record.layout"})
                self.ctxconf(0, "replay", out + "/timeline.json", user=user)

    def test_a_failure_is_shown(self):
        said = self.ctxconf(1, "wrap", "--", "/writer", "--bad", "tctx.record.layout", user=NOBODY)
        self.assertIn("tctx.record.layout", said)

    def test_it_runs_without_standard_descriptors(self):
        done = call("unshare", "--mount", "sh", "-c", ENTER.replace("exec chroot", "exec 0<&- 1>&- 2>&-; exec chroot"),
                    "sh", self.root, "0", "/ctxconf", "wrap", "--out", "/out/closed", "--", "/writer", "--good", "default")
        self.assertEqual(done.returncode, 3, "its report goes nowhere")
        with open(self.root + "/out/closed/result.json", encoding="utf-8") as file:
            outcomes = {r["id"]: r["outcome"] for r in json.load(file)["results"]}
        self.assertEqual(outcomes["pctx.header.layout"], "pass")

    def test_a_host_that_executes_no_file_in_memory(self):
        """The setting is that of a PID namespace."""
        refusing = ("unshare", "--mount", "--pid", "--fork", "sh", "-c",
                    "mount -t proc proc /proc && echo 2 >/proc/sys/vm/memfd_noexec || exit 77\n" + ENTER,
                    "sh", self.root, "0", "/bin/ctxconf")
        judge = ("wrap", "--", "/writer", "--good", "default")
        os.mkdir(os.path.join(self.root, "bin"))
        os.mkdir(os.path.join(self.root, "libexec"))
        os.mkdir(os.path.join(self.root, "libexec/ctxconf"))
        os.rename(os.path.join(self.root, "ctxconf"), os.path.join(self.root, "bin/ctxconf"))
        done = call(*refusing, *judge)
        if done.returncode == 77:
            self.skipTest("this kernel has no vm.memfd_noexec")
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("vm.memfd_noexec", done.stderr)
        self.assertIn("vm.memfd_noexec", call(*refusing, "doctor").stdout)
        for folder in ("libexec/ctxconf", "bin"):
            with self.subTest(folder):
                path = os.path.join(self.root, folder, "ctxconf-trampoline")
                shutil.copy(TRAMPOLINE, path)
                done = call(*refusing, *judge)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                os.remove(path)

    @unittest.skipUnless(shutil.which("strace"), "strace is not installed")
    def test_it_opens_only_what_it_judges(self):
        # With this libdw would look for its client of such a server.
        traced = "export DEBUGINFOD_URLS=http://127.0.0.1:9\n" + ENTER.replace("exec chroot", "exec strace -f -e trace=execve,open,openat -o /dev/fd/2 chroot")
        done = call("unshare", "--mount", "sh", "-c", traced, "sh", self.root, "0", "/ctxconf", "elf", "/writer")
        self.assertEqual(done.returncode, 0, done.stderr)
        _, _, calls = done.stderr.partition('execve("/ctxconf"')
        opened = set(re.findall(r'open(?:at)?\((?:AT_FDCWD, )?"(/[^"]*)"', calls))
        self.assertIn("/writer", opened)
        self.assertEqual({path for path in opened if not path.startswith("/proc/")}, {"/writer"})


if __name__ == "__main__":
    unittest.main()
