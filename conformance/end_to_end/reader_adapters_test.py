#!/usr/bin/env python3
"""Runs `ctxconf reader` with the adapters of readers, and holds each of their lines against the
schema.

usage: reader_adapters_test.py SOURCE_DIR BIN_DIR
"""

import collections
import json
import os
import subprocess
import sys
import tempfile
import unittest

import jsonschema

SOURCE, BIN = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
DEADLINE_S = 240
# What no scene shows on this host decides nothing.
NOT_HERE = {"pctx.reader.name-anon-shmem", "pctx.reader.name-anon", "pctx.reader.byte-order",
            "tctx.reader.byte-order", "pctx.reader.thirty-two-bit-target"}
with open(os.path.join(SOURCE, "conformance/testee/protocol.schema.json"), encoding="utf-8") as file:
    DEFINITIONS = json.load(file)["definitions"]


def validator(definition):
    return jsonschema.Draft7Validator(
        {"$ref": f"#/definitions/{definition}", "definitions": DEFINITIONS})


class Judged(unittest.TestCase):
    def outcomes(self, code, adapter, *arguments, options=()):
        """The ids by outcome."""
        with tempfile.TemporaryDirectory() as out:
            ran = subprocess.run(
                [os.path.join(BIN, "ctxconf"), "reader", *options, "--out", out, "--",
                 sys.executable, os.path.join(BIN, adapter), *arguments],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S,
                check=False)
            self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
            with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
                result = json.load(file)
        ids = collections.defaultdict(set)
        for one in result["results"]:
            ids[one["outcome"]].add(one["id"])
        return ids

    def test_a_reader_of_process_contexts_and_records(self):
        ids = self.outcomes(0, "reader.py")
        self.assertEqual(set(ids) - {"pass", "na", "unobservable"}, set(), ids)
        self.assertEqual(ids["unobservable"] - NOT_HERE, set())
        self.assertGreaterEqual(len(ids["pass"]), 66)

    def test_one_that_looks_by_itself(self):
        ids = self.outcomes(0, "reader.py", "--watch", "0.05", options=("--jobs", "2"))
        self.assertEqual(set(ids) - {"pass", "na", "unobservable"}, set(), ids)
        self.assertEqual(ids["unobservable"] - NOT_HERE, set())
        self.assertGreaterEqual(len(ids["pass"]), 66)

    def test_the_smallest_one(self):
        ids = self.outcomes(0, "reader_stub.py")
        self.assertEqual(set(ids) - {"pass", "na", "unobservable"}, set(), ids)
        self.assertGreaterEqual(len(ids["pass"]), 20)


class Lines(unittest.TestCase):
    def ask(self, adapter, *requests):
        """The replies to hello, the requests and bye."""
        hello = {"op": "hello", "v": 1, "suite": "0.1.0", "spec": {}, "example.unknown": 1}
        asked = [{"id": i, **one} for i, one in enumerate([hello, *requests, {"op": "bye"}])]
        for one in asked:
            validator("request").validate(one)
        ran = subprocess.run([os.path.join(BIN, adapter)], check=True, capture_output=True, text=True,
                             input="".join(json.dumps(one) + "\n" for one in asked),
                             timeout=DEADLINE_S)
        said = [json.loads(line) for line in ran.stdout.splitlines()]
        self.assertEqual([one["id"] for one in said], list(range(len(asked))))
        for one in said:
            validator("reply").validate(one)
        validator("hello_reply").validate(said[0])
        return said[1:-1]

    def test_replies_follow_the_schema(self):
        record = {"op": "reader.record", "hex": "01" * 24 + "01030500" + "0003616263", "key_map": ["a"]}
        expected = {"trace_id": "01" * 16, "span_id": "01" * 8, "flags": 3, "attributes": {"a": "abc"}}
        for adapter in ("reader.py", "reader_stub.py"):
            with self.subTest(adapter):
                replies = self.ask(adapter, record, {"op": "reader.process", "pid": os.getpid()},
                                   {"op": "process.publish", "resource": {"attributes": []}})
                validator("reader_reply").validate(replies[0])
                self.assertEqual(replies[0]["record"], expected)
                self.assertEqual(replies[1]["result"], "absent")
                self.assertEqual(replies[2]["error"]["kind"], "unsupported")

    def test_end_with_their_input(self):
        for adapter in ("reader.py", "reader_stub.py"):
            ran = subprocess.run([os.path.join(BIN, adapter)], stdin=subprocess.DEVNULL,
                                 timeout=DEADLINE_S, check=False)
            self.assertEqual(ran.returncode, 0)


if __name__ == "__main__":
    unittest.main()
