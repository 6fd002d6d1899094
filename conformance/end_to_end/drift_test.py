#!/usr/bin/env python3
"""Runs `ctxconf drift` as its users do, on small texts and catalogues made for the test.

usage: drift_test.py SOURCE_DIR BIN_DIR
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest

BIN = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else ""
del sys.argv[1:3]

CTXCONF = os.path.join(BIN, "ctxconf")
CLEAN, FAILED, USAGE = range(3)
DEADLINE_S = 60

BOATS = """# Boats

Boats float. They carry people.

## Hull

The hull MUST be dry.
- It has a keel.
"""
# For each requirement: the section, the lines, the sentences and their source text.
REQUIREMENTS = [("pctx.boat.float", "boats", [3, 3], [1, 1], "Boats float."),
                ("pctx.boat.carry", "boats", [3, 3], [2, 2], "They carry people."),
                ("pctx.hull.dry", "hull", [7, 8], [1, 2], "The hull MUST be dry. It has a keel.")]


def blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def catalogue(otep=4719, text=BOATS.encode(), requirements=REQUIREMENTS):
    def requirement(name, anchor, lines, sentences, source):
        return {"id": name, "anchor": anchor, "lines": lines, "sentences": sentences,
                "fingerprint": hashlib.sha256(source.encode()).hexdigest(), "strength": "MUST",
                "basis": "keyword", "severity": "error", "role": "writer",
                "text": "A rule of ours.", "why": "People would drown.",
                "observe": {"level": "snapshot", "modes": ["wrap"]},
                "check": "Look at the boat. Prints what it saw.",
                "mutant": f"Breaks {name} in its way.", "variants": [], "excluded": None}
    return json.dumps({"otep": otep, "revision": "2026-01-02", "source_blob": blob(text),
                       "requirements": [requirement(*r) for r in requirements]}).encode()


class DriftTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = holder.name
        self.write("boats.json", catalogue())

    def write(self, name, content):
        with open(os.path.join(self.dir, name), "wb") as handle:
            handle.write(content)
        return name

    def drift(self, *args, stdin=b""):
        done = subprocess.run([CTXCONF, "drift", *args], input=stdin, cwd=self.dir,
                              capture_output=True, timeout=DEADLINE_S, check=False)
        self.assertNotRegex(done.stdout + done.stderr, rb"[\x00-\x09\x0b-\x1f\x7f]", "not escaped")
        return done

    def check(self, code, content, *texts, args=()):
        done = self.drift("--catalogue", "boats.json", "--otep",
                          "4719=" + self.write("new.md", content), *args)
        said = (done.stdout + done.stderr).decode()
        self.assertEqual(done.returncode, code, said)
        for text in texts:
            self.assertIn(text, said)
        return done.stdout

    def refuses(self, text, *args, stdin=b""):
        done = self.drift(*args, stdin=stdin)
        self.assertEqual(done.returncode, USAGE, done.stderr)
        self.assertEqual(done.stdout, b"")
        self.assertIn(text, done.stderr.decode())

    def test_the_pinned_text(self):
        self.check(CLEAN, BOATS.encode(), "the pinned text", "3 as pinned, 0 moved")
        done = self.drift("--catalogue", "boats.json", "--otep", "4719=-", stdin=BOATS.encode())
        self.assertEqual(done.returncode, CLEAN)

    def test_line_ends_are_no_change(self):
        for text in (BOATS.rstrip("\n"), BOATS.replace("\n", "\r\n"), BOATS.replace("\n", "\r")):
            self.check(CLEAN, text.encode(), "the pinned text is " + blob(BOATS.encode())[:12])

    def test_a_byte_order_mark_is_no_change(self):
        self.check(CLEAN, b"\xef\xbb\xbf" + BOATS.encode(), "3 as pinned, 0 moved")

    def test_sections_without_a_name(self):
        above = BOATS.replace("Boats float. ", "")
        new = "Boats float.\n\n" + above
        self.check(FAILED, new.encode(), "MOVED     pctx.boat.float   was line 3 #boats",
                   "now    line 1 before the first heading, sentences 1-1")
        out = json.loads(self.check(FAILED, new.encode(), args=("--json",)))
        self.assertEqual(out["texts"][0]["requirements"][0]["now"],
                         {"lines": [1, 1], "sentences": [1, 1]})
        self.check(FAILED, (above + "\n## \u26f5\nBoats float.\n").encode(),
                   "now    line 11 under a heading without a name, sentences 1-1")

    def test_each_drift_is_said(self):
        new = BOATS.replace("They carry people.\n", "They may carry people.\n").replace(
            "## Hull", "More.\n\n## Hull")
        self.check(FAILED, new.encode(), "CHANGED   pctx.boat.carry   was line 3 #boats",
                   "now    lines 3-5 #boats: They may carry people. More.",
                   "MOVED     pctx.hull.dry   was lines 7-8 #hull",
                   "now    lines 9-10 #hull, sentences 1-2",
                   "1 as pinned, 1 moved, 1 changed, 0 vanished, 0 rest on no sentence")
        self.check(FAILED, BOATS[:BOATS.index("##")].encode(), "VANISHED  pctx.hull.dry",
                   "rule   A rule of ours.", "now    the section is gone")
        self.check(FAILED, BOATS.replace("Boats float. ", "").encode(),
                   "VANISHED  pctx.boat.float", "now    no such sentence in #boats")

    def test_json(self):
        new = BOATS.replace("a keel", "two keels").replace("Boats float.", "Today: Boats float.")
        out = json.loads(self.check(FAILED, new.encode(), args=("--json",)))
        self.assertEqual((out["format"], out["version"]), ("ctxconf-drift", 1))
        text, = out["texts"]
        self.assertEqual(text["blob"], blob(new.encode()))
        self.assertEqual(text["source_blob"], blob(BOATS.encode()))
        self.assertIs(text["clean"], False)
        self.assertEqual(text["totals"], {"requirements": 3, "as-pinned": 1, "moved": 0,
                                          "changed": 2, "vanished": 0, "no-sentence": 0})
        self.assertEqual(text["requirements"][1], {
            "id": "pctx.hull.dry", "drift": "changed", "anchor": "hull", "lines": [7, 8],
            "sentences": [1, 2], "now": {"anchor": "hull", "lines": [7, 8],
                                         "text": "The hull MUST be dry. It has two keels."}})
        clean = json.loads(self.check(CLEAN, BOATS.encode(), args=("--json",)))
        self.assertEqual(clean["texts"][0]["requirements"], [])

    def test_cite(self):
        self.write("boats.md", BOATS.encode())
        cited = self.drift("--otep", "4719=boats.md", "--cite", "boats")
        self.assertEqual((cited.returncode, cited.stderr), (0, b""))
        self.assertIn(b"  1  line 3: Boats float.\n  2  line 3: They carry people.\n", cited.stdout)
        members = self.drift("--otep", "4719=boats.md", "--cite", "boats:2")
        self.assertEqual(members.returncode, 0, members.stderr)
        expected = json.loads(catalogue())["requirements"][1]
        self.assertEqual(json.loads(members.stdout),
                         {name: expected[name] for name in ("anchor", "lines", "sentences", "fingerprint")})
        for more in ("--json", "--catalogue=boats.json"):
            self.refuses("excludes", "--otep", "4719=boats.md", "--cite", "boats", more)
        self.refuses("--cite: name one text", "--otep", "4719=boats.md", "--otep", "4947=boats.md",
                     "--cite", "boats")
        self.refuses("no such OTEP", "--otep", "4720=boats.md", "--cite", "boats")
        for wrong, text in (("", "no sentences in the section"), ("trains", "no sentences in the section trains"), ("boats:0", "is not a range"),
                            ("boats:2-9", "is not a range"), ("boats:1-", "is not a range"),
                            ("boats:2-1", "is not a range"), ("boats:1-2x", "is not a range")):
            self.refuses(text, "--otep", "4719=boats.md", "--cite", wrong)

    def test_two_texts_at_once(self):
        self.write("threads.json", catalogue(
            4947, requirements=[("tctx" + r[0][4:], *r[1:]) for r in REQUIREMENTS]))
        self.write("same.md", BOATS.encode())
        self.write("other.md", BOATS.replace("dry", "wet").encode())
        both = ("--catalogue", "boats.json", "--catalogue", "threads.json")
        done = self.drift(*both, "--otep", "4719=same.md", "--otep", "4947=other.md")
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"OTEP 4719@2026-01-02: same.md: the pinned text", done.stdout)
        self.assertIn(b"CHANGED   tctx.hull.dry", done.stdout)
        done = self.drift(*both, "--otep", "4719=same.md", "--otep", "4947=same.md")
        self.assertEqual(done.returncode, CLEAN)

    def test_a_hostile_text_is_inert(self):
        evil = BOATS.replace("They carry people.", "They \x1b[31mcarry\0 \u202epeople\x07.")
        self.check(FAILED, evil.encode(), "CHANGED   pctx.boat.carry", "\\x1b[31mcarry\\x00")
        long_line = BOATS.replace("They carry people.", "They carry " + "people " * 50000 + ".")
        self.check(FAILED, long_line.encode(), "CHANGED   pctx.boat.carry", "…")
        self.check(FAILED, BOATS.replace("## Hull", "```\n## Hull").encode(),
                   "VANISHED  pctx.hull.dry", "now    the section is gone")

    def test_what_is_no_text_of_the_otep(self):
        at = ("--catalogue", "boats.json", "--otep", "4719=new.md")
        for content, text in ((b"", "no Markdown heading"), (b"<html>", "no Markdown heading"),
                              (b"# Boats\n\xff", "not UTF-8"),
                              (b"# Trains\n\nRun.\n", "no section and no sentence of OTEP 4719")):
            self.write("new.md", content)
            self.refuses(text, *at)
        with open(os.path.join(self.dir, "new.md"), "wb") as handle:
            handle.write(BOATS.encode())
            handle.truncate(100_000_000)
        self.refuses("File too large", *at)

    def test_usage(self):
        self.refuses("--otep is required")
        self.refuses("boats is not NUMBER=FILE", "--otep", "boats")
        self.refuses("is not NUMBER=FILE", "--otep", "4719=")
        self.refuses("the catalogue has no such OTEP", "--otep", "4720=boats.md")
        self.refuses("given twice", "--otep", "4719=a", "--otep", "4719=b")
        self.refuses("No such file", "--otep", "4719=absent.md")
        self.refuses("Is a directory", "--otep", "4719=.")
        self.refuses("No such file", "--catalogue", "absent", "--otep", "4719=a")
        self.write("bad.json", b"{}")
        self.refuses("bad.json", "--catalogue", "bad.json", "--otep", "4719=a")
        # The built-in catalogue recognises another document.
        self.write("new.md", BOATS.encode())
        self.refuses("no section and no sentence of OTEP 4947", "--otep", "4947=new.md")


if __name__ == "__main__":
    unittest.main()
