#!/usr/bin/env python3
"""Runs the steps of action.yml as a runner of GitHub Actions does, with a release in a folder.

usage: action_test.py SOURCE_DIR BIN_DIR
"""

import hashlib
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

SOURCE, BIN = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]
VERSION = "1.2.3"
NAME = f"ctxconf-{VERSION}-linux-{platform.machine()}"
DEADLINE_S = 300
WRITER = os.path.join(BIN, "process_writer")
GOOD = f"{WRITER} --good default"
WRONG_SIZE = f"{WRITER} --bad pctx.header.payload-size"


def make_release(folder):
    """With nothing but a link to the program."""
    archive = os.path.join(folder, NAME + ".tar.gz")
    link = tarfile.TarInfo(NAME + "/bin/ctxconf")
    link.type, link.linkname = tarfile.SYMTYPE, os.path.join(BIN, "ctxconf")
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(link)
    with open(archive, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with open(os.path.join(folder, "SHA256SUMS"), "w", encoding="utf-8") as file:
        file.write(f"{'0' * 64}  ctxconf-golden-{VERSION}.tar.gz\n{digest}  {NAME}.tar.gz\n")
    return archive


class Runner:
    """What the steps of one job have in common."""

    def __init__(self, folder, action, **inputs):
        self.folder = folder
        self.action = action
        known = {name: one.get("default", "") for name, one in action["inputs"].items()}
        assert set(inputs) <= set(known), inputs
        self.values = {f"inputs.{name}": value for name, value in (known | inputs).items()}
        self.values |= {"github.action_repository": "example/ctxconf", "github.repository": "example/sdk",
                        "github.server_url": "https://github.example"}
        self.environment = {}
        self.summary = os.path.join(folder, "summary")
        self.uploads = []
        self.output = ""
        self.failed = False

    def value(self, name):
        if re.fullmatch(r"steps\.(install|judge)\.outputs\.(bin|exit-code)", name):
            return self.values.get(name, "")
        return self.values[name]

    def expanded(self, text):
        """An expression is a name, or several with || between them."""
        def first(match):
            return next(filter(None, (self.value(name.strip()) for name in match.group(1).split("||"))), "")
        return re.sub(r"\$\{\{(.*?)\}\}", first, str(text))

    def holds(self, condition):
        """Of the form always() && a != '' && b != ''; without always() a step runs if none has failed."""
        parts = [part.strip() for part in condition.split("&&")] if condition else []
        always = "always()" in parts
        names = [re.fullmatch(r"(\S+) != ''", part).group(1) for part in parts if part != "always()"]
        return (always or not self.failed) and all(self.value(name) for name in names)

    def run(self):
        for number, step in enumerate(self.action["runs"]["steps"]):
            if not self.holds(step.get("if")):
                continue
            if "uses" in step:
                self.uploads.append({k: self.expanded(v) for k, v in step["with"].items()})
                continue
            outputs = os.path.join(self.folder, f"outputs-{number}")
            environment = os.environ | {k: self.expanded(v) for k, v in step["env"].items()} | {
                "GITHUB_ACTION_PATH": SOURCE, "GITHUB_OUTPUT": outputs, "GITHUB_STEP_SUMMARY": self.summary,
                "RUNNER_TOOL_CACHE": os.path.join(self.folder, "cache")} | self.environment
            assert step["shell"] == "bash", step
            # What the runner makes of `shell: bash`.
            done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                                  env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                  cwd=os.path.join(self.folder, self.expanded(step.get("working-directory", "."))),
                                  text=True, timeout=DEADLINE_S, check=False)
            self.output += done.stdout + done.stderr
            self.failed = self.failed or done.returncode != 0
            if os.path.exists(outputs) and "id" in step:
                with open(outputs, encoding="utf-8") as file:
                    for line in file:
                        key, _, value = line.rstrip("\n").partition("=")
                        self.values[f"steps.{step['id']}.outputs.{key}"] = value
        return self

    def summary_text(self):
        with open(self.summary, encoding="utf-8") as file:
            return file.read()


