#!/usr/bin/env python3
"""Judges programs from CTest, pytest and go test, as a project that has nothing but ctxconf would.

usage: examples_test.py SOURCE_DIR BUILD_DIR CMAKE
"""

import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import leftovers

SOURCE, BUILD = map(pathlib.Path, map(os.path.abspath, sys.argv[1:3]))
CMAKE = sys.argv[3]
del sys.argv[1:4]
BIN = BUILD / "bin"
EXAMPLES = SOURCE / "examples"
CTEST = shutil.which("ctest", path=str(pathlib.Path(CMAKE).parent)) or "ctest"
DEADLINE_S = 300
GOOD = [str(BIN / "process_writer"), "--good", "default"]
WRONG_SIZE = [str(BIN / "process_writer"), "--bad", "pctx.header.payload-size"]
MICROSECONDS = [str(BIN / "process_writer"), "--bad", "pctx.header.timestamp-nanoseconds"]
CRASHES = ["sh", "-c", " ".join(GOOD) + "; kill -SEGV $$"]
SEVERAL = ["sh", "-c", " & ".join(map(" ".join, (GOOD, WRONG_SIZE, GOOD))) + " & wait"]
COLOURED = ["printf", r"\033[31mred"]
LOUD = ["sh", "-c", "yes | head -n 9999"]
MISSING = ["./no-such-program"]
HANGS = ["sleep", "997"]
HEADER = ["--only", "pctx.header.*"]
FEW_CASES = ["-k", "pctx.header or pctx.update.visible or run"]
RULE = "The 32-bit field at offset 12 is the exact length of the encoded message."
SAW = "payload_size is 261, but decoding stopped at offset 260"
UNOBSERVABLE = "unobservable: clocks were read without system calls; to see it: --faults, or --hide-vdso"
NOT_APPLICABLE = "n/a (arch): the program is 64-bit"


class ExampleTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.mark = f"CTXCONF_TEST_MARK={self.folder}"
        self.addCleanup(lambda: self.assertEqual(leftovers.marked(self.mark), []))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("CTXCONF_")} | {
            "PATH": f"{BIN}:{os.environ['PATH']}", "CTXCONF_TEST_MARK": str(self.folder)}

    def write(self, name, text, mode=0o644):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    def call(self, *command, ok, cwd=None):
        done = subprocess.run(command, cwd=cwd or self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_S, check=False)
        output = done.stdout.decode(errors="backslashreplace")
        self.assertEqual(done.returncode == 0, ok, output)
        return output

    def without_ctxconf(self):
        """A PATH that has everything but ctxconf."""
        self.environment["PATH"] = os.environ["PATH"]
        if shutil.which("ctxconf", path=self.environment["PATH"]):
            self.skipTest("ctxconf is in the PATH of this test")

    def few_requirements(self):
        """A ctxconf that is first in PATH, and with which an adapter does not take seconds."""
        program = self.write("few/ctxconf", f"""#!/bin/sh
[ "$1" = run ] && shift && set -- run --only "pctx.header.*" "$@"
exec {shlex.quote(str(BIN / "ctxconf"))} "$@"
""", 0o755)
        self.environment["PATH"] = f"{program.parent}:{self.environment['PATH']}"
        return program

    def other_exit(self):
        """A ctxconf that ends in another way than its report says."""
        ctxconf = shlex.quote(str(BIN / "ctxconf"))
        self.environment["CTXCONF_PROGRAM"] = str(self.write("other/ctxconf", f"""#!/bin/sh
[ "$1" = list ] && exec {ctxconf} "$@"
{ctxconf} "$@" && kill -KILL $$
exit 0
""", 0o755))

    def expectations(self, status):
        return self.write("known", f"# ctxconf-expect 1\n{status} pctx.header.payload-size issue=https://bugs.example/1\n")


