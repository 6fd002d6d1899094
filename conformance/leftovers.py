"""What a run left behind, for its tests."""

import os


def marked(mark):
    """Processes with this in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environment:
                if mark.encode() in environment.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found
