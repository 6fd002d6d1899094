"""A model of SARIF 2.1.0 as far as ctxconf writes it: objects, their members and values, and the limits of GitHub."""

import re

from page_reader import check_inert

INTEGER, FLAG = int, bool
TEXT = r"(?s).{1,8000}"
WORD = r"(?s).{1,4100}"  # 1000 bytes, some of them as \xNN
LEVEL = "error|warning|note"
HASH = "[0-9a-f]{32}"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
# A path that leads out of nothing: no scheme, no root, no parent.
RELATIVE = r"(?!/)(?!(.*/)?\.\.(/|$))([A-Za-z0-9._~/-]|%[0-9A-F]{2})+"
ABSOLUTE = r"file:///([A-Za-z0-9._~/-]|%[0-9A-F]{2})*"
# Object: its members. A value is a form of text, a type, the name of an object, or [one of these] for a list; the
# members with ? may be missing.
MODEL = {
    "log": {"$schema": r"https://json\.schemastore\.org/sarif-2\.1\.0\.json", "version": r"2\.1\.0", "runs": ["run"]},
    "run": {"tool": "tool", "invocations": ["invocation"], "originalUriBaseIds?": "bases", "results": ["result"],
            "properties": "about run"},
    "tool": {"driver": "driver"},
    "driver": {"name": "ctxconf", "version": WORD, "rules": ["rule"], "properties?": "about driver"},
    "about driver": {"commit": WORD},
    "about run": {"mode": ".*", "specification": WORD, "kernel": ".*", "architecture": ".*", "summary": WORD},
    "bases": {"SRCROOT": "base"},
    "base": {"uri": ABSOLUTE + "(?<=/)"},
    "invocation": {"executionSuccessful": FLAG, "exitCode": INTEGER, "exitCodeDescription": ".*", "commandLine": ".*",
                   "startTimeUtc?": TIME, "toolExecutionNotifications?": ["notification"]},
    "notification": {"level": LEVEL, "message": "message"},
    "message": {"text": TEXT},
    "rule": {"id": r"[a-z0-9]+([.-][a-z0-9]+)*", "shortDescription": "short", "fullDescription": "message",
             "help": "help", "helpUri?": "https://.*", "defaultConfiguration": "configuration",
             "properties": "about rule"},
    "short": {"text": r"(?s).{1,1024}"},
    "help": {"text": TEXT, "markdown": TEXT},
    "configuration": {"level": LEVEL},
    "about rule": {"problem.severity": "error|warning|recommendation", "tags?": [WORD]},
    "result": {"ruleId": WORD, "ruleIndex": INTEGER, "level": LEVEL, "message": "message", "locations": ["location"],
               "partialFingerprints": "fingerprints", "suppressions?": ["suppression"], "occurrenceCount?": INTEGER,
               "stacks?": ["stack"], "properties?": "about result"},
    "about result": {"outcome": "fail|warn|info|crash|timeout", "image": ".*", "level": ".*", "again?": ".*"},
    "fingerprints": {"ctxconf/v1": HASH, "primaryLocationLineHash?": HASH + ":1"},
    "suppression": {"kind": "external", "status": "accepted", "justification": WORD},
    "stack": {"frames": ["frame"]},
    "frame": {"location": "location"},
    "location": {"physicalLocation?": "physical", "logicalLocations?": ["logical"]},
    "logical": {"name?": WORD, "fullyQualifiedName": WORD, "kind": "function|module"},
    "physical": {"artifactLocation": "artifact", "region": "region"},
    "artifact": {"uri": f"{RELATIVE}|{ABSOLUTE}", "uriBaseId?": "SRCROOT"},
    "region": {"startLine": INTEGER},
}
MOST = {"results": 5000, "locations": 1000, "tags": 10, "frames": 100}


def check_value(where, form, value):
    if isinstance(form, list):
        assert isinstance(value, list), f"{where}: not a list"
        assert len(value) <= MOST.get(where.rsplit(".", 1)[-1], 1000), f"{where}: {len(value)} elements"
        for one in value:
            check_value(where, form[0], one)
    elif form in (INTEGER, FLAG):
        assert type(value) is form, f"{where}: {value!r}"
        assert form is FLAG or 0 <= value < 2 ** 31, f"{where}: {value}"
    elif form in MODEL:
        check_object(where, form, value)
    else:
        assert isinstance(value, str) and re.fullmatch(form, value), f"{where}: {value!r:.300}"
        check_inert(where, value)


def check_object(where, name, value):
    assert isinstance(value, dict), f"{where}: not an object"
    forms = {key.rstrip("?"): form for key, form in MODEL[name].items()}
    for key in MODEL[name]:
        assert key.endswith("?") or key in value, f"{where}: no {key}"
    for key, member in value.items():
        assert key in forms, f"{where}: {key}"
        check_value(f"{where}.{key}", forms[key], member)


def texts_of(value):
    """Texts that a viewer shows as messages."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, member in value.items():
            if key in ("text", "markdown"):
                yield member
            else:
                yield from texts_of(member)


def check_sarif(where, log):
    """Checks the log and returns its only run."""
    check_object(where, "log", log)
    run, = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules), f"{where}: two rules with one id"
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"], f"{where}: {result['ruleId']}"
        location, = result["locations"]
        artifact, region = (location["physicalLocation"][name] for name in ("artifactLocation", "region"))
        assert artifact["uri"].startswith("file:") == ("uriBaseId" not in artifact), f"{where}: {artifact}"
        assert region["startLine"] > 0, f"{where}: {region}"
    for text in texts_of(log):
        assert not re.search(r"\]\(", text), f"{where}: a link in {text:.300}"
        assert not re.search(r"(?<!\{)(\{\{)*\{(?!\{)", text), f"{where}: a placeholder in {text:.300}"
    return run
