#!/usr/bin/env python3
"""Sends every command a signal: while it waits for its input or its output, or at a random moment. The command
must end with a documented exit code or by that signal, and leave no process, no half-written file and no changed
terminal.

usage: signals_test.py BIN_DIR [--signals N] [--seed N] [--only COMMAND]
"""

import argparse
import contextlib
import fcntl
import os
import pty
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
import uuid

from leftovers import heed_signals, marked

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CODES = (0, 1, 2, 3, 4, 5)
DEADLINE_S = 60
REPORTS = {"events.jsonl", "junit.xml", "report.html", "result.json", "results.sarif",
           "summary.md", "timeline.json", "traces"}
TRIES = 50  # until a command is hit before it ends
PIPE = "input"  # a named pipe in the folder of a run: nothing comes from it
SOURCES = "sources"  # there, where a command names a folder in it: a golden folder without vectors
LISTED = "listed"  # there: an expectations file


class Waits(tuple):
    """The words of a command that would end too early. It reads from PIPE or the terminal, where no input comes, or
    prints to a full pipe that nobody reads."""


class Host:
    """The place of the commands: their programs, a recording, and a process to attach to."""

    def __init__(self, programs, folder):
        self.bin = programs
        self.folder = folder
        self.ctxconf = os.path.join(programs, "ctxconf")
        self.recording = os.path.join(folder, "recorded")
        # It has its own process group, so that only the test ends it.
        self.writer = subprocess.Popen(
            [self.program("writer_ref"), "--hold", "3600s"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        subprocess.run([self.ctxconf, "run", "--only", "pctx.publish.*", "--out", self.recording,
                        "--", self.program("adapter_cpp")], stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=DEADLINE_S,
                       check=True)

    def program(self, name):
        return os.path.join(self.bin, name)

    def close(self):
        self.writer.kill()
        self.writer.wait()
        self.writer.stdout.close()

    def commands(self):
        adapter, leaving = self.program("adapter_cpp"), self.program("bad_adapter")
        timeline = os.path.join(self.recording, "timeline.json")
        result = os.path.join(self.recording, "result.json")
        out = ("--out", "out")
        return {
            "wrap": ("wrap", *out, "--", self.program("process_writer"), "--good", "default"),
            "wrap of one that breaks a requirement":
                ("wrap", *out, "--", self.program("process_writer"), "--bad", "pctx.header.version"),
            "wrap --faults": ("wrap", "--faults", "--", self.program("process_writer")),
            "run": ("run", *out, "--", adapter),
            "run --jobs": ("run", "--jobs", "2", *out, "--", adapter),
            "run of one that leaves children": ("run", *out, "--", leaving, "leaves-children"),
            "reader": ("reader", *out, "--", self.program("reader.py")),
            "reader --jobs": ("reader", "--jobs", "2", *out, "--", self.program("reader.py")),
            "reader of one that leaves children": ("reader", *out, "--", leaving, "leaves-children"),
            "puppet": ("puppet", *out, os.path.join(
                SOURCE, "conformance/puppet/samples/process_context.jsonl")),
            "adapter-lint": ("adapter-lint", "--", adapter),
            "adapter-lint of one that leaves children":
                ("adapter-lint", "--", leaving, "leaves-clean-children"),
            "repl": ("repl", "--", adapter),
            "repl of one that leaves children": ("repl", "--", leaving, "leaves-children"),
            "attach": ("attach", *out, "--for", "0.3", str(self.writer.pid)),
            "attach --all": ("attach", "--all", *out),
            "replay": ("replay", *out, timeline),
            "replay of a pipe": Waits(("replay", *out, PIPE)),
            "elf": ("elf", *out, self.program("slot_pie")),
            "report": Waits(("report", PIPE)),
            "golden": ("golden", "verify", "--dir", os.path.join(SOURCE, "golden")),
            "golden regenerate": ("golden", "regenerate", "--dir", SOURCES + "/golden"),
            "golden list": Waits(("golden", "list", "--dir", os.path.join(SOURCE, "golden"))),
            "explain": Waits(("explain", "pctx.update.visible")),
            "list": Waits(("list", "--json")),
            "decode": Waits(("decode", PIPE)),
            "decode of the terminal": Waits(("decode", "-")),
            "drift": Waits(("drift", "--otep", "4719=" + PIPE)),
            "expect": Waits(("expect", "init", "known", "--from", PIPE)),
            "expect update": ("expect", "update", LISTED, "--floor", "--from", result),
            "expect prune": Waits(("expect", "prune", LISTED, "--from", PIPE)),
            "doctor": ("doctor",),
            "selftest": ("selftest", "--only", "bad_tctx_attach_*",
                         "--jobs", "2"),
            "selftest --generate": ("selftest", "--generate", "20", "--seed", "5eed"),
        }


def drained(terminal):
    """Reads the output of a program, so that it never blocks."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass


def wait_until_asleep(child):
    """Until it has begun to wait; returns whether it has."""
    until = time.monotonic() + DEADLINE_S
    looks = 0
    while looks < 3 and time.monotonic() < until and child.poll() is None:
        with open(f"/proc/{child.pid}/stat", encoding="utf-8", errors="replace") as file:
            looks = looks + 1 if file.read().rpartition(")")[2].split()[0] == "S" else 0
        time.sleep(0.005)
    return looks == 3


def provide(words, folder):
    """What the words name in the folder of a run."""
    if LISTED in words:
        with open(os.path.join(folder, LISTED), "w", encoding="ascii") as file:
            file.write("# ctxconf-expect 1\n")
    if any(word.startswith(SOURCES + "/") for word in words):
        golden = os.path.join(folder, SOURCES, "golden")
        shutil.copytree(os.path.join(SOURCE, "golden", "src"), os.path.join(golden, "src"))
        shutil.copy(os.path.join(SOURCE, "golden", "second_encoder.py"), golden)
        os.symlink(os.path.join(SOURCE, "proto"), os.path.join(folder, SOURCES, "proto"))


def temporary_files(folder):
    names = [name for _, _, names in os.walk(folder) for name in names]
    return {name for name in names if name.endswith((".ctxconf-tmp", ".tmp"))}


def attempt(host, words, wait, signo):
    """Runs it in its own folder and terminal. Returns what is wrong after its end, how long it ran, its exit code,
    and whether it still ran when the signal came."""
    wrong = []
    folder = tempfile.mkdtemp(dir=host.folder)
    scratch = os.path.join(folder, "tmp")
    os.mkdir(scratch)
    provide(words, folder)
    controller, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    reader = threading.Thread(target=drained, args=(controller,), daemon=True)
    reader.start()
    mark = f"CTXCONF_SIGNALS_TEST={uuid.uuid4()}"
    held = []
    output = terminal
    if isinstance(words, Waits):
        os.mkfifo(os.path.join(folder, PIPE))
        held = [os.open(os.path.join(folder, PIPE), os.O_RDWR), *os.pipe()]
        output = held[2]
        os.write(output, bytes(fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, 4096)))
    begin = time.monotonic()
    child = subprocess.Popen(
        [host.ctxconf, *words], cwd=folder, stdin=terminal, stdout=output, stderr=terminal,
        env={**os.environ, "TMPDIR": scratch, **dict([mark.split("=", 1)])})
    try:
        if held:
            if not wait_until_asleep(child):
                wrong.append("it did not wait for its input or its output")
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(wait)
        hit = child.poll() is None
        if hit:
            child.send_signal(signo)
        try:
            child.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            wrong.append(f"it did not end within {DEADLINE_S} s")
            child.kill()
            child.wait()
        took = time.monotonic() - begin
        if child.returncode not in (*CODES, -signo):
            wrong.append(f"it ended with {child.returncode}")
        left = marked(mark)
        # The default action ends ctxconf at once if it started nothing that must be ended;
        # the kernel then ends what was about to start.
        until = time.monotonic() + 5
        while left and child.returncode == -signo and time.monotonic() < until:
            time.sleep(0.01)
            left = marked(mark)
        if left:
            wrong.append(f"processes {left} are left")
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        if termios.tcgetattr(terminal) != before:
            wrong.append("the terminal is in another state")
        files = {name for name in os.listdir(folder)}
        files -= {"tmp", "out", "known", LISTED, PIPE, SOURCES}
        files |= set(os.listdir(scratch)) | set(sorted(temporary_files(folder))[:3])
        if os.path.isdir(os.path.join(folder, "out")):
            files |= set(os.listdir(os.path.join(folder, "out"))) - REPORTS
        if files:
            wrong.append(f"files {sorted(files)} are left")
    finally:
        for descriptor in (terminal, *held):
            os.close(descriptor)
        reader.join(DEADLINE_S)
        os.close(controller)
        shutil.rmtree(folder, ignore_errors=True)
    return wrong, took, child.returncode, hit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--signals", type=int,
                        help="how many in all, one command after the other; default: one for each command")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--only", default="", help="commands that begin so")
    given = parser.parse_args()
    chance = random.Random(given.seed)
    failures = 0
    sent = 0
    ended = {}
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGQUIT
    heed_signals()
    with tempfile.TemporaryDirectory() as folder:
        host = Host(os.path.abspath(given.bin), folder)
        try:
            commands = {name: words for name, words in host.commands().items()
                        if name.startswith(given.only)}
            took = {}
            for number in range(given.signals or len(commands)):
                name = list(commands)[number % len(commands)]
                signo = chance.choice(SIGNALS)
                for _ in range(TRIES):
                    # First within its first second, later at any moment of its known duration.
                    wait = chance.uniform(0, 1.05 * took.get(name, 1))
                    wrong, lasted, code, hit = attempt(host, commands[name], wait, signo)
                    if not hit:
                        took[name] = lasted
                    elif code != -signo:
                        took[name] = min(max(took.get(name, 0), lasted), 10)
                    ended.setdefault(name, []).append(code)
                    for what in wrong:
                        failures += 1
                        print(f"signals_test: {name}, {signo.name} after {wait:.3f} s: {what}")
                    if hit:
                        sent += 1
                        break
                else:
                    failures += 1
                    print(f"signals_test: {name} ended {TRIES} times before {signo.name} came")
        finally:
            host.close()
    for name, codes in ended.items():
        counts = {code: codes.count(code) for code in sorted(set(codes))}
        print(f"{name}: " + ", ".join(f"{n} x {code}" for code, n in counts.items()))
    print(f"{sent} signals sent to {len(ended)} commands, seed {given.seed}: "
          + (f"{failures} findings" if failures else "nothing left"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
