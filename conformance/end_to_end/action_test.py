#!/usr/bin/env python3
"""Runs the steps of action.yml as a runner of GitHub Actions does, and the job of templates/ctxconf.yml as one of
GitLab does, with a release in a folder.

usage: action_test.py SOURCE_DIR BIN_DIR
"""

import hashlib
import json
import os
import platform
import re
import shutil
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
sys.path.append(os.path.join(SOURCE, "conformance", "report"))
from sarif_model import check_sarif  # noqa: E402

VERSION = "1.2.3"
NAME = f"ctxconf-{VERSION}-linux-{platform.machine()}"
DEADLINE_S = 300
WRITER = os.path.join(BIN, "process_writer")
GOOD = f"{WRITER} --good default"
WRONG_SIZE = f"{WRITER} --bad pctx.header.payload-size"
WRONG_STORE = f"{WRITER} --bad pctx.update.fields-while-zero"


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def own_version():
    return re.search(r"^project\(ctxconf VERSION ([0-9.]+) ", read(SOURCE, "CMakeLists.txt"), re.M).group(1)


def make_command(folder, name, *lines):
    """Folder is to be the first of PATH."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(["#!/bin/sh", *lines, ""]))
    os.chmod(path, 0o755)


def make_release(folder, name=NAME):
    """With nothing but a link to the program."""
    archive = os.path.join(folder, name + ".tar.gz")
    link = tarfile.TarInfo(name + "/bin/ctxconf")
    link.type, link.linkname = tarfile.SYMTYPE, os.path.join(BIN, "ctxconf")
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(link)
    with open(archive, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with open(os.path.join(folder, "SHA256SUMS"), "w", encoding="utf-8") as file:
        file.write(f"{'0' * 64}  ctxconf-golden-{VERSION}.tar.gz\n{digest}  {name}.tar.gz\n")
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
                        "github.server_url": "https://github.example", "runner.arch": "X64"}
        self.environment = {}
        self.summary = os.path.join(folder, "summary")
        self.uploads = []
        self.output = ""
        self.failed = False

    def value(self, name):
        if re.fullmatch(r"steps\.(release\.outputs\.(version|url|folder|key)|cache\.outputs\.cache-hit|"
                        r"install\.outputs\.bin|judge\.outputs\.(exit-code|sarif))", name):
            return self.values.get(name, "")
        return self.values[name]

    def expanded(self, text):
        """An expression is a name, or several with || between them."""
        def first(match):
            return next(filter(None, (self.value(name.strip()) for name in match.group(1).split("||"))), "")
        return re.sub(r"\$\{\{(.*?)\}\}", first, str(text))

    def holds(self, condition):
        """Of the form always() && a != 'b' && c != ''; without always() a step runs if none has failed."""
        parts = [part.strip() for part in condition.split("&&")] if condition else []
        always = "always()" in parts
        unequal = [re.fullmatch(r"(\S+) != '(.*)'", part).groups() for part in parts if part != "always()"]
        return (always or not self.failed) and all(self.value(name) != other for name, other in unequal)

    def run(self):
        for number, step in enumerate(self.action["runs"]["steps"]):
            if not self.holds(step.get("if")):
                continue
            if "uses" in step:
                self.use(step["uses"], {k: self.expanded(v) for k, v in step["with"].items()})
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

    def use(self, action, inputs):
        if action.startswith("actions/upload-artifact@"):
            self.uploads.append(inputs)
            return
        cached = os.path.join(self.folder, "cache-service", inputs["key"])
        if action.startswith("actions/cache/save@"):
            shutil.copytree(inputs["path"], cached)
            return
        assert action.startswith("actions/cache/restore@"), action
        hit = os.path.exists(cached)
        if hit:
            shutil.copytree(cached, inputs["path"], dirs_exist_ok=True)
        self.values["steps.cache.outputs.cache-hit"] = "true" if hit else ""

    def summary_text(self):
        with open(self.summary, encoding="utf-8") as file:
            return file.read()


class WithRelease(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.release = os.path.join(self.folder, "release")
        os.mkdir(self.release)
        self.archive = make_release(self.release)


@unittest.skipIf(yaml is None, "needs python3-yaml")
class ActionTest(WithRelease):
    def setUp(self):
        super().setUp()
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

    def test_a_failure_is_shown_at_its_line(self):
        job = self.job(WRONG_STORE)
        self.assertIn("::error title=pctx.update.fields-while-zero::", job.output, "it is in no repository here")
        # Where the program was compiled, which ccache may have done in another folder.
        path = "conformance/testees/writer/header.h"
        root, = re.findall(rf'"file": "(.*)/{path}"', read(self.folder, "ctxconf-out", "result.json"))
        job = self.job(WRONG_STORE, options=f"--only 'pctx.*' --source-root '{root}'")
        run = check_sarif("results.sarif", json.loads(read(job.values["steps.judge.outputs.sarif"])))
        place = run["results"][0]["locations"][0]["physicalLocation"]
        line = place["region"]["startLine"]
        self.assertEqual(place["artifactLocation"]["uri"], path)
        self.assertIn(f"::error file={path},line={line},title=pctx.update.fields-while-zero::MUST ", job.output)

    def test_hostile_text_is_inert_in_annotations(self):
        finding = {"outcome": "fail", "saw": "\x1b[2J\r\n::error::\u202e 100%\u2028",
                   "code": [{"offset": 1, "path": "a,b:\u202ec.c", "line": 7}]}
        one = {"id": "pctx.x", "outcome": "fail", "expected": "none", "strength": "MUST", "text": "It is.",
               "findings": [finding]}
        path = os.path.join(self.folder, "result.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"problems": [], "results": [one], "run": {}, "expectation_problems": [],
                       "exit": {"reason": ""}}, file)
        done = subprocess.run([os.path.join(SOURCE, "scripts", "annotations.py"), path, "1"], capture_output=True,
                              text=True, timeout=DEADLINE_S, check=True)
        self.assertEqual(done.stdout,
                         "::error file=a%2Cb%3A\\xe2\\x80\\xaec.c,line=7,title=pctx.x::MUST It is.%0A\\x1b[2J\\x0d\\x0a"
                         "::error::\\xe2\\x80\\xae 100%25\\xe2\\x80\\xa8\n")

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
        text = read(path).replace("issue=TODO", "issue=https://bugs.example/1")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        job = self.job(WRONG_SIZE, expect="expected")
        self.assertFalse(job.failed, job.output)
        self.assertIn("::notice title=pctx.header.payload-size::", job.output)
        line = 1 + text[:text.index("pctx.header.payload-size")].count("\n")
        job = self.job(GOOD, expect="expected")
        self.assertTrue(job.failed)
        self.assertIn(f"::error file=expected,line={line},title=expectations::", job.output)

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
        """On a runner that stays, and on new ones by the cache."""
        self.job(WRONG_SIZE)
        os.rename(self.archive, self.archive + ".moved")
        self.assertFalse(self.job(GOOD).failed)
        tools, service = (os.path.join(self.folder, name) for name in ("cache", "cache-service"))
        shutil.rmtree(tools)
        self.assertFalse(self.job(GOOD).failed)
        key, = os.listdir(service)
        self.assertRegex(key, rf"^ctxconf-{VERSION}-X64-[0-9a-f]{{16}}$")
        # A cache that has something else is of no use, and does no harm.
        with open(os.path.join(service, key, NAME + ".tar.gz"), "ab") as file:
            file.write(b"x")
        shutil.rmtree(tools)
        self.assertIn("cannot be read", self.job(GOOD).output)
        os.rename(self.archive + ".moved", self.archive)
        self.assertFalse(self.job(GOOD).failed)

    def test_where_the_release_is(self):
        """By default the release with the version of the action's files, in the action's repository."""
        make_command(self.folder, "curl", 'for word; do :; done; echo "asked for $word"; exit 22')
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
        self.assertRegex(self.job(GOOD).output,
                         rf"::error title=ctxconf::install-release: .* has no program for {platform.machine()}")

    def test_each_processor_has_a_program_of_its_own(self):
        def install(machine):
            make_command(self.folder, "uname", f'[ "$1" = -m ] && echo {machine} || echo Linux')
            return subprocess.run(
                [os.path.join(SOURCE, "scripts", "install-release"), "file://" + self.release, VERSION, self.folder],
                env=os.environ | {"PATH": self.folder + ":" + os.environ["PATH"]}, capture_output=True, text=True,
                timeout=DEADLINE_S, check=False)
        for machine, arch in (("x86_64", "x86_64"), ("aarch64", "aarch64"), ("arm64", "aarch64")):
            with self.subTest(machine):
                make_release(self.release, f"ctxconf-{VERSION}-linux-{arch}")
                done = install(machine)
                self.assertTrue(os.path.exists(os.path.join(done.stdout.strip(), "ctxconf")), done.stderr)
        done = install("riscv64")
        self.assertEqual(done.returncode, 3)
        self.assertIn("there are programs for x86_64 and aarch64, and none for riscv64", done.stderr)


class Component:
    """What GitLab makes of the template: it puts the inputs into the text, and reads that as YAML."""

    def __init__(self, folder, **inputs):
        header, body = read(SOURCE, "templates", "ctxconf.yml").split("\n---\n")
        specified = yaml.safe_load(header)["spec"]["inputs"]
        assert set(inputs) <= set(specified), inputs
        values = {name: self.checked(name, one, inputs.get(name, one.get("default")))
                  for name, one in specified.items()}
        text = re.sub(r"\$\[\[ inputs\.([a-z-]+) \]\]", lambda match: values[match[1]], body)
        assert "$[[" not in text, text
        (self.name, self.job), = yaml.safe_load(text).items()
        self.folder = folder

    @staticmethod
    def checked(name, specified, value):
        if value is None:
            raise ValueError(f"{name} is missing")
        if isinstance(value, bool) != (specified.get("type") == "boolean"):
            raise ValueError(f"{name} has another type")
        if value not in specified.get("options", [value]) or not re.search(specified.get("regex", ""), str(value)):
            raise ValueError(f"{name} cannot be {value}")
        return str(value).lower() if isinstance(value, bool) else value

    def run(self, shell, path=os.environ["PATH"]):
        """As a runner starts it in an image that has this shell, and these programs."""
        assert all(one["expand"] is False for one in self.job["variables"].values())
        environment = os.environ | {name: one["value"] for name, one in self.job["variables"].items()}
        environment["PATH"] = path
        options = "set -eo pipefail" if shell == "bash" else "set -e"
        return subprocess.run([shell, "-c", "\n".join([options, *self.job["script"]])], env=environment,
                              cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S, check=False)


@unittest.skipIf(yaml is None, "needs python3-yaml")
class ComponentTest(WithRelease):
    def component(self, command, **inputs):
        inputs = {"url": "file://" + self.release, "version": VERSION, "image": "sdk", "out": "reports",
                  "options": "--only 'pctx.*'"} | inputs
        return Component(self.folder, command=command, **inputs)

    def test_a_job_that_passes(self):
        component = self.component(GOOD, **{"job-name": "context: sharing", "stage": "check"})
        self.assertEqual((component.name, component.job["stage"], component.job["image"]),
                         ("context: sharing", "check", "sdk"))
        done = component.run("sh")
        self.assertEqual(done.returncode, 0, done.stdout)
        artifacts = component.job["artifacts"]
        self.assertEqual((artifacts["when"], artifacts["paths"]), ("always", ["reports"]))
        self.assertIn("<testsuites", read(self.folder, artifacts["reports"]["junit"]))
        check_sarif("results.sarif", json.loads(read(self.folder, "reports", "results.sarif")))

    def test_a_job_that_fails(self):
        done = self.component(WRONG_SIZE).run("bash")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("FAIL  pctx.header.payload-size", done.stdout)

    @unittest.skipUnless(shutil.which("busybox"), "needs busybox")
    def test_an_image_with_busybox(self):
        path = os.path.join(self.folder, "bin")
        os.mkdir(path)
        os.symlink(shutil.which("curl"), os.path.join(path, "curl"))
        for name in ("sh", "awk", "cat", "cut", "mkdir", "mktemp", "mv", "rm", "sha256sum", "tar", "uname"):
            os.symlink(shutil.which("busybox"), os.path.join(path, name))
        done = self.component(GOOD, options="--only pctx.header.version").run(os.path.join(path, "sh"), path)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_its_inputs(self):
        bad = f"{WRITER} --bad pctx.header.timestamp-nanoseconds"
        self.assertEqual(self.component(bad).run("sh").returncode, 0)
        self.assertEqual(self.component(bad, strict=True).run("sh").returncode, 1)
        done = self.component(GOOD, expect="no-such-file").run("sh")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no-such-file", done.stdout)
        for shell in ("sh", "bash"):
            for command in ("'", f"{GOOD} && true", f"{GOOD}; true", f"{GOOD} | cat", f"{GOOD} &"):
                with self.subTest(command, shell=shell):
                    done = self.component(command).run(shell)
                    self.assertEqual(done.returncode, 2, done.stdout)
                    self.assertRegex(done.stdout, r"\Aeval: |\A.*: eval: ")
        for wrong in ({"mode": "judge"}, {"version": "main"}, {"strict": "yes"}, {"image": None}):
            with self.subTest(str(wrong)), self.assertRaises(ValueError):
                self.component(GOOD, **wrong)

    def test_the_program_is_judged_as_without_the_job(self):
        done = self.component("sh -c 'echo \"two  words\" \"$HOME\"; env; exit 0'").run("sh")
        self.assertIn(f"two  words {os.environ['HOME']}\n", done.stdout)
        self.assertNotIn("CTXCONF_JOB", done.stdout)
        self.assertEqual(done.returncode, 4, done.stdout)

    def test_a_release_that_is_not_what_it_says(self):
        with open(self.archive, "ab") as file:
            file.write(b"x")
        done = self.component(GOOD).run("sh")
        self.assertEqual(done.returncode, 1)
        self.assertIn("has another checksum", done.stdout)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "reports")))

    def test_the_template_has_the_same_installer_and_version_as_the_repository(self):
        component = self.component(GOOD)
        copy = re.search(r"<<'END_OF_INSTALL_RELEASE'\n(.*)^END_OF_INSTALL_RELEASE$", component.job["script"][0],
                         re.S | re.M)
        self.assertEqual(copy.group(1), read(SOURCE, "scripts", "install-release"),
                         "copy scripts/install-release to templates/ctxconf.yml")
        self.assertIn(f"default: {own_version()}\n", read(SOURCE, "templates", "ctxconf.yml"))


class ReferenceTest(unittest.TestCase):
    """What GitHub and GitLab themselves would refuse, where their linters are installed."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def lint(self, *command):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        return done.stdout + done.stderr if done.returncode else ""

    def write(self, path, text):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def workflows_of_the_docs(self):
        found = [text for text in re.findall(r"```yaml\n(.*?)```", read(SOURCE, "docs", "ci.md"), re.S)
                 if re.search("^on:", text, re.M)]
        self.assertEqual(len(found), 2)
        return found

    @unittest.skipUnless(shutil.which("actionlint"), "needs actionlint")
    def test_workflows_of_the_docs_use_the_action_as_it_is(self):
        os.mkdir(os.path.join(self.folder, ".git"))
        self.write("action/action.yml", read(SOURCE, "action.yml"))
        for number, text in enumerate(self.workflows_of_the_docs()):
            local, count = re.subn(r"uses: OWNER/ctxconf@v\S+", "uses: ./action", text)
            self.assertTrue(count)
            self.write(f".github/workflows/{number}.yml", local)
        self.assertEqual(self.lint("actionlint", "-no-color"), "")
        self.write(".github/workflows/0.yml", local.replace("command:", "comand:"))
        self.assertIn('"comand" is not defined', self.lint("actionlint", "-no-color"))

    @unittest.skipUnless(yaml and shutil.which("check-jsonschema"), "needs check-jsonschema")
    def test_schemas(self):
        self.write("action.yml", read(SOURCE, "action.yml"))
        files = [("action.yml", "vendor.github-actions")]
        for number, text in enumerate(self.workflows_of_the_docs()):
            self.write(f"workflow{number}.yml", text)
            files.append((f"workflow{number}.yml", "vendor.github-workflows"))
        for number, part in enumerate(yaml.safe_load_all(read(SOURCE, "templates", "ctxconf.yml"))):
            self.write(f"part{number}.yml", yaml.safe_dump(part))
            files.append((f"part{number}.yml", "vendor.gitlab-ci"))
        for file, schema in files:
            self.assertEqual(self.lint("check-jsonschema", "--builtin-schema", schema, file), "", file)


if __name__ == "__main__":
    unittest.main()
