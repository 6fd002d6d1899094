"""What the tests of the driven programs share: their list of cases, and the catalogue of its requirements.

A test that imports this is called with SOURCE_DIRECTORY BIN_DIRECTORY.
"""

import json
import os
import subprocess
import sys

import jsonschema

SOURCE = sys.argv[1] if len(sys.argv) > 2 else ""
BIN = sys.argv[2] if len(sys.argv) > 2 else ""
DEADLINE_S = 60


def load(*path):
    with open(os.path.join(SOURCE, "conformance", *path), encoding="utf-8") as file:
        return json.load(file)


def table(name):
    """A list that the build makes of the tables of cases; empty without arguments."""
    if not BIN:
        return {"mutants": []}
    with open(os.path.join(BIN, name), encoding="utf-8") as file:
        return json.load(file)


def requirements(catalogue):
    """Those of a file of the catalogue, by their ids; empty without arguments."""
    return {} if not SOURCE else {r["id"]: r for r in load("requirements", catalogue)["requirements"]}


def run(program, *arguments):
    return subprocess.run([os.path.join(BIN, program), *arguments], capture_output=True, text=True, check=False,
                          timeout=DEADLINE_S, stdin=subprocess.DEVNULL)


class TableTests:
    """Tests of every list; a subclass sets `table`."""
    table = {}

    def test_it_keeps_to_its_schema(self):
        schema = load("testees", "mutants.schema.json")
        jsonschema.validate(self.table, schema, jsonschema.Draft202012Validator)

    def test_names_are_unique_and_programs_declared(self):
        names = [e["name"] for e in self.table["mutants"]]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual({e["program"] for e in self.table["mutants"]}, set(self.table["programs"]))
