"""ctxconf puppet, as its users run it: puppet_command_test.py SOURCE BIN"""
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE, BIN = sys.argv[1:3]
CTXCONF = os.path.join(BIN, "ctxconf")
SAMPLES = os.path.join(SOURCE, "conformance", "puppet", "samples")
CLEAN, FAILED, USAGE, NOTHING = 0, 1, 2, 4


def run(*args, script=None):
    return subprocess.run([CTXCONF, "puppet", *args], input=script, capture_output=True, text=True,
                          timeout=60, check=False)


def script(*lines, program="plain"):
    return "\n".join(['{"ctxconf-script":1,"program":"%s"}' % program, *lines]) + "\n"


class PuppetTest(unittest.TestCase):
    def test_samples_are_legal(self):
        for name in sorted(os.listdir(SAMPLES)):
            with self.subTest(name=name):
                done = run("--strict", os.path.join(SAMPLES, name))
                self.assertEqual(done.returncode, CLEAN, done.stdout + done.stderr)
                self.assertRegex(done.stdout, r'"op":"map".*"as":"header"}  = 0x[0-9a-f]+\n')
                self.assertIn("service.name=checkout", done.stdout)

    def test_a_broken_sample_fails(self):
        with open(os.path.join(SAMPLES, "process_context.jsonl"), encoding="utf-8") as f:
            broken = f.read().replace('"at":"$header+8","width":4,"value":2', '"at":"$header+8","width":4,"value":3')
        done = run("--only=pctx.header.*", "-", script=broken)
        self.assertEqual(done.returncode, FAILED, done.stdout + done.stderr)
        self.assertIn("pctx.header.version", done.stdout)

    def test_recording_is_replayed(self):
        with tempfile.TemporaryDirectory() as out:
            first = run("--quiet", "--out", out, os.path.join(SAMPLES, "thread_context.jsonl"))
            self.assertEqual(first.returncode, CLEAN, first.stdout + first.stderr)
            again = subprocess.run([CTXCONF, "replay", "--quiet", os.path.join(out, "timeline.json")],
                                   capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(again.returncode, CLEAN)
            self.assertEqual(again.stdout.splitlines()[-1], first.stdout.splitlines()[-1])

    def test_nothing_published(self):
        done = run("-", script=script('{"op":"print","text":"printed\\n"}', '{"op":"exit"}'))
        self.assertEqual(done.returncode, NOTHING, done.stdout + done.stderr)
        self.assertIn("printed\n", done.stdout)

    def test_bad_scripts(self):
        for text, about in (
                ("", "-:1: the script is empty"),
                ("{}", "-:1: \"ctxconf-script\" is missing"),
                (script('{"op":"fly"}'), "-:2: there is no operation \"fly\""),
                (script("", "# a comment", '{"op":"close","fd":"$fd"}'),
                 "-:4: close: no earlier operation has a result \"fd\""),
                (script('{"op":"close","fd":1000}'), "-:2: close: Bad file descriptor"),
                (script('{"op":"store","at":0,"width":8,"value":1}'),
                 "-:2: store: the process ended before it answered")):
            with self.subTest(about=about):
                done = run("-", script=text)
                self.assertEqual(done.returncode, USAGE, done.stdout + done.stderr)
                self.assertIn(about, done.stderr)
        done = run("nowhere")
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("nowhere: No such file", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
