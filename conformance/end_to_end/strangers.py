"""What this host allows: programs, namespaces, other users and their processes."""

import os
import subprocess

NOBODY = 65534


def runs(*command, **options):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=60, check=False, **options).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def can_unshare(*options):
    """A container may not allow it, even to root."""
    return os.geteuid() == 0 and runs("unshare", *options, "true")


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
    return runs(program, "--version", preexec_fn=become_nobody)