class CMakeTest(ExampleTest):
    @classmethod
    def setUpClass(cls):
        """The package does not know where it was installed."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        first, cls.installed = (pathlib.Path(folder.name).resolve() / name for name in ("first", "moved"))
        subprocess.run([CMAKE, "--install", str(BUILD), "--prefix", str(first), "--component", "programs"],
                       stdout=subprocess.DEVNULL, timeout=DEADLINE_S, check=True)
        os.rename(first, cls.installed)
        cls.prefix = f"-DCMAKE_PREFIX_PATH={cls.installed}"

    def setUp(self):
        super().setUp()
        self.build = self.folder / "build"

    def project(self, *lines, find="find_package(ctxconf 0.1 REQUIRED)"):
        self.write("CMakeLists.txt", "\n".join(
            ["cmake_minimum_required(VERSION 3.21)", "project(sdk LANGUAGES NONE)", "enable_testing()", find, *lines]))

    def configure(self, *options, ok=True, source=None):
        return self.call(CMAKE, "-G", "Ninja", "-S", str(source or self.folder), "-B", str(self.build), *options, ok=ok)

    def ctest(self, ok):
        """What CTest says of each test, and what they print."""
        output = self.call(CTEST, "--test-dir", str(self.build), "-V", ok=ok)
        found = re.findall(r"(?m)^ *\d+/\d+ Test +#\d+: (\S+) \.+ *\**(Passed|Failed|Skipped|Timeout)", output)
        return dict(found), output

    def test_the_installed_package(self):
        self.environment["PATH"] = os.environ["PATH"]
        self.expectations("fail")
        words = " ".join
        self.project(
            "add_executable(writer IMPORTED)",
            f"set_target_properties(writer PROPERTIES IMPORTED_LOCATION {GOOD[0]})",
            "ctxconf_add_test(NAME sdk/good COMMAND writer --good default)",
            f"ctxconf_add_test(NAME bad COMMAND {words(WRONG_SIZE)} SKIP_WITHOUT_PTRACE)",
            f"ctxconf_add_test(NAME known MODE wrap COMMAND {words(WRONG_SIZE)} EXPECTATIONS known)",
            f"ctxconf_add_test(NAME stale COMMAND {words(GOOD)} OPTIONS {words(HEADER)} EXPECTATIONS known)",
            f"ctxconf_add_test(NAME missing COMMAND {words(MISSING)} SKIP_WITHOUT_PTRACE)",
            "ctxconf_add_test(NAME silent COMMAND true SKIP_WITHOUT_PTRACE)",
            "add_executable(printf IMPORTED)",
            f"set_target_properties(printf PROPERTIES IMPORTED_LOCATION {shutil.which('printf')})",
            "ctxconf_add_test(NAME words COMMAND printf [[<%s>]] [[a;b c]] WORKING_DIRECTORY /)",
            f"ctxconf_add_test(NAME hangs COMMAND {words(HANGS)})",
            "set_tests_properties(hangs PROPERTIES TIMEOUT 3)")
        self.configure(self.prefix)
        outcomes, output = self.ctest(ok=False)
        self.assertEqual(outcomes, {
            "sdk/good": "Passed", "bad": "Failed", "known": "Passed", "stale": "Failed", "missing": "Failed",
            "silent": "Failed", "words": "Failed", "hangs": "Timeout"}, output)
        self.assertRegex(output, r"(?m)^\d+: FAIL  pctx\.header\.payload-size .*")
        self.assertEqual(len(re.findall(r"(?m)^\d+: FAIL  ", output)), 1, output)
        self.assertIn("cannot start ./no-such-program", output)
        self.assertIn("<a;b c>", output)
        self.assertRegex(output, r"(?m)^\d+: exit 5: ")
        for name, code in (("sdk/good", 0), ("bad", 1), ("silent", 4)):
            with open(self.build / "ctxconf" / name / "result.json", encoding="utf-8") as file:
                self.assertEqual(json.load(file)["exit"]["code"], code)

    def test_another_version(self):
        self.project(find="find_package(ctxconf 99 REQUIRED)")
        self.assertIn("ctxconf", self.configure(self.prefix, ok=False))
        self.project('message(STATUS "found: ${ctxconf_FOUND} ${ctxconf_VERSION}")', find="find_package(ctxconf)")
        self.assertRegex(self.configure(self.prefix, "--fresh"), r"found: (1|TRUE) \d+\.\d+")
        shutil.copytree(self.installed / "lib", self.folder / "bare/lib")
        self.without_ctxconf()
        self.assertRegex(self.configure(f"-DCMAKE_PREFIX_PATH={self.folder / 'bare'}", "--fresh"), "found: (0|FALSE)")

    def test_the_example(self):
        self.configure(self.prefix, f"-DCTXCONF_PROGRAM={self.few_requirements()}", source=EXAMPLES / "cmake")
        outcomes, output = self.ctest(ok=True)
        self.assertEqual(outcomes, {"context-of-program": "Passed", "context-of-sdk": "Passed"}, output)

    def copy(self, *lines):
        shutil.copy(SOURCE / "cmake/ctxconf_add_test.cmake", self.folder)
        self.project(*lines, find="include(ctxconf_add_test.cmake)")

    def test_a_copy_of_the_file_and_a_program_in_path(self):
        self.copy(f"ctxconf_add_test(NAME good COMMAND {' '.join(GOOD)} OPTIONS {' '.join(HEADER)})")
        self.configure()
        self.assertEqual(self.ctest(ok=True)[0], {"good": "Passed"})

    def test_where_the_program_is(self):
        self.without_ctxconf()
        self.copy(f"ctxconf_add_test(NAME good COMMAND {' '.join(GOOD)} OPTIONS {' '.join(HEADER)})")
        self.assertIn("-DCTXCONF_PROGRAM=/path/to/ctxconf", " ".join(self.configure(ok=False).split()))
        said = self.configure("-DCTXCONF_PROGRAM=/no/such/ctxconf", ok=False)
        self.assertIn("CTXCONF_PROGRAM is /no/such/ctxconf, which does not exist", " ".join(said.split()))
        os.symlink(BIN / "ctxconf", self.folder / "mine")
        self.configure("-DCTXCONF_PROGRAM=mine")
        self.assertEqual(self.ctest(ok=True)[0], {"good": "Passed"})

    def test_every_argument_arrives(self):
        words = ["", "[", "a;b c", "]", "\\;", '"$x" ${x}\\', "\n[[", ""]
        fake = self.write("fake", '#!/bin/sh\nprintf "%s@" "$@" >said\n', 0o755)
        quoted = " ".join(f"[==[\n{word}]==]" for word in words)
        self.copy(f"ctxconf_add_test(OPTIONS --only {quoted} NAME words COMMAND printf {quoted})")
        self.configure(f"-DCTXCONF_PROGRAM={fake}")
        self.ctest(ok=True)
        self.assertEqual((self.build / "said").read_text(encoding="utf-8").split("@")[:-1], [
            "wrap", "--out", str(self.build / "ctxconf/words"), "--only", *words, "--", "printf", *words])

    def test_wrong_arguments(self):
        for arguments, message in (("NAME a", "NAME and COMMAND are required"),
                                   ("NAME a COMMAND b MODE judge", "MODE is judge"),
                                   ("a COMMAND b NAME a", "unknown, or without a value: a"),
                                   ("NAME a COMMAND b MODE", "unknown, or without a value: MODE")):
            with self.subTest(arguments):
                self.copy(f"ctxconf_add_test({arguments})")
                self.assertIn(message, " ".join(self.configure(ok=False).split()))

    def test_a_host_without_ptrace(self):
        self.assertRegex(self.call("ctxconf", "list", "--capabilities", ok=True), "(?m)^(yes|no) +ptrace ")
        fake = self.write("fake", '#!/bin/sh\n[ "$1" = list ] || exit 3\necho "no   ptrace               refused"\n', 0o755)
        self.copy("ctxconf_add_test(NAME skipped COMMAND true SKIP_WITHOUT_PTRACE)",
                  "ctxconf_add_test(NAME failed COMMAND true)")
        self.configure(f"-DCTXCONF_PROGRAM={fake}")
        self.assertEqual(self.ctest(ok=False)[0], {"skipped": "Skipped", "failed": "Failed"})


@unittest.skipIf(importlib.util.find_spec("pytest") is None, "needs python3-pytest")
class PytestTest(ExampleTest):
    def pytest(self, *words, ok):
        """Outcome and text of each case of each program."""
        output = self.call(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junitxml=cases.xml", *words, ok=ok)
        cases = {}
        for case in xml.etree.ElementTree.parse(self.folder / "cases.xml").iter("testcase"):
            child = case.find("*")
            outcome = (case.get("classname").rpartition(".")[2], "passed", "") if child is None else (
                case.get("classname").rpartition(".")[2], child.tag, f"{child.get('message')}\n{child.text}")
            cases.setdefault(outcome[0], {})[case.get("name")] = outcome[1:]
        return cases, output

    def module(self, **programs):
        for name in ("pytest_ctxconf.py", "conftest.py"):
            shutil.copy(EXAMPLES / "pytest" / name, self.folder)
        lines = [f"test_{name} = Conformance({arguments})" for name, arguments in programs.items()]
        self.write("test_sdk.py", "\n".join(["from pytest_ctxconf import Conformance", *lines, ""]))

    def outcomes(self, cases, outcome):
        return {name: text for name, (what, text) in cases.items() if what == outcome}

    def test_each_requirement_is_a_case(self):
        def program(command, *options):
            return f"*{command!r}, options={HEADER + list(options)!r}"
        known = str(self.expectations("fail"))
        self.module(bad=program(WRONG_SIZE), good=program(GOOD), several=program(SEVERAL), crashes=program(CRASHES),
                    known=program(WRONG_SIZE, "--expect", known), stale=program(GOOD, "--expect", known),
                    warns=program(MICROSECONDS), strict=program(MICROSECONDS, "--strict"))
        cases, output = self.pytest(*FEW_CASES, ok=False)
        failed = {name: self.outcomes(all_of, "failure") for name, all_of in cases.items()}
        self.assertEqual({name: set(some) for name, some in failed.items()}, {
            "test_bad": {"pctx.header.payload-size"}, "test_good": set(), "test_several": {"pctx.header.payload-size"},
            "test_crashes": {"run"}, "test_known": set(), "test_stale": {"run"}, "test_warns": set(),
            "test_strict": {"pctx.header.timestamp-nanoseconds"}}, output)
        for text in (RULE, SAW, "/memfd:OTEL_CTX (deleted)", "why "):
            self.assertIn(text, failed["test_bad"]["pctx.header.payload-size"])
        self.assertIn("died of SIGSEGV", failed["test_crashes"]["run"])
        self.assertRegex(failed["test_stale"]["run"], "(?s)exit code 5.*fix: sed")
        self.assertRegex(output, r"PytestWarning: WARN  pctx\.header\.timestamp-nanoseconds")
        good, skipped = cases["test_good"], self.outcomes(cases["test_good"], "skipped")
        self.assertEqual(good["pctx.header.payload-size"], ("passed", ""))
        self.assertEqual(good["run"], ("passed", ""))
        self.assertEqual(set(cases["test_several"]), set(good))
        self.assertIn(UNOBSERVABLE, skipped["pctx.header.timestamp-clock"])
        self.assertIn(NOT_APPLICABLE, skipped["pctx.header.wide-fields-on-32-bit"])
        self.assertIn("not selected", skipped["pctx.update.visible"])
        self.assertIn("https://bugs.example/1", self.outcomes(cases["test_known"], "skipped")["pctx.header.payload-size"])
        self.assertTrue((self.folder / "ctxconf-out/test_sdk.py/test_good/report.html").exists())

    def test_no_result_is_one_failure(self):
        self.module(missing=repr(MISSING[0]), silent="'true'", coloured=f"*{COLOURED!r}",
                    loud=f"*{LOUD!r}", hangs=f"*{HANGS!r}, timeout=2", mute="'sleep', '997', mode='run', options=['--timeout-scale', '0.05']",
                    usage="'true', options=['--no-such-option']")
        cases, output = self.pytest(*FEW_CASES, ok=False)
        for name, text in (("missing", "cannot start ./no-such-program"), ("silent", "no published context was seen"),
                           ("coloured", r"\x1b[31mred"), ("loud", "\nexit 4: none of"), ("hangs", "did not end within 2 s"),
                           ("mute", "did not say hello"), ("usage", "--no-such-option")):
            with self.subTest(name):
                failed = self.outcomes(cases["test_" + name], "failure")
                self.assertEqual(len(failed), 1)
                self.assertIn(text, *failed.values())
                self.assertEqual(len(self.outcomes(cases["test_" + name], "skipped")) + 1, len(cases["test_" + name]))
        self.assertNotIn("\x1b", output)

    def test_another_exit_code(self):
        self.module(bad=f"*{WRONG_SIZE!r}, options={HEADER!r}", good=f"*{GOOD!r}, options={HEADER!r}")
        self.other_exit()
        cases, _ = self.pytest(*FEW_CASES, ok=False)
        for name, code, reported in (("bad", 0, 1), ("good", -9, 0)):
            self.assertNotIn("passed", {outcome for outcome, _ in cases[f"test_{name}"].values()})
            self.assertIn(f"exit code {code}, but its report says {reported}: ",
                          *self.outcomes(cases[f"test_{name}"], "failure").values())

    def test_no_list(self):
        self.module(good=f"*{GOOD!r}")
        self.environment["CTXCONF_PROGRAM"] = str(self.write("refuses", "#!/bin/sh\necho no memory >&2\nexit 3\n", 0o755))
        output = self.pytest(ok=False)[1]
        self.assertRegex(output, "(?s)ctxconf cannot list the requirements: .* exit status 3.*no memory")
        self.assertNotIn("CalledProcessError", output)

    def test_one_requirement(self):
        self.module(bad=f"*{WRONG_SIZE!r}")
        self.assertIn("1 failed", self.pytest("test_sdk.py::test_bad::pctx.header.payload-size", ok=False)[1])
        self.assertIn("1 passed", self.pytest("test_sdk.py::test_bad::pctx.header.version", ok=True)[1])

    def test_without_ctxconf(self):
        self.module(good=f"*{GOOD!r}")
        self.environment["CTXCONF_PROGRAM"] = "/no/such/ctxconf"
        self.assertIn("CTXCONF_PROGRAM is /no/such/ctxconf, which is not a program", self.pytest(ok=False)[1])
        self.environment["CTXCONF_PROGRAM"] = str(BIN / "ctxconf")
        self.without_ctxconf()
        self.pytest("-k", "pctx.header.version", ok=True)
        del self.environment["CTXCONF_PROGRAM"]
        self.assertIn("add its bin folder to PATH, or set CTXCONF_PROGRAM", self.pytest(ok=False)[1])

    def test_the_example(self):
        shutil.copytree(EXAMPLES / "pytest", self.folder, dirs_exist_ok=True)
        self.few_requirements()
        cases, _ = self.pytest(ok=True)
        self.assertEqual(set(cases), {"test_program", "test_sdk"})
        self.assertEqual(cases["test_sdk"]["pctx.header.signature"], ("passed", ""))


@unittest.skipIf(shutil.which("go") is None, "needs go: golang-go, or from go.dev")
class GoTest(ExampleTest):
    def setUp(self):
        super().setUp()
        # To compile the standard library takes long, and the user's cache may have it.
        cache = subprocess.run(["go", "env", "GOCACHE"], stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
        if not os.path.isabs(cache):
            cache = str(BUILD / "go-cache")
        self.environment |= {"GOCACHE": cache, "GOPATH": str(self.folder / "gopath"), "GOPROXY": "off",
                             "GOFLAGS": "-count=1 -vet=off", "GOTOOLCHAIN": "local", "GOENV": "off", "GO111MODULE": "on"}
        self.module = self.folder / "ctxconftest"
        shutil.copytree(EXAMPLES / "go/ctxconftest", self.module)

    def go(self, *words, ok):
        """Outcome and text of each test."""
        output = self.call("go", "test", "-json", *words, ok=ok, cwd=self.module)
        outcomes, texts = {}, {}
        for line in output.splitlines():
            event = json.loads(line) if line.startswith("{") else {}
            name = event.get("Test")
            if event.get("Action") == "output":
                texts[name] = texts.get(name, "") + event["Output"]
            elif event.get("Action") in ("pass", "fail", "skip") and name:
                outcomes[name] = event["Action"]
        return outcomes, texts, output

    def programs(self, **programs):
        lines = ["package ctxconftest_test", 'import ("testing"; "time"; "example.com/ctxconftest")',
                 "const second = time.Second"]
        for name, (command, *more) in programs.items():
            fields = ", ".join([f"Command: {self.strings(command)}", *more])
            lines.append(f"func Test{name}(t *testing.T) {{ ctxconftest.Judge(t, ctxconftest.Program{{{fields}}}) }}")
        (self.module / "context_test.go").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def strings(self, words):
        return "[]string{" + ", ".join(map(json.dumps, words)) + "}"

    def only_header(self, *options):
        return f"Options: {self.strings(HEADER + list(options))}"

    def test_each_requirement_is_a_subtest(self):
        known = self.only_header("--expect", str(self.expectations("fail")))
        self.programs(Bad=(WRONG_SIZE, self.only_header(), 'Out: "reports/bad"'), Good=(GOOD, self.only_header()),
                      Several=(SEVERAL, self.only_header()), Crashes=(CRASHES, self.only_header()), Known=(WRONG_SIZE, known), Stale=(GOOD, known),
                      Warns=(MICROSECONDS, self.only_header()), Strict=(MICROSECONDS, self.only_header("--strict")))
        outcomes, texts, output = self.go(ok=False)
        self.assertEqual({name for name, what in outcomes.items() if what == "fail"}, {
            "TestBad", "TestBad/pctx.header.payload-size", "TestSeveral", "TestSeveral/pctx.header.payload-size",
            "TestCrashes", "TestStale", "TestStrict", "TestStrict/pctx.header.timestamp-nanoseconds"}, output)
        self.assertNotIn("#", "".join(outcomes))
        for text in (RULE, SAW, "/memfd:OTEL_CTX (deleted)", "why "):
            self.assertIn(text, texts["TestBad/pctx.header.payload-size"])
        self.assertIn("died of SIGSEGV", texts["TestCrashes"])
        self.assertRegex(texts["TestStale"], "(?s)exit code 5.*fix: sed")
        self.assertRegex(texts["TestWarns/pctx.header.timestamp-nanoseconds"], "WARN  .* MUST")
        self.assertEqual(outcomes["TestGood/pctx.header.payload-size"], "pass")
        for name, text in (("TestGood/pctx.header.timestamp-clock", UNOBSERVABLE),
                           ("TestGood/pctx.header.wide-fields-on-32-bit", NOT_APPLICABLE),
                           ("TestKnown/pctx.header.payload-size", "https://bugs.example/1")):
            self.assertEqual(outcomes[name], "skip")
            self.assertIn(text, texts[name])
        self.assertTrue((self.module / "reports/bad/report.html").exists())

    def test_no_result_is_a_failure(self):
        self.programs(Missing=(MISSING,), Silent=(["true"],), Usage=(["true"], 'Options: []string{"--no-such-option"}'),
                      Hangs=(HANGS, "Timeout: 2 * second"),
                      Mute=(HANGS, 'Mode: "run"', 'Options: []string{"--timeout-scale", "0.05"}'))
        outcomes, texts, output = self.go(ok=False)
        for name, text in (("TestMissing", "cannot start ./no-such-program"), ("TestSilent", "no published context was seen"),
                           ("TestUsage", "--no-such-option"), ("TestHangs", "did not end within 2s"),
                           ("TestMute", "did not say hello")):
            with self.subTest(name):
                self.assertEqual(outcomes[name], "fail", output)
                self.assertIn(text, texts[name])
                self.assertNotIn("pass", {what for each, what in outcomes.items() if each.startswith(name + "/")})

    def test_without_ctxconf(self):
        self.programs(Good=(GOOD, self.only_header()))
        self.environment["CTXCONF_PROGRAM"] = "/no/such/ctxconf"
        self.assertIn("/no/such/ctxconf", self.go(ok=False)[1]["TestGood"])
        self.environment["CTXCONF_PROGRAM"] = str(BIN / "ctxconf")
        self.without_ctxconf()
        self.go(ok=True)
        del self.environment["CTXCONF_PROGRAM"]
        self.assertIn("add its bin folder to PATH, or set CTXCONF_PROGRAM", self.go(ok=False)[1]["TestGood"])

    def test_another_exit_code(self):
        self.programs(Bad=(WRONG_SIZE, self.only_header()), Good=(GOOD, self.only_header()))
        self.other_exit()
        outcomes, texts, _ = self.go(ok=False)
        self.assertEqual(outcomes, {"TestBad": "fail", "TestGood": "fail"})
        self.assertIn("exit code 0, but its report says 1: ", texts["TestBad"])
        self.assertIn("exit code -1, but its report says 0: ", texts["TestGood"])

    def test_the_deadline_of_go_test(self):
        self.programs(Hangs=(HANGS,))
        self.assertIn("did not end within", self.go("-timeout", "33s", ok=False)[1]["TestHangs"])
        self.assertIn("use a longer -timeout", self.go("-timeout", "20s", ok=False)[1]["TestHangs"])

    def test_the_example(self):
        self.few_requirements()
        outcomes, _, output = self.go("-vet=all", ok=True)
        self.assertEqual(outcomes["TestProgram/pctx.header.signature"], "pass", output)
        self.assertEqual(outcomes["TestSDK/pctx.header.signature"], "pass", output)


if __name__ == "__main__":
    leftovers.heed_signals()
    unittest.main()
