#!/usr/bin/env python3
"""Runs ctxconf where a container or a host restricts it. ctxconf judges what it can. Otherwise it exits with 3, says
what would help, and blames no program.

usage: restricted_test.py BIN_DIR
"""

import errno
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

from leftovers import heed_signals
from refused_calls import (NEW_PROCESS, PIDFD_OPEN, PREAD64, PROCESS_VM_READV, PROCESS_VM_WRITEV, PTRACE, SOCKETPAIR,
                           refuse)
from strangers import NOBODY, become_nobody, can_unshare, has_ptrace_of_strangers, may_nobody_run

BIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
CTXCONF = os.path.join(BIN, "ctxconf")
# The dynamic program, and the static one where it is built.
PROGRAMS = [path for path in (CTXCONF, os.path.join(BIN, "ctxconf-static")) if os.path.exists(path)]
WRITER = os.path.join(BIN, "writer_ref")
THREAD_WRITER = os.path.join(BIN, "thread_writer")
ADAPTER = os.path.join(BIN, "adapter.sh")
CLEAN, USAGE, UNREACHABLE = 0, 2, 3
SKIP = 77
UNUSED = 64999  # a user without processes
DEADLINE_S = 120


def call(*words, **kwargs):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="backslashreplace",
                          timeout=DEADLINE_S, check=False, **kwargs)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="restricted_test.")
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        os.chmod(self.dir, 0o755)

    def expect(self, code, *words, out=(), err=(), **kwargs):
        """All patterns must be in the output; no output says that the program is to blame."""
        done = call(*words, cwd=self.dir, **kwargs)
        said = f"{words}\nexit {done.returncode}\n{done.stdout}{done.stderr}"
        if done.returncode == SKIP:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, code, said)
        for patterns, text in ((out, done.stdout), (err, done.stderr)):
            for pattern in [patterns] if isinstance(patterns, str) else patterns:
                self.assertRegex(text, re.compile(pattern, re.M), said)
        self.assertNotRegex(done.stdout, re.compile("^FAIL ", re.M), said)
        return done

    def start(self, *words):
        program = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.assertNotEqual(program.stdout.readline(), b"")
        return str(program.pid)


@unittest.skipUnless(can_unshare("--mount"), "needs root and unshare(1): mounts file systems")
class FileSystemTest(Case):
    def mounted(self, code, script, *words, **kwargs):
        """Runs the words after the script, which may use "$dir"; it gets a file system of its own there."""
        return self.expect(code, "unshare", "--mount", "sh", "-c", f'set -e; dir=$0; {script}; exec "$@"', self.dir,
                           *words, **kwargs)

    def test_a_program_in_a_file_system_without_execution(self):
        script = f'mount -t tmpfs -o noexec none "$dir"; cp {WRITER} "$dir/writer"; PATH=$dir:$PATH; TMPDIR=$dir'
        for program in PROGRAMS:
            for name in (os.path.join(self.dir, "writer"), "writer"):
                with self.subTest(program=program, name=name):
                    done = self.mounted(UNREACHABLE, script, program, "wrap", "--", name,
                                        err=["cannot start .*: Permission denied", "not mounted with noexec"])
                    self.assertEqual(done.stdout, "")
            # Its own files do not need to be executed there.
            self.mounted(CLEAN, script + "; export TMPDIR", program, "wrap", "--", WRITER, "--hold", "150ms")

    def test_nothing_can_be_written(self):
        script = 'mount -o remount,bind,ro /; if touch "$dir/file" 2>/dev/null; then exit 77; fi'
        for program in PROGRAMS:
            with self.subTest(program):
                judge = ("wrap", "--out", "out", "--", WRITER, "--hold", "150ms")
                self.mounted(CLEAN, script, program, judge[0], *judge[3:], out="^exit 0: ")
                done = self.mounted(USAGE, script, program, *judge, err="--out: .*Read-only file system")
                self.assertEqual(done.stdout, "")
        done = self.mounted(UNREACHABLE, script, CTXCONF, "selftest", "--only", "good_default*",
                            err=["cannot make .*: Read-only file system", "TMPDIR=FOLDER"])
        self.assertEqual(done.stdout, "")

    def test_children_in_another_namespace(self):
        for words in (("wrap", "--", WRITER), ("run", "--", ADAPTER), ("selftest", "--only", "good_default*")):
            with self.subTest(words[0]):
                done = self.expect(UNREACHABLE, "unshare", "--pid", CTXCONF, *words, err=[
                    f"{words[0]} cannot start processes here: children would be in another PID namespace",
                    "unshare --pid --fork --mount-proc"])
                self.assertEqual(done.stdout, "")
        self.expect(CLEAN, "unshare", "--pid", CTXCONF, "doctor",
                    out=["^no +children ", "^ctxconf wrap +does not work here: needs to start processes$"])

    def test_a_proc_of_another_namespace(self):
        for words in (("wrap", "--", WRITER), ("run", "--", ADAPTER), ("attach", "1")):
            with self.subTest(words[0]):
                done = self.expect(UNREACHABLE, "unshare", "--pid", "--fork", CTXCONF, *words,
                                   err=["needs /proc, which is here that of another PID namespace",
                                        "mount -t proc proc /proc"])
                self.assertEqual(done.stdout, "")
        self.expect(CLEAN, "unshare", "--pid", "--fork", CTXCONF, "doctor",
                    out="^no +proc +/proc is here that of another PID namespace$")


