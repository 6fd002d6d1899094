"""Finds processes that a run started and did not end, and makes this test heed signals."""

import os
import signal


def marked(mark):
    """Processes with this in their environment, or its value in their command line."""
    value = mark.partition("=")[2] or mark
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for place, text in (("environ", mark), ("cmdline", value)):
            try:
                with open(f"/proc/{pid}/{place}", "rb") as file:
                    if text.encode() in file.read():
                        found.append(int(pid))
                        break
            except OSError:
                pass
    return found


def children(pid):
    """The children of the main thread; none if the process is gone."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def heed_signals():
    """A background job and nohup ignore some signals, and ctxconf would inherit that."""
    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(signo) == signal.SIG_IGN:
            signal.signal(signo, signal.default_int_handler if signo == signal.SIGINT else signal.SIG_DFL)
