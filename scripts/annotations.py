#!/usr/bin/env python3
"""Prints what is broken in result.json as annotations of GitHub Actions.

usage: annotations.py RESULT_JSON EXIT_CODE

GitHub shows ten of a kind in one step, so more of them are counted in the last one. There may be no RESULT_JSON.
"""

import json
import os
import sys

MOST = 10
KINDS = {"fail": "error", "crash": "error", "timeout": "error", "harness-error": "error", "warn": "warning"}


def escaped(text, in_title=False):
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(character, code)
    if in_title:
        text = text.replace(":", "%3A").replace(",", "%2C")
    return text


def annotation(kind, title, text):
    return f"::{kind} title={escaped(title, in_title=True)}::{escaped(text)}"


def broken(result):
    """Kind, title and text of each: those that are expected to fail are notices."""
    for problem in result["problems"]:
        kind = KINDS.get(problem["outcome"])
        if kind:
            yield kind, "ctxconf", problem["text"]
    for one in result["results"]:
        kind = KINDS.get(one["outcome"])
        if not kind:
            continue
        if one["expected"] == "as-expected":
            kind = "notice"
        saw = one["findings"][0]["saw"] if one["findings"] else ""
        yield kind, one["id"], f"{one['strength']} {one['text']}\n{saw}"
    for problem in result["expectation_problems"]:
        yield "error", "expectations", f"{problem['text']}\n{problem['mend']}"


def main():
    path, code = sys.argv[1:]
    lists = {"error": [], "warning": [], "notice": []}
    reason = "see the log"
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        reason = result["exit"]["reason"]
        for kind, title, text in broken(result):
            lists[kind].append(annotation(kind, title, text))
    if code != "0" and not lists["error"]:
        lists["error"].append(annotation("error", "ctxconf", f"exit code {code}: {reason}"))
    for kind, lines in lists.items():
        if len(lines) > MOST:
            more = len(lines) - MOST + 1
            lines[MOST - 1:] = [annotation(kind, "ctxconf", f"and {more} more: see the summary of the job")]
        for line in lines:
            print(line)


if __name__ == "__main__":
    main()
