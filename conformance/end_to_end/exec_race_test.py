#!/usr/bin/env python3
"""Records programs that publish and execute themselves, next to busy loops. What `ctxconf wrap` keeps of an image must
end with the entry of its execve: the memory, threads and files of the process may be those of the next image then.

usage: exec_race_test.py BIN_DIR [--execs N] [--seed N]
"""

import argparse
import contextlib
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile

PROCESSES = 40  # of one recording
AT_ONCE = 4
EXECS = 2  # of each process: the shell executes the program, and the program itself
MOST_PAUSE_MS = 20  # between the steps of a program; the recorder looks ten times a second
DEADLINE_S = 300
BUSY = f"import os\nwhile os.getppid() == {os.getpid()}: pass"  # ends with this test
TIMES = ("entered_ns", "left_ns", "first_seen_ns", "last_seen_ns", "armed_ns", "at_ns")


def script(program, chance):
    """Starts the programs, a few at once."""
    words = [shlex.quote(program), "--good", "exec-self", "--hold", "0", "--quiet", "--pause"]
    lines = []
    for number in range(PROCESSES):
        lines.append(" ".join((*words, str(chance.randrange(MOST_PAUSE_MS)), "&")))
        if number % AT_ONCE == AT_ONCE - 1:
            lines.append("wait")
    return "\n".join((*lines, "wait"))


@contextlib.contextmanager
def load():
    """A busy loop for each processor."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()


def times(value):
    """All moments in a part of a recording."""
    if isinstance(value, list):
        for one in value:
            yield from times(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if key in TIMES and one is not None:
                yield one
            else:
                yield from times(one)


def wrong_in_shell(image):
    """What is wrong in an image that publishes nothing."""
    wrong = [f"it has the note {note}" for note in image["notes"]]
    if image["calls"] or image["threads"] or any(snapshot["candidates"] for snapshot in image["snapshots"]):
        wrong.append("it publishes nothing, and a context, a call or a thread is recorded")
    wrong += [f"it has the file {module['path']}" for module in image["modules"]
              if module["path"].endswith("process_writer")]
    return wrong


def wrong_in_context(image, is_replaced):
    """What is wrong in an image that publishes once and withdraws nothing."""
    wrong = [f"it has the note {note}" for note in image["notes"]]
    calls = image["calls"]
    headers = [call["args"][2] for call in calls if call["name"] == "prctl"]
    if not headers:
        return [*wrong, f"its publication is not recorded, only {[call['name'] for call in calls]}"]
    header = headers[0]
    if (calls[-1]["name"] == "execve" and calls[-1]["result"] is None) != is_replaced:
        wrong.append(f"its last call is {calls[-1]['name']} with result {calls[-1]['result']}")
    begins = [[candidate["entries"][0]["begin"] for candidate in snapshot["candidates"]]
              for snapshot in image["snapshots"]]
    while begins and not begins[0]:  # before the publication
        begins.pop(0)
    if not begins or any(begin != [header] for begin in begins):
        wrong.append(f"its context is at {header}, and its snapshots show {begins}")
    late = [moment for moment in times(image) if is_replaced and moment > calls[-1]["entered_ns"]]
    if late:
        wrong.append(f"its exec began at {calls[-1]['entered_ns']}, and it has evidence of {late}")
    return wrong


def check(timeline):
    """Returns the number of execs, and what is wrong."""
    wrong = []
    processes = timeline["processes"][1:]  # without the shell that starts the others
    if len(processes) != PROCESSES:
        wrong.append(f"{len(processes)} processes are recorded, of {PROCESSES}")
    execs = 0
    for process in processes:
        images = process["images"]
        endings = [image["ending"] for image in images]
        execs += endings.count("replaced by exec")
        if endings != ["replaced by exec", "replaced by exec", "exited 0"]:
            wrong.append(f"process {process['pid']}: its images ended so: {endings}")
            continue
        found = [wrong_in_shell(images[0]), wrong_in_context(images[1], True), wrong_in_context(images[2], False)]
        wrong += [f"process {process['pid']}, image {number}: {what}"
                  for number, several in enumerate(found) for what in several]
    return execs, wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--execs", metavar="N", type=int, default=PROCESSES * EXECS,
                        help=f"at least N, in steps of {PROCESSES * EXECS}")
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    programs = os.path.abspath(given.bin)
    execs = 0
    failures = 0
    with load():
        while execs < given.execs and not failures:
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [os.path.join(programs, "ctxconf"), "wrap", "--quiet", "--only", "pctx.header.signature", "--out",
                     "out", "--", "/bin/sh", "-c", script(os.path.join(programs, "process_writer"), chance)],
                    cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S,
                    check=False)
                if done.returncode != 0:
                    print(f"exec_race_test: exit code {done.returncode}\n{done.stdout}{done.stderr}")
                    return 1
                with open(os.path.join(folder, "out", "timeline.json"), encoding="utf-8") as file:
                    counted, wrong = check(json.load(file))
            execs += counted
            failures += len(wrong)
            for what in wrong:
                print(f"exec_race_test: {what}")
    print(f"{execs} execs under load, seed {given.seed}: "
          + (f"{failures} findings" if failures else "nothing was added to an image after its exec began"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
