#!/usr/bin/env python3
"""Checks protocol.schema.json against protocol_lines.jsonl, which has valid lines, and invalid lines
with the name of the wrong member.

usage: protocol_test.py SOURCE_DIR
"""

import json
import os
import sys
import unittest

import jsonschema

FOLDER = os.path.join(os.path.abspath(sys.argv.pop(1)), "conformance", "testee")

with open(os.path.join(FOLDER, "protocol.schema.json"), encoding="utf-8") as file:
    SCHEMA = json.load(file)
with open(os.path.join(FOLDER, "protocol_lines.jsonl"), encoding="utf-8") as file:
    LINES = [json.loads(line) for line in file if line.strip()]
RIGHT = [entry for entry in LINES if "wrong" not in entry]
WRONG = [entry for entry in LINES if "wrong" in entry]


def validator(definition):
    return jsonschema.Draft7Validator(
        {"$ref": f"#/definitions/{definition}", "definitions": SCHEMA["definitions"]})


def faults(entry):
    """The names of the missing or wrong members; for the whole line, the keyword."""
    found, errors = set(), list(validator(entry["as"]).iter_errors(entry["line"]))
    while errors:
        error = errors.pop()
        errors += error.context
        if error.validator in ("required", "dependencies"):
            found |= {name for name in error.message.split("'") if name not in error.instance}
        elif error.absolute_path:
            found.add(str(error.absolute_path[-1]))
        else:
            found.add(error.validator)
    return found


class Schema(unittest.TestCase):
    def test_is_a_schema(self):
        jsonschema.Draft7Validator.check_schema(SCHEMA)

    def test_right_lines(self):
        whole = jsonschema.Draft7Validator(SCHEMA)
        for entry in RIGHT:
            with self.subTest(json.dumps(entry["line"])):
                self.assertEqual(faults(entry), set())
                self.assertTrue(whole.is_valid(entry["line"]))

    def test_wrong_lines(self):
        for entry in WRONG:
            with self.subTest(json.dumps(entry["line"])):
                self.assertIn(entry["wrong"], faults(entry))

    def test_every_operation_and_capability_has_lines(self):
        definitions = SCHEMA["definitions"]
        operations = set(definitions["operation"]["properties"]["op"]["enum"])
        self.assertEqual({e["line"]["op"] for e in RIGHT if e["as"] == "request"}, operations)
        said = set().union(*(e["line"]["caps"] for e in RIGHT
                             if e["as"] == "hello_reply" and e["line"]["ok"]))
        self.assertLessEqual(set(definitions["caps"]["properties"]), said)

    def test_both_sides_tell_lines_apart(self):
        for entry in RIGHT:
            line = entry["line"]
            kinds = {kind for kind in ("request", "go", "reply", "event")
                     if validator(kind).is_valid(line)}
            self.assertEqual(len(kinds), 1, line)


if __name__ == "__main__":
    unittest.main()
