"""What a run left behind, for its tests."""

import os


def marked(mark):
    """Processes with this in their environment, or with its value in their command line."""
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
