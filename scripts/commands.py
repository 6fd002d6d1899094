"""What the scripts share that make virtual machines and root file systems."""

import argparse
import os
import signal
import subprocess
import sys


class Problem(Exception):
    """Why a script cannot go on, as its user reads it."""


def only(paths, what):
    found = list(paths)
    if len(found) != 1:
        raise Problem(f"{len(found)} of {what}, not one")
    return found[0]


def checked(words, seconds=900, **options):
    """What the program prints. Nothing that it started outlives it if this one ends first."""
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="backslashreplace", start_new_session=True, **options) as process:
        try:
            out, errors = process.communicate(timeout=seconds)
        except BaseException as problem:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(problem, subprocess.TimeoutExpired):
                raise Problem(f"{words[0]} took more than {seconds} s") from None
            raise
    if process.returncode != 0:
        raise Problem(f"{words[0]} exited with {process.returncode}: {(out + errors).strip()[-2000:]}")
    return out


def parser(name, description, usage_code):
    """A parser that exits with `usage_code` after a wrong option."""
    class Parser(argparse.ArgumentParser):
        def error(self, message):
            self.print_usage(sys.stderr)
            self.exit(usage_code, f"{name}: {message}\n")

    return Parser(prog=name, description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def end_on_signals():
    """SIGHUP and SIGTERM end the script as an exception does, so that it removes and ends what it made."""
    for ending in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
