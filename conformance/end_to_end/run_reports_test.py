#!/usr/bin/env python3
"""The reports of `wrap` and `run` about programs that put hostile strings everywhere: a strict reader
accepts the JUnit file, and redacted reports have no word of the program.

usage: run_reports_test.py SOURCE_DIR BIN_DIR
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE, BIN = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
sys.path.append(os.path.join(SOURCE, "conformance", "report"))

from junit_model import check_junit  # pylint: disable=wrong-import-position
from sarif_model import check_sarif  # pylint: disable=wrong-import-position

CTXCONF = os.path.join(BIN, "ctxconf")
HOSTILE = "]]></failure><script>\x1b]0;x\x07\x1b[2J\x9b\u202e\x85\t\r\n&\"'"
SECRET = "hunter2"


class ReportsTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = os.path.join(folder.name, "out")

    def ctxconf(self, *words, codes=(0, 1)):
        done = subprocess.run([CTXCONF, *words], cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=300, check=False,
                              env=os.environ | {"CTXCONF_TEST_SECRET": SECRET})
        self.assertIn(done.returncode, codes, (done.stdout + done.stderr)[-3000:])
        return done

    def bytes_of(self, name):
        with open(os.path.join(self.out, name), "rb") as file:
            return file.read()

    def junit(self):
        return check_junit("junit.xml", self.bytes_of("junit.xml"))

    def sarif(self):
        return check_sarif("results.sarif", json.loads(self.bytes_of("results.sarif")))

    def test_wrap_of_hostile_names_and_values(self):
        value = HOSTILE + "v" * 120000  # a word has at most 128 KiB, a recorded payload 1 MiB
        attributes = [f"--resource=ctxconf.{i}={value}" for i in range(8)]
        self.ctxconf("wrap", "--out", self.out, "--expect-resource", "x=\udcff" + HOSTILE, "--",
                     os.path.join(BIN, "writer_ref"), "--hold", "50ms",
                     "--resource=service.name=" + HOSTILE, *attributes)
        suite, cases, properties = self.junit()
        self.assertEqual(int(suite.get("failures")), 1, "the expected attribute is not there")
        self.assertGreater(len(cases), 100)
        self.assertIn("writer_ref", properties["command"])
        self.sarif()

    def test_the_picture_of_a_wrong_update(self):
        bad = "pctx.update.fields-while-zero"
        self.ctxconf("wrap", "--out", self.out, "--", os.path.join(BIN, "process_writer"), "--bad", bad)
        result = json.loads(self.bytes_of("result.json"))
        (finding,) = next(r for r in result["results"] if r["id"] == bad)["findings"]
        picture = finding["operation"]
        self.assertEqual((picture["kind"], picture["before"]), ("update", "old"))
        (wrong,) = [step for step in picture["steps"] if step.get("wrong")]
        self.assertEqual([change["lane"] for change in wrong["changes"]], ["payload_size"])
        self.assertRegex(wrong["at"], r"^header\.h:\d+ in .*bad_fields_while_zero\(\)$")
        self.assertIn("no-timestamp", [step["finds"] for step in picture["steps"]])
        self.assertEqual([o["operation"]["kind"] for o in result["operations"]], ["publication"])
        # The page is made from this alone.
        page = self.bytes_of("report.html")
        self.assertEqual(page.count(b"<svg class=\"operation\""), 2)
        path = os.path.join(self.out, "result.json")
        self.assertEqual(self.ctxconf("report", path, "--html").stdout, page)
        redacted = self.ctxconf("report", path, "--html", "--redact").stdout
        self.assertEqual(redacted.count(b"<svg class=\"operation\""), 2)
        self.assertNotIn(b"process_writer.cc", redacted)

    def test_code_scanning_gets_the_line_from_the_recording(self):
        bad = "pctx.update.fields-while-zero"
        self.ctxconf("wrap", "--out", self.out, "--", os.path.join(BIN, "process_writer"), "--bad", bad)
        (shown,) = self.sarif()["results"]
        self.assertEqual(shown["locations"][0]["physicalLocation"],
                         {"artifactLocation": {"uri": "file://" + os.path.join(BIN, "process_writer")},
                          "region": {"startLine": 1}})
        result = json.loads(self.bytes_of("result.json"))
        (finding,) = next(r for r in result["results"] if r["id"] == bad)["findings"]
        (frame,) = finding["code"]
        # The program may have been compiled in another folder than this one, if ccache is used.
        header = "conformance/testees/writer/header.h"
        root = frame["file"].removesuffix("/" + header)
        self.assertTrue(os.path.isabs(root) and root != frame["file"], frame)
        recording = os.path.join(self.out, "timeline.json")
        relative = os.path.relpath(root, self.folder) if os.path.isdir(root) else root
        for roots, uri in ((("/",), frame["file"][1:]), ((root,), header), ((relative,), header),
                           ((SOURCE, root), header)):
            self.out = os.path.join(self.folder, "again")
            self.ctxconf("replay", "--out", self.out, *(f"--source-root={r}" for r in roots), recording)
            run = self.sarif()
            (replayed,) = run["results"]
            self.assertEqual(replayed["locations"][0]["physicalLocation"],
                             {"artifactLocation": {"uri": uri, "uriBaseId": "SRCROOT"},
                              "region": {"startLine": frame["line"]}})
        self.assertEqual(run["originalUriBaseIds"]["SRCROOT"]["uri"], f"file://{SOURCE}/")
        report = self.ctxconf("report", "--sarif", os.path.join(self.out, "result.json")).stdout
        self.assertEqual(report, self.bytes_of("results.sarif"))

    def test_run_of_hostile_adapters(self):
        for kind in ("refuses-with-escapes", "dies-with-escapes", "hello-hostile-names",
                     "junk-before", "exits-in-hello"):
            with self.subTest(kind=kind):
                done = self.ctxconf("run", "--out", self.out, "--only", "pctx.publish.*", "--",
                                    os.path.join(BIN, "bad_adapter"), kind, codes=(0, 1, 3))
                suite, _, _ = self.junit()
                red = int(suite.get("failures")) + int(suite.get("errors")) > 0
                self.assertEqual(red, done.returncode != 0)

    def test_run_with_hostile_expectations(self):
        expect = os.path.join(self.folder, HOSTILE[:20].replace("/", "|"))
        with open(expect, "w", encoding="utf-8") as file:
            file.write("# ctxconf-expect 1\n"
                       'fail pctx.update.visible issue="]]></failure><script>" saw="]]>"\n'
                       'fail ]]></failure> issue=x\n')
        self.ctxconf("run", "--out", self.out, "--only", "pctx.update.*", "--expect", expect, "--",
                     os.path.join(BIN, "driven_process_writer"), "--bad", "pctx.update.visible")
        suite, _, _ = self.junit()
        names = [c.get("name") for c in suite if c.get("classname") == "ctxconf.expectations"]
        self.assertEqual(names, ["line 3", "line 2"])

    def test_redacted_reports_have_no_word_of_the_program(self):
        program = os.path.join(self.folder, "secretly")
        with open(program, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho {SECRET} >&2\nexec \"$@\" {SECRET}\n")
        os.chmod(program, 0o755)
        bad = os.path.join(BIN, "bad_adapter")
        writer = os.path.join(BIN, "driven_process_writer")
        crash = os.path.join(self.folder, "crash")
        with open(crash, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho {SECRET} >&2\nexec {bad} dies-in-update\n")
        os.chmod(crash, 0o755)
        runs = (["run", "--only", "pctx.*", "--", program, writer, "--bad", "pctx.update.visible"],
                ["run", "--only", "pctx.*", "--", crash, SECRET],
                ["run", "--", program, bad, "exits-in-hello"],
                ["wrap", "--", os.path.join(BIN, "process_writer"), "--bad",
                 "pctx.header.payload-size", "--hold", "50"])
        for words in runs:
            with self.subTest(words=words):
                self.ctxconf(words[0], "--out", self.out, *words[1:], codes=(0, 1, 2, 3))
                result = os.path.join(self.out, "result.json")
                hidden = [SECRET, os.path.join(self.folder, "se"), os.path.join(self.folder, "cr"),
                          "driven_process", "bad_adapter", "process_writer", "ctxconf-checkout",
                          "ctxconf-state", "about to die", "libsdk", "checkout"]
                text = self.bytes_of("result.json").decode()
                self.assertTrue([word for word in hidden if word in text], "nothing to hide")
                for form in ("json", "html", "markdown", "junit", "console"):
                    done = self.ctxconf("report", result, "--redact", "--" + form, codes=(0,))
                    found = [word for word in hidden
                             if word in done.stdout.decode()]
                    self.assertEqual(found, [], form)


if __name__ == "__main__":
    unittest.main()