@unittest.skipUnless(can_unshare("--mount", "--pid", "--fork"), "needs root and unshare(1): mounts /proc")
@unittest.skipUnless(has_ptrace_of_strangers(), "yama lets only root look at other processes")
class HiddenProcessesTest(Case):
    def hidden(self, code, level, *words, **kwargs):
        """Runs ctxconf as another user. "ROOTS" and "OWN" in the words are writers of root and of this user."""
        script = f"""
            become="setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups"
            mount -t proc -o hidepid={level} proc /proc && $become true || exit {SKIP}
            mkfifo roots own
            {WRITER} --hold 60s >roots & roots=$!; read line <roots
            $become {WRITER} --hold 60s >own & own=$!; read line <own
            for word; do
              shift
              case $word in ROOTS) word=$roots ;; OWN) word=$own ;; esac
              set -- "$@" "$word"
            done
            $become "$@"
        """
        with tempfile.TemporaryDirectory(dir=self.dir) as pipes:
            return self.expect(code, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
                               f"cd {pipes}\n{script}", "sh", CTXCONF, *words, **kwargs)

    def test_processes_that_proc_hides(self):
        if not may_nobody_run(CTXCONF):
            self.skipTest(f"another user may not run {CTXCONF}")
        unseen = {1: r"\d+ processes could not be examined \(run as their user, or as root with CAP_SYS_PTRACE\)",
                  2: r"/proc hides the processes of other users \(hidepid\).*\(run as root with CAP_SYS_PTRACE\)"}
        for level, note in unseen.items():
            with self.subTest(hidepid=level):
                self.hidden(CLEAN, level, "wrap", "--", WRITER, "--hold", "150ms")
                self.hidden(CLEAN, level, "attach", "--for", "200ms", "OWN")
                done = self.hidden(UNREACHABLE, level, "attach", "--for", "200ms", "ROOTS",
                                   err=["cannot attach", "as root, with CAP_SYS_PTRACE", "--cap-add=SYS_PTRACE"])
                self.assertEqual(done.stdout, "")
                self.hidden(CLEAN, level, "attach", "--for", "200ms", "--all", out=note)


