#!/usr/bin/env python3
"""Runs `ctxconf golden` as its users do, on the golden folder of the source tree and on broken copies
of it.

usage: golden_command_test.py SOURCE_DIR BIN_DIR
"""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import jsonschema
from leftovers import heed_signals

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
BIN = pathlib.Path(sys.argv.pop(1)).resolve()
CLEAN, FINDING, USAGE, UNWRITTEN = range(4)
KINDS = ("process-context", "thread-record", "maps")


def golden(*words, folder=SOURCE / "golden", prepare=None):
    return subprocess.run([BIN / "ctxconf", "golden", *words, "--dir", folder], capture_output=True,
                          text=True, errors="replace", check=False, timeout=100, preexec_fn=prepare)


class Reading(unittest.TestCase):
    def test_the_schemas_accept_the_vectors_and_nothing_else(self):
        for kind in KINDS:
            schema = json.loads((SOURCE / "golden/schema" / f"{kind}.schema.json").read_text())
            validator = jsonschema.Draft202012Validator(schema)
            validator.check_schema(schema)
            files = sorted((SOURCE / "golden" / kind).glob("*.json"))
            self.assertTrue(files)
            for path in files:
                vector = json.loads(path.read_text())
                problems = list(validator.iter_errors(vector))
                self.assertFalse(problems, f"{path}: {problems}")
            for member in vector:
                self.assertFalse(validator.is_valid({k: v for k, v in vector.items() if k != member}))
            for broken in ({"extra": 1}, {"kind": "elf"}, {"result": "either"}, {"id": "x"},
                           {"requirements": []}, {"revision": "2025-01-01"}):
                self.assertFalse(validator.is_valid(vector | broken), broken)

    def test_list(self):
        done = golden("list", "pctx/draft-h[0-9]*", "maps/memfd")
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("no vector pctx/draft-h[0-9]*", done.stderr)
        done = golden("list", "pctx/draft-h?-*", "maps/memfd")
        self.assertEqual(done.returncode, CLEAN)
        self.assertEqual(done.stdout.splitlines()[0].split()[:2], ["maps/memfd", "accept"])
        self.assertRegex(done.stdout, r"\d vectors: \d process contexts, 0 thread records, 1 maps texts")
        everything = json.loads(golden("list", "--json").stdout)
        self.assertEqual(len(everything), sum(len(list((SOURCE / "golden" / k).glob("*.json"))) for k in KINDS))
        for vector in everything:
            self.assertTrue((SOURCE / "golden" / vector["file"]).is_file(), vector)

    def test_show(self):
        done = golden("show", "pctx/version-three", "rec/two-attributes", "maps/memfd")
        self.assertEqual(done.returncode, CLEAN, done.stderr)
        for text in ("pctx/version-three: absent", "000008  03 00 00 00", "\n00000c  .. .. .. ..",
                     "requirement = pctx.reader.version-supported", "key 1, 4 bytes",
                     "expect.attributes.http_method = POST", "/memfd:OTEL_CTX (deleted)"):
            self.assertIn(text, done.stdout)
        path = SOURCE / "golden/process-context/version-three.json"
        self.assertEqual(golden("show", "--json", "pctx/version-three").stdout, path.read_text())
        for name in ("pctx/", "pctx/../manifest", "manifest", "pctx/no-such", ""):
            done = golden("show", name)
            self.assertEqual((done.returncode, done.stdout), (USAGE, ""), name)
        self.assertEqual(golden("show").returncode, USAGE)

    def test_diff(self):
        done = golden("diff", "pctx/inline-one-page", "pctx/size-one-less")
        self.assertEqual(done.returncode, FINDING)
        self.assertRegex(done.stdout, r"- header.payload_size = \d+\n\+ header.payload_size = \d+\n")
        self.assertNotIn("signature =", done.stdout)
        path = SOURCE / "golden/process-context/inline-one-page.json"
        self.assertEqual(golden("diff", "pctx/inline-one-page", str(path)).returncode, CLEAN)
        self.assertEqual(golden("diff", "pctx/inline-one-page").returncode, USAGE)
        self.assertEqual(golden("diff", "pctx/inline-one-page", "rec/x").returncode, USAGE)

    def test_usage(self):
        with tempfile.TemporaryDirectory() as empty:
            for words in (("verify",), ("regenerate",), ("list",)):
                done = golden(*words, folder=empty)
                self.assertEqual(done.returncode, USAGE, words)
                self.assertIn(empty, done.stderr)
        self.assertEqual(golden("verify", "pctx/inline-one-page").returncode, USAGE)
        self.assertEqual(golden("polish").returncode, USAGE)
        for words in (("verify",), ("regenerate",), ("diff", "maps/memfd", "maps/memfd")):
            self.assertEqual(golden(*words, "--json").returncode, USAGE, words)
        done = golden("list", folder="")
        self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
        self.assertIn("--dir", done.stderr)