@unittest.skipIf(yaml is None, "needs python3-yaml")
class ActionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.release = os.path.join(self.folder, "release")
        os.mkdir(self.release)
        self.archive = make_release(self.release)
        with open(os.path.join(SOURCE, "action.yml"), encoding="utf-8") as file:
            self.action = yaml.safe_load(file)

    def runner(self, command, **inputs):
        inputs = {"url": "file://" + self.release, "version": VERSION, "options": "--only 'pctx.*'"} | inputs
        return Runner(self.folder, self.action, command=command, **inputs)

    def job(self, command, **inputs):
        return self.runner(command, **inputs).run()

    def test_a_job_that_passes(self):
        job = self.job(GOOD)
        self.assertFalse(job.failed, job.output)
        self.assertNotIn("::error", job.output)
        self.assertIn("## ctxconf passed", job.summary_text())
        self.assertEqual(job.values["steps.judge.outputs.exit-code"], "0")
        self.assertEqual(job.uploads, [{"name": "ctxconf", "path": "./ctxconf-out", "if-no-files-found": "ignore"}])
        self.assertTrue(os.path.exists(os.path.join(self.folder, "ctxconf-out/report.html")))

    def test_a_job_that_fails_shows_what_and_keeps_its_reports(self):
        job = self.job(WRONG_SIZE)
        self.assertTrue(job.failed)
        self.assertEqual(job.values["steps.judge.outputs.exit-code"], "1")
        self.assertRegex(job.output, r"(?m)^::error title=pctx\.header\.payload-size::MUST .*%0A.*261")
        self.assertEqual(len(job.uploads), 1)

    def test_warnings(self):
        bad = f"{WRITER} --bad pctx.header.timestamp-nanoseconds"
        self.assertFalse(self.job(bad).failed)
        job = self.job(bad, strict="true")
        self.assertTrue(job.failed)
        self.assertIn("::warning title=", job.output)

    def test_expected_failures_are_notices(self):
        self.job(WRONG_SIZE)
        subprocess.run([os.path.join(BIN, "ctxconf"), "expect", "init", "expected", "--from", "ctxconf-out/result.json"],
                       cwd=self.folder, check=True, capture_output=True)
        path = os.path.join(self.folder, "expected")
        with open(path, encoding="utf-8") as file:
            text = file.read().replace("issue=TODO", "issue=https://bugs.example/1")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        job = self.job(WRONG_SIZE, expect="expected")
        self.assertFalse(job.failed, job.output)
        self.assertIn("::notice title=pctx.header.payload-size::", job.output)

    def test_a_program_whose_words_have_spaces(self):
        job = self.job("sh -c 'echo \"two  words\"; exit 0'")
        self.assertEqual(job.values["steps.judge.outputs.exit-code"], "4", job.output)
        self.assertIn("two  words", job.output)

    def test_the_program_does_not_see_the_inputs(self):
        job = self.job("env", **{"working-directory": "release"})
        self.assertNotIn("CTXCONF_ACTION", job.output)
        self.assertIn(f"PWD={self.release}\n", job.output)
        self.assertEqual(job.uploads[0]["path"], "release/ctxconf-out")
        self.assertIn("::error title=ctxconf::exit code 4: ", job.output)

    def test_a_program_that_does_not_start(self):
        self.job(WRONG_SIZE)
        job = self.job("./no-such-program")
        self.assertEqual(job.values["steps.judge.outputs.exit-code"], "3")
        self.assertIn("::error title=ctxconf::exit code 3: ", job.output)
        self.assertNotIn("payload-size", job.output, "this is of the job before")

    def test_the_program_is_downloaded_once(self):
        self.job(GOOD)
        os.remove(self.archive)
        self.assertFalse(self.job(GOOD).failed)

    def test_where_the_release_is(self):
        """By default the release with the version of the action's files, in the action's repository."""
        curl = os.path.join(self.folder, "curl")
        with open(curl, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\nfor word; do :; done\necho "asked for $word"\nexit 22\n')
        os.chmod(curl, 0o755)
        for repository, version, path in (("example/ctxconf", "", r"example/ctxconf/releases/download/v\d+\.\d+\.\d+"),
                                          ("", "v7.0.0", r"example/sdk/releases/download/v7\.0\.0")):
            with self.subTest(path):
                runner = self.runner(GOOD, url="", version=version)
                runner.values["github.action_repository"] = repository
                runner.environment["PATH"] = self.folder + ":" + os.environ["PATH"]
                self.assertTrue(runner.run().failed)
                self.assertRegex(runner.output, rf"https://github\.example/{path}/SHA256SUMS cannot be read")

    def test_wrong_inputs(self):
        for inputs, message in (({"mode": "judge"}, "mode is judge"), ({"strict": "yes"}, "strict is yes"),
                                ({"command": ""}, "command is empty"), ({"options": "'"}, "options cannot be split"),
                                ({"command": "cd sdk && ./a"}, "command cannot be split"),
                                ({"command": "./a $NO_SUCH_VARIABLE"}, "command cannot be split")):
            with self.subTest(message):
                job = self.job(**({"command": GOOD} | inputs))
                self.assertTrue(job.failed)
                self.assertEqual(job.values["steps.judge.outputs.exit-code"], "2")
                self.assertIn(message, job.output)

    def test_a_release_that_is_not_what_it_says(self):
        with open(self.archive, "ab") as file:
            file.write(b"x")
        job = self.job(GOOD)
        self.assertTrue(job.failed)
        self.assertIn("has another checksum", job.output)
        self.assertEqual(os.listdir(os.path.join(self.folder, "cache/ctxconf")), [], "nothing is left")
        os.remove(os.path.join(self.release, "SHA256SUMS"))
        self.assertIn("is 1.2.3 a release?", self.job(GOOD).output)

    def test_a_machine_without_a_program(self):
        with open(os.path.join(self.release, "SHA256SUMS"), "w", encoding="utf-8") as file:
            file.write(f"{'0' * 64}  ctxconf-{VERSION}-linux-riscv64.tar.gz\n")
        self.assertIn(f"has no program for {platform.machine()}", self.job(GOOD).output)


if __name__ == "__main__":
    unittest.main()