class MissingFilesTest(Case):
    def test_ctxconf_alone_has_no_scripted_process(self):
        alone = shutil.copy(CTXCONF, self.dir)
        for words in (("reader", "--", "true"), ("selftest", "--generate", "1", "--seed", "1")):
            with self.subTest(words[0]):
                done = self.expect(UNREACHABLE, alone, *words,
                                   err=["ctxconf-puppet: No such file", "install ctxconf-puppet .* libexec/ctxconf/"])
                self.assertEqual(done.stdout, "")


@unittest.skipUnless(has_ptrace_of_strangers(), "yama lets only root look at other processes")
class FilterTest(Case):
    """A seccomp filter as that of a container."""

    FLAGS = ["a seccomp filter may refuse it", "--cap-add=SYS_PTRACE", "--security-opt seccomp=",
             r"securityContext\.capabilities\.add: \[SYS_PTRACE\]", r"securityContext\.seccompProfile"]

    def test_ptrace_is_refused(self):
        for error in (errno.EPERM, errno.ENOSYS):
            for program in PROGRAMS:
                for words in (("wrap", "--", WRITER), ("run", "--", ADAPTER)):
                    with self.subTest(error=error, program=program, command=words[0]):
                        done = self.expect(UNREACHABLE, program, *words, err=[f"{words[0]} needs ptrace", *self.FLAGS],
                                           preexec_fn=lambda: refuse(PTRACE, error=error))
                        self.assertEqual(done.stdout, "")
            self.expect(CLEAN, CTXCONF, "doctor", preexec_fn=lambda: refuse(PTRACE, error=error),
                        out=["^no +ptrace ", "^ctxconf wrap +does not work here",
                             "^ctxconf attach +works, but sees no thread contexts", *self.FLAGS])

    def test_the_self_test_needs_ptrace(self):
        for words in (("--only", "good_default*"), ("--generate", "1", "--seed", "1")):
            with self.subTest(words):
                done = self.expect(UNREACHABLE, CTXCONF, "selftest", *words, preexec_fn=lambda: refuse(PTRACE),
                                   err=["selftest.* needs ptrace", *self.FLAGS])
                self.assertEqual(done.stdout, "")

    def test_no_process_can_be_started(self):
        attached = self.start(WRITER, "--hold", "60s")
        for error in (errno.EPERM, errno.ENOSYS):
            def refused():
                refuse(*NEW_PROCESS, error=error)
            self.starts_nothing(refused, os.strerror(error), "--security-opt seccomp=FILE .* clone, clone3 and vfork")
            self.expect(CLEAN, CTXCONF, "attach", "--for", "200ms", attached, preexec_fn=refused)

    @unittest.skipUnless(os.geteuid() == 0 and may_nobody_run(CTXCONF), "needs root and another user")
    def test_a_limit_of_processes(self):
        def limited():
            become_nobody()
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        self.starts_nothing(limited, os.strerror(errno.EAGAIN), "--pids-limit")

    @unittest.skipUnless(os.geteuid() == 0 and may_nobody_run(CTXCONF), "needs root and another user")
    def test_a_limit_of_processes_that_allows_one_job(self):
        def limited():
            os.setgroups([])
            os.setresuid(*[UNUSED] * 3)
            resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
        # Its adapter would be the third process.
        words = (CTXCONF, "run", "--jobs", "4", "--", os.path.join(BIN, "adapter_cpp"))
        self.expect(UNREACHABLE, *words, preexec_fn=limited,
                    out="^exit 3: the adapter .* cannot be started: fork: .*" + os.strerror(errno.EAGAIN))

    def starts_nothing(self, preexec, error, remedy):
        for words in (("wrap", "--", WRITER), ("run", "--", ADAPTER), ("adapter-lint", "--", ADAPTER)):
            with self.subTest(error=error, command=words[0]):
                done = self.expect(UNREACHABLE, CTXCONF, *words, preexec_fn=preexec,
                                   err=[f"{words[0]} cannot start processes here: fork: {error}", remedy])
                self.assertEqual(done.stdout, "")
        self.expect(CLEAN, CTXCONF, "doctor", preexec_fn=preexec, out=[
            f"^no +children +fork: {error}$", remedy, "^ctxconf wrap +does not work here: needs to start processes$"])

    def test_a_refused_call_is_not_taken_for_ptrace(self):
        done = self.expect(UNREACHABLE, CTXCONF, "wrap", "--", WRITER, preexec_fn=lambda: refuse(SOCKETPAIR),
                           err=["socketpair: Operation not permitted", "a seccomp filter or a security module"])
        self.assertNotIn("ptrace", done.stderr)

    def test_no_file_descriptor_of_a_process_is_needed(self):
        writer = self.start(WRITER, "--hold", "60s")
        for error in (errno.EPERM, errno.ENOSYS):
            for words in (("wrap", "--", WRITER, "--hold", "150ms"), ("attach", "--for", "200ms", writer)):
                with self.subTest(error=error, command=words[0]):
                    self.expect(CLEAN, CTXCONF, *words, preexec_fn=lambda: refuse(PIDFD_OPEN, error=error))

    def test_attach_needs_ptrace_for_threads_alone(self):
        process = self.start(WRITER, "--hold", "60s")
        threads = self.start(THREAD_WRITER, "--good", "default", "--hold", "60000")
        for error in (errno.EPERM, errno.ENOSYS):
            with self.subTest(error=error):
                def refused():
                    refuse(PTRACE, error=error)
                self.expect(CLEAN, CTXCONF, "attach", "--for", "200ms", process, preexec_fn=refused)
                self.expect(CLEAN, CTXCONF, "attach", "--for", "200ms", "--out", "out", threads, preexec_fn=refused,
                            out=["no thread could be sampled", "may stop its threads .`ctxconf doctor`"])
                with open(os.path.join(self.dir, "out/result.json"), encoding="utf-8") as file:
                    outcomes = {r["id"]: r["outcome"] for r in json.load(file)["results"]}
                self.assertEqual(outcomes["pctx.header.layout"], "pass")
                self.assertEqual(outcomes["tctx.record.layout"], "unobservable")

    def test_memory_may_be_read_in_one_way(self):
        self.expect(CLEAN, CTXCONF, "wrap", "--", WRITER, "--hold", "150ms", out="memory is read through /proc/PID/mem",
                    preexec_fn=lambda: refuse(PROCESS_VM_READV, PROCESS_VM_WRITEV, error=errno.ENOSYS))
        for error in (errno.EPERM, errno.ENOSYS):
            with self.subTest(error=error):
                self.expect(CLEAN, CTXCONF, "doctor", preexec_fn=lambda: refuse(PROCESS_VM_READV, error=error),
                            out=["^ctxconf wrap +works$", "^ctxconf attach +works, but more slowly", *self.FLAGS])

    def test_memory_cannot_be_read(self):
        writer = self.start(WRITER, "--hold", "60s")
        for error in (errno.EPERM, errno.ENOSYS):
            with self.subTest(error=error):
                done = self.expect(UNREACHABLE, CTXCONF, "attach", "--for", "200ms", writer,
                                   preexec_fn=lambda: refuse(PROCESS_VM_READV, PREAD64, error=error))
                said = re.sub(r"\n +", " ", done.stdout)
                for flag in self.FLAGS:
                    self.assertRegex(said, flag)
                done = self.expect(UNREACHABLE, CTXCONF, "wrap", "--", WRITER,
                                   preexec_fn=lambda: refuse(PROCESS_VM_READV, PREAD64, error=error),
                                   err=["wrap needs to read the memory of what it starts", *self.FLAGS])
                self.assertEqual(done.stdout, "")

    def test_a_file_is_judged_without_any_of_them(self):
        self.expect(CLEAN, CTXCONF, "elf", os.path.join(BIN, "adapter_cpp"),
                    preexec_fn=lambda: refuse(PTRACE, PROCESS_VM_READV, PREAD64))


if __name__ == "__main__":
    heed_signals()
    unittest.main(verbosity=2)