class Changing(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        self.folder = self.root / "golden"
        shutil.copytree(SOURCE / "golden", self.folder, ignore=shutil.ignore_patterns("*.cc", "*.h"))
        (self.root / "proto").symlink_to(SOURCE / "proto")
        self.source = self.folder / "src/process-contexts.json"

    def run_golden(self, *words, **options):
        return golden(*words, folder=self.folder, **options)

    def state(self):
        return {str(p.relative_to(self.folder)): p.read_bytes()
                for p in sorted(self.folder.rglob("*")) if p.is_file()}

    def edit(self, path, before, after):
        text = path.read_text()
        self.assertIn(before, text)
        path.write_text(text.replace(before, after, 1))

    def refused(self, code, *texts, **options):
        """regenerate refuses, says so, and writes nothing."""
        before = self.state()
        done = self.run_golden("regenerate", **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        for text in texts:
            self.assertIn(text, done.stderr)
        self.assertEqual(self.state(), before)

    def test_regenerate_is_deterministic_and_starts_from_nothing(self):
        before = self.state()
        done = self.run_golden("regenerate")
        self.assertEqual(done.returncode, CLEAN, done.stderr)
        self.assertIn("two encoders agree; 0 files written, 0 removed", done.stdout)
        self.assertEqual(self.state(), before)
        for kind in KINDS:
            shutil.rmtree(self.folder / kind)
        (self.folder / "manifest.json").unlink()
        self.assertEqual(self.run_golden("verify").returncode, FINDING)
        done = self.run_golden("regenerate")
        self.assertEqual(done.returncode, CLEAN, done.stderr)
        self.assertEqual(self.state(), before)

    def test_a_changed_source_is_found_stale_and_followed(self):
        self.edit(self.source, "no version", "a version of zero")
        done = self.run_golden("verify")
        self.assertEqual(done.returncode, FINDING)
        self.assertIn("version-zero.json: does not say what its source says", done.stdout)
        self.assertIn("golden: 2 problems", done.stdout)
        done = self.run_golden("regenerate")
        self.assertEqual(done.returncode, CLEAN, done.stderr)
        self.assertIn("3 files written", done.stdout)
        self.assertEqual(self.run_golden("verify").returncode, CLEAN)

    def test_an_edited_output_is_named_and_kept(self):
        path = self.folder / "process-context/version-zero.json"
        self.edit(path, '"absent"', '"reject"')
        done = self.run_golden("verify")
        self.assertEqual(done.returncode, FINDING)
        self.assertIn(f"{path}: was edited by hand", done.stdout)
        self.refused(FINDING, f"{path}: was edited by hand", str(self.folder / "src"), "delete the file")
        path.unlink()
        self.assertEqual(self.run_golden("regenerate").returncode, CLEAN)
        self.assertEqual(self.run_golden("verify").returncode, CLEAN)

    def test_an_edited_dump_a_stray_and_an_edited_manifest(self):
        (self.folder / "thread-record/mine.json").write_text("{}")
        self.refused(FINDING, "mine.json: was not made by")
        (self.folder / "thread-record/mine.json").unlink()
        dump = self.folder / "thread-record/two-attributes.hex"
        dump.write_bytes(dump.read_bytes() + b"\xff")
        self.refused(FINDING, "two-attributes.hex: was edited by hand")
        dump.unlink()
        self.edit(self.folder / "manifest.json", '"size": ', '"size":  ')
        self.refused(FINDING, "manifest.json: was edited by hand")
        self.assertEqual(self.run_golden("verify").returncode, FINDING)

    def test_an_interrupted_run_is_finished_by_the_next(self):
        before = self.state()
        left = [self.folder / "maps/memfd.json.ctxconf-tmp", self.folder / "manifest.json.ctxconf-tmp"]
        for path in left:
            path.write_text("{")
        done = self.run_golden("verify")
        self.assertEqual(done.returncode, FINDING)
        for path in left:
            self.assertIn(f"{path}: is in the way of", done.stdout)
        self.assertEqual(self.run_golden("regenerate").returncode, CLEAN)
        self.assertEqual(self.state(), before)

    def test_a_signal_leaves_no_temporary_file(self):
        before = self.state()
        signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        temporary = self.folder / "manifest.json.ctxconf-tmp"  # written first, renamed last

        for signo in signals:
            code = CLEAN
            until = time.monotonic() + 100
            while code == CLEAN and time.monotonic() < until:  # until it is hit while it writes
                for kind in KINDS:
                    shutil.rmtree(self.folder / kind)
                (self.folder / "manifest.json").unlink()
                child = subprocess.Popen([BIN / "ctxconf", "golden", "regenerate", "--dir", self.folder],
                                         stdout=subprocess.DEVNULL)
                while child.poll() is None and not temporary.exists():
                    pass
                child.send_signal(signo)
                code = child.wait(100)
            self.assertEqual(code, -signo)
            after = self.state()
            self.assertEqual([name for name in after if name not in before], [])
            self.assertEqual([name for name in before if after.get(name) != before[name]], [])

    def test_what_a_file_says_reaches_no_terminal_as_a_command(self):
        path = self.folder / "process-context/version-zero.json"
        self.edit(path, '"id"', r'"\u001b[2J": 1, "id"')
        done = self.run_golden("verify")
        self.assertEqual(done.returncode, FINDING)
        self.assertIn("[2J: is not a known member", done.stdout)
        self.assertNotIn("\x1b", done.stdout)

    def test_a_file_under_another_name_is_not_shown(self):
        copy = self.folder / "thread-record/copy.json"
        shutil.copy(self.folder / "thread-record/two-attributes.json", copy)
        for words in (("show", "rec/copy"), ("diff", "rec/copy", "rec/two-attributes")):
            done = self.run_golden(*words)
            self.assertEqual((done.returncode, done.stdout), (USAGE, ""), words)
            self.assertIn(f"{copy}: holds rec/two-attributes, not rec/copy", done.stderr)
        self.assertEqual(self.run_golden("show", str(copy)).returncode, CLEAN)

    def test_malformed_sources(self):
        text = self.source.read_text()
        for change, complaint in (
                (lambda s: s[:-5], "is not JSON"),
                (lambda s: "\ufeff" + s, "begins with a byte order mark"),
                (lambda s: s.replace('"2026-04-07"', '"2026-04-08"'), 'revision: is "2026-04-08"'),
                (lambda s: s.replace('"process-context"', '"snapshot"'), 'kind: is "snapshot"'),
                (lambda s: s.replace("pctx/version-three", "pctx/version-zero"), "appears twice"),
                (lambda s: s.replace('"version": 3', '"versoin": 3'), "header.versoin: is not a known member")):
            self.source.write_text(change(text))
            self.refused(USAGE, str(self.source), complaint)
            done = self.run_golden("verify")
            self.assertEqual(done.returncode, USAGE, complaint)
            self.assertIn(complaint, done.stderr)
        self.source.unlink()
        self.refused(USAGE, str(self.source))

    def test_a_requirement_that_nobody_knows(self):
        self.edit(self.source, "pctx.header.signature", "pctx.header.signatur")
        self.refused(USAGE, "no requirement pctx.header.signatur, perhaps pctx.header.signature")
        self.assertEqual(self.run_golden("verify").returncode, FINDING)

    def test_a_malformed_vector_is_named(self):
        path = self.folder / "maps/memfd.json"
        path.write_text("[" * 100000)
        for words in (("list",), ("show", "maps/memfd"), ("diff", "maps/memfd", "maps/memfd")):
            done = self.run_golden(*words)
            self.assertEqual(done.returncode, USAGE, words)
            self.assertIn(str(path), done.stderr)

    def test_the_second_encoder_must_agree(self):
        encoder = self.folder / "second_encoder.py"
        text = encoder.read_text()
        # An encoder that reads everything and gets one byte wrong.
        encoder.write_text(text.replace('"<16s8sBBH"', '">16s8sBBH"'))
        self.refused(FINDING, "rec/", "the encodings of record differ", "nothing was written")
        encoder.write_text("import sys\nsys.exit('protoc: not here')\n")
        self.refused(USAGE, "protoc: not here", "nothing was written")
        encoder.write_text("print('[]')\n")
        self.refused(FINDING, "made 0 vectors")
        encoder.unlink()
        self.refused(USAGE, "second_encoder.py: is missing")

    def test_a_full_disk_changes_nothing(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

        for kind in KINDS:
            shutil.rmtree(self.folder / kind)
            (self.folder / kind).mkdir()
        (self.folder / "manifest.json").unlink()
        self.refused(UNWRITTEN, "cannot be written", "nothing was written", prepare=limit)


if __name__ == "__main__":
    heed_signals()
    unittest.main()
