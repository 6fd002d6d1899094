"""A pytest plugin: each requirement that ctxconf judges about a program is a test case.

In conftest.py:          pytest_plugins = ["pytest_ctxconf"]
In a module of tests:    test_sdk = Conformance("./adapter", mode="run")

ctxconf runs once for each Conformance, when its first test case does. The outcomes are those of its junit.xml: a
requirement that is broken is a failed case, one that could not be observed or does not apply is skipped with the
reason, and a known failure (--expect) is an expected one. The last case, `run`, fails if the program crashed or if
ctxconf ended with an exit code that no requirement explains. If nothing was judged, the first case fails and the others
are skipped.

The program ctxconf is $CTXCONF_PROGRAM, or else the one in PATH. The reports are in ctxconf-out/ of pytest's root.
"""
import contextlib
import json
import os
import re
import shutil
import subprocess
import threading
import warnings
from xml.etree import ElementTree

import pytest

TEXT_LIMIT = 2000


class Conformance:
    """A program to judge; paths are relative to the folder of the test module. timeout: of ctxconf, in seconds."""

    def __init__(self, *command, mode="wrap", options=(), timeout=600):
        self.command, self.mode, self.options, self.timeout = command, mode, list(options), timeout


def pytest_pycollect_makeitem(collector, name, obj):
    if isinstance(obj, Conformance):
        return Judged.from_parent(collector, name=name, conformance=obj)
    return None


def ctxconf():
    named = os.environ.get("CTXCONF_PROGRAM")
    found = shutil.which(named or "ctxconf")
    if not found:
        raise pytest.Collector.CollectError(
            f"CTXCONF_PROGRAM is {named}, which is not a program" if named else
            "ctxconf is not found: install a release and add its bin folder to PATH, or set CTXCONF_PROGRAM")
    return os.path.abspath(found)


def printable(text):
    """What a program prints may have characters that control or reorder what a terminal shows."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def verdict(cases):
    """Of the cases of one requirement: one for each program that published, the worst first."""
    children = [child for case in cases for child in case]
    broken = [f"{child.get('message')}\n{child.text}" for child in children if child.tag in ("failure", "error")]
    if broken:
        return "failed", "\n".join(broken)
    if children and children[0].tag == "skipped":
        reason = children[0].get("message")
        return "known" if re.match("[a-z-]+ as expected: ", reason) else "skipped", reason
    return "passed", "\n".join(child.text for child in children if child.tag == "system-out")


class Judged(pytest.Collector):
    def __init__(self, conformance, **kwargs):
        super().__init__(**kwargs)
        self.conformance = conformance
        self.verdicts = self.no_result = None

    def collect(self):
        """From the list of requirements: the program does not run while pytest collects."""
        try:
            listed = subprocess.run([ctxconf(), "list", "--checks", "--json"], stdin=subprocess.DEVNULL,
                                    capture_output=True, timeout=60, check=True)
            checks = json.loads(listed.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            said = (getattr(error, "stderr", None) or b"").decode(errors="backslashreplace")
            raise self.CollectError(printable(f"ctxconf cannot list the requirements: {error}\n{said}")) from None
        role = "reader" if self.conformance.mode == "reader" else "writer"
        self.names = [one["id"] for one in checks if one["role"] == role] + ["run"]
        return [Requirement.from_parent(self, name=name) for name in self.names]

    def judge(self):
        if self.no_result:
            pytest.skip(f"not judged: {self.no_result.splitlines()[0]}")
        if self.verdicts is None:
            try:
                self.verdicts = self.run()
            except (OSError, ValueError, ElementTree.ParseError) as error:
                self.no_result = printable(str(error))
            if self.no_result:
                pytest.fail(self.no_result, pytrace=False)
        return self.verdicts

    def run(self):
        mine = self.conformance
        out = self.config.rootpath / "ctxconf-out" / self.nodeid.replace("::", "/")
        out.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen([ctxconf(), mine.mode, "--out", str(out), *mine.options, "--", *mine.command],
                                   cwd=self.path.parent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        tail = bytearray()

        def drain():
            with process.stdout as pipe:
                while block := pipe.read1(65536):
                    tail.extend(block)
                    del tail[:-TEXT_LIMIT]
        reader = threading.Thread(target=drain, daemon=True)
        reader.start()
        try:
            code = process.wait(mine.timeout)
        except subprocess.TimeoutExpired:
            process.terminate()  # it ends the program too
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()
            raise ValueError(f"ctxconf did not end within {mine.timeout} s; its reports are in {out}") from None
        reader.join(10)
        said = tail.decode(errors="backslashreplace")
        try:
            report = ElementTree.parse(out / "junit.xml")
        except FileNotFoundError:
            raise ValueError(f"ctxconf ended with exit code {code}, without a result\n{said}") from None
        reported = report.find(".//property[@name='exit']").get("value")
        if not reported.startswith(f"{code}: "):
            raise ValueError(f"ctxconf ended with exit code {code}, but its report says {reported}\n{said}")
        cases = {"run": []}
        for case in report.iter("testcase"):
            name = "run" if case.get("classname").startswith("ctxconf.") else case.get("name")
            cases.setdefault(name, []).append(case)
        verdicts = {name: verdict(cases[name]) if name in cases else ("skipped", "not selected") for name in self.names}
        outcome, text = verdicts.pop("run")
        outcomes = {each for each, _ in verdicts.values()}
        if code != 0 and (outcomes == {"skipped"} or "failed" not in outcomes | {outcome}):
            raise ValueError(f"ctxconf ended with exit code {reported}\n{said}")
        return verdicts | {"run": (outcome, f"ctxconf ended with exit code {reported}\n{text}")}


class Requirement(pytest.Item):
    def runtest(self):
        outcome, text = self.parent.judge()[self.name]
        if outcome == "failed":
            pytest.fail(text, pytrace=False)
        if outcome == "known":
            pytest.xfail(text)
        if outcome == "skipped":
            pytest.skip(text)
        if text.startswith("WARN"):
            warnings.warn(pytest.PytestWarning(text))

    def reportinfo(self):
        return self.path, None, f"{self.parent.name} {self.name}"
