#!/usr/bin/env python3
"""Reads the reports of the sample runs with independent parsers.

usage: check_reports.py REPORT_SAMPLES SCHEMA DIRECTORY
"""

import copy
import json
import pathlib
import re
import subprocess
import sys

import jsonschema

from junit_model import check_junit
from page_reader import check_contrast, check_inert, check_page
from sarif_model import check_sarif

RUNS = ["ordinary", "silent", "two_images", "expectations", "hostile", "huge", "empty"]


def check_json(path, validator):
    text = path.read_bytes()
    assert text.isascii(), f"{path}: not ASCII"
    assert not set(b"<>&\x1b\0\x7f") & set(text), f"{path}: a byte that must be quoted"
    value = json.loads(text)
    # The validator needs minutes for the whole huge run; its beginning has one of everything.
    for result in value["results"]:
        del result["findings"][4:]
    del value["images"][4:]
    validator.validate(value)
    # The schema must reject something.
    for broken in (value | {"version": 2}, value | {"extra": 1},
                   value | {"totals": value["totals"] | {"pass": "1"}}):
        assert not validator.is_valid(broken), f"{path}: the schema accepts anything"
    if value["results"]:
        bad = copy.deepcopy(value)
        bad["results"][0]["findings"][0]["outcome"] = "ok"
        assert not validator.is_valid(bad), f"{path}: the schema accepts any outcome"
    return value


def check_xml(path):
    text = path.read_bytes()
    suite, cases, properties = check_junit(path, text)
    assert {"kernel", "arch", "spec"} <= set(properties), f"{path}: {properties}"
    # The model must reject something.
    for broken in ((b" tests=", b" test="), (b"<testcase ", b"<testcase extra='1' "),
                   (b"<properties>", b"<system-out/><properties>"), (b"</testsuite>", b"x</testsuite>")):
        try:
            check_junit(path, text.replace(*broken, 1))
        except AssertionError:
            continue
        assert broken[0] not in text, f"{path}: the model accepts {broken[1]}"
    return suite, cases


def check_sarif_report(path, value):
    text = path.read_bytes()
    assert text.isascii() and not set(b"<>&\x1b\0\x7f") & set(text), f"{path}: a byte that must be quoted"
    log = json.loads(text)
    run = check_sarif(path, log)
    judged = {r["id"] for r in value["results"] if r["outcome"] not in ("na", "unobservable")}
    assert judged <= {rule["id"] for rule in run["tool"]["driver"]["rules"]}, path
    broken = {r["id"] for r in value["results"] if r["outcome"] not in ("na", "unobservable", "pass")}
    shown = {result["ruleId"] for result in run["results"]}
    assert broken <= shown and not shown & (judged - broken), path
    suppressed = {result["ruleId"] for result in run["results"] if "suppressions" in result}
    assert suppressed == {r["id"] for r in value["results"] if r["expected"] == "as-expected"} & broken, path
    assert value["exit"]["code"] == 0 or "error" in {result["level"] for result in run["results"]}, path
    # The model must reject something.
    for change in ({"version": "2.0.0"}, {"runs": [run | {"results": [{}]}]}, {"extra": 1},
                   {"runs": [run | {"invocations": [run["invocations"][0] | {"exitCode": "1"}]}]},
                   {"runs": [run | {"results": [result | {"message": {"text": "[a](b)"}} for result in run["results"]]
                                    or [{}]}]}):
        try:
            check_sarif(path, log | change)
        except AssertionError:
            continue
        assert False, f"{path}: the model accepts {list(change)}"


def check_html(path, value):
    page = check_page(path, path.read_text(encoding="utf-8"))
    check_contrast(page.raw["style"][0])
    rows = page.rows()
    for result in value["results"]:
        row = rows.pop(result["id"])
        assert row["data-outcome"] == result["outcome"], path
        broken = result["outcome"] in ("fail", "warn", "crash", "timeout", "harness-error")
        assert ("open" in row) == (broken and result["expected"] != "as-expected"), f"{path}: {row}"
    assert not rows, path
    text = "".join(page.texts)
    assert f"of {value['totals']['selected']} selected" in text, path
    assert f"Exit {value['exit']['code']}" in text, path


def check_markdown(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < 512 * 1024, path
    check_inert(path, text)
    # Outside code blocks and spans all text is ours, so no text of a run is markup.
    outside = []
    fence = None
    for line in text.split("\n"):
        ticks = re.match("`{3,}", line)
        if fence is not None:
            if line == fence:
                fence = None
            assert not ticks or len(ticks[0]) < len(fence or line + "`"), f"{path}: {line}"
        elif ticks:
            fence = ticks[0]
        else:
            outside.append(re.sub("`[^`]+`", lambda span: "`" + "|" * span[0].count("|"), line))
    assert fence is None, path
    for line in outside:
        line = re.sub("</?(details|summary)>", "", line)
        assert re.fullmatch(r"[\w\s#*().:;,…/|`-]*", line), f"{path}: {line}"
        assert "@" not in line and "http" not in line, f"{path}: {line}"
        assert line.count("|") in (0, 4), f"{path}: {line}"


def main():
    program, schema_path, directory = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    subprocess.run([program, str(directory)], check=True, timeout=100)

    schema = json.loads(schema_path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert {path.name for path in directory.iterdir()} == {
        f"{run}.{end}" for run in RUNS for end in ("json", "xml", "strict.xml", "sarif", "html", "md", "txt")}

    for run in RUNS:
        value = check_json(directory / f"{run}.json", validator)
        suite, cases = check_xml(directory / f"{run}.xml")
        strict, _ = check_xml(directory / f"{run}.strict.xml")
        check_sarif_report(directory / f"{run}.sarif", value)
        check_html(directory / f"{run}.html", value)
        check_markdown(directory / f"{run}.md")
        check_inert(run, (directory / f"{run}.txt").read_text(encoding="utf-8"))

        # A report is red exactly when the run was.
        red = int(suite.get("failures")) + int(suite.get("errors")) > 0
        assert red == (value["exit"]["code"] != 0), run
        warned = value["totals"]["warn"] > 0
        assert (int(strict.get("failures")) > int(suite.get("failures"))) == (
            warned or run in ("two_images", "hostile")), run
        assert len(cases) >= len(value["results"]), run
    for path in directory.iterdir():
        assert path.stat().st_size < (32 << 20), f"{path}: {path.stat().st_size} bytes"
    print(f"{7 * len(RUNS)} files are right")


if __name__ == "__main__":
    main()
