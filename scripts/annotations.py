#!/usr/bin/env python3
"""Prints what is broken in result.json as annotations of GitHub Actions.

usage: annotations.py RESULT_JSON EXIT_CODE

An annotation is at the line of code that broke the requirement, if that is known and in the repository. GitHub shows
ten of a kind in one step, so more of them are counted in the last one. There may be no RESULT_JSON.
"""

import json
import os
import sys

MOST = 10
KINDS = {"fail": "error", "crash": "error", "timeout": "error", "harness-error": "error", "warn": "warning"}


def inert(text):
    """Without characters that control, reorder or hide text."""
    return "".join(c if c.isprintable() else "".join(f"\\x{b:02x}" for b in c.encode()) for c in text)


def escaped(text, in_property=False):
    for character, code in (("%", "%25"), ("\n", "%0A")):
        text = text.replace(character, code)
    if in_property:
        text = text.replace(":", "%3A").replace(",", "%2C")
    return text


def annotation(kind, title, lines, path="", line=0):
    properties = {"file": path, "line": str(line)} if path and line else {}
    properties["title"] = title
    listed = ",".join(f"{name}={escaped(inert(value), in_property=True)}" for name, value in properties.items())
    text = "\n".join(inert(one) for one in lines if one)
    return f"::{kind} {listed}::{escaped(text)}"


def place(finding):
    """Path and line of the innermost code in the repository."""
    for frame in finding.get("code", []):
        if "path" in frame and "line" in frame:
            return frame["path"], frame["line"]
    return "", 0


def broken(result):
    """Kind, title, lines of text, path and line of each: those that are expected to fail are notices."""
    for problem in result["problems"]:
        kind = KINDS.get(problem["outcome"])
        if kind:
            yield kind, "ctxconf", [problem["text"]]
    for one in result["results"]:
        kind = KINDS.get(one["outcome"])
        if not kind:
            continue
        if one["expected"] == "as-expected":
            kind = "notice"
        worst = [f for f in one["findings"] if f["outcome"] == one["outcome"]] or [{"saw": ""}]
        shown = next((f for f in worst if place(f)[0]), worst[0])
        yield kind, one["id"], [f"{one['strength']} {one['text']}", shown["saw"]], *place(shown)
    expectations = result["run"].get("source", {}).get("expectations", "")
    for problem in result["expectation_problems"]:
        kind = "error" if problem["exit_code"] else "warning"
        yield kind, "expectations", [problem["text"], problem["mend"]], expectations, problem["line"]


def main():
    path, code = sys.argv[1:]
    lists = {"error": [], "warning": [], "notice": []}
    reason = "see the log"
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        reason = result["exit"]["reason"]
        for kind, *rest in broken(result):
            lists[kind].append(annotation(kind, *rest))
    if code != "0" and not lists["error"]:
        lists["error"].append(annotation("error", "ctxconf", [f"exit code {code}: {reason}"]))
    for kind, lines in lists.items():
        if len(lines) > MOST:
            more = len(lines) - MOST + 1
            lines[MOST - 1:] = [annotation(kind, "ctxconf", [f"and {more} more: see the summary of the job"])]
        for line in lines:
            print(line)


if __name__ == "__main__":
    main()
