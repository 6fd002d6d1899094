"""Who may look at processes of others here, and how a child becomes another user."""

import os
import subprocess

NOBODY = 65534


def has_ptrace_of_strangers():
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            return os.geteuid() == 0 or int(file.read()) == 0
    except OSError:
        return True


def become_nobody():
    """For preexec_fn."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def may_nobody_run(program):
    try:
        return subprocess.run([program, "--version"], preexec_fn=become_nobody, check=False, timeout=60,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
