"""A pytest plugin: each requirement that ctxconf judges about a program is a test case.

In conftest.py:          pytest_plugins = ["pytest_ctxconf"]
In a module of tests:    test_sdk = Conformance("./adapter", mode="run")

ctxconf runs once for each Conformance, when its first test case does. A requirement that is broken is a failed case,
one that could not be observed or does not apply is skipped with the reason, and a known failure (--expect) is an
expected one. The last case, `run`, fails if the program crashed or ctxconf ended with an exit code that no requirement
explains. If ctxconf gives no result, the first case fails and the others are skipped.

The program ctxconf is $CTXCONF_PROGRAM, or else the one in PATH. The reports are in ctxconf-out/ of pytest's root.
"""
import contextlib
import json
import os
import shutil
import subprocess
import threading
import warnings

import pytest

TEXT_LIMIT = 2000
BROKEN = ("fail", "crash", "timeout", "harness-error")


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
    """Texts of the program may have characters that control or reorder what a terminal shows."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text[:TEXT_LIMIT])


class Judged(pytest.Collector):
    def __init__(self, conformance, **kwargs):
        super().__init__(**kwargs)
        self.conformance = conformance
        self.result = self.no_result = None

    def collect(self):
        """From the list of requirements: the program does not run while pytest collects."""
        listed = subprocess.run([ctxconf(), "list", "--checks", "--json"], stdin=subprocess.DEVNULL, capture_output=True,
                                timeout=60, check=True)
        role = "reader" if self.conformance.mode == "reader" else "writer"
        ids = [one["id"] for one in json.loads(listed.stdout) if one["role"] == role]
        return [Requirement.from_parent(self, name=name) for name in ids] + [Run.from_parent(self, name="run")]

    def judge(self):
        if self.no_result:
            pytest.skip(f"not judged: {self.no_result.splitlines()[0]}")
        if self.result is None:
            try:
                self.result = self.run()
            except (OSError, ValueError) as error:
                self.no_result = printable(str(error))
            if self.no_result:
                pytest.fail(self.no_result, pytrace=False)
        return self.result

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
            raise ValueError(f"ctxconf did not end within {mine.timeout} s; its reports are in {out}") from None
        reader.join(10)
        said = tail.decode(errors="backslashreplace")
        try:
            result = json.loads((out / "result.json").read_bytes())
        except FileNotFoundError:
            raise ValueError(f"ctxconf ended with exit code {code}, without a result\n{said}") from None
        if code != 0 and all(one["outcome"] in ("na", "unobservable") for one in result["results"]):
            raise ValueError(f"ctxconf ended with exit code {code}: {result['exit']['reason']}\n{said}")
        return result


def is_broken(one, options):
    return one["outcome"] in BROKEN or (one["outcome"] == "warn" and "--strict" in options)


class Requirement(pytest.Item):
    def runtest(self):
        result = self.parent.judge()
        one = next((one for one in result["results"] if one["id"] == self.name), None)
        if one is None:
            pytest.skip("not selected")
        worst = one["findings"][0] if one["findings"] else {"saw": "", "evidence": [], "remedy": ""}
        saw = printable(worst["saw"])
        if one["outcome"] == "na":
            pytest.skip(f"n/a ({worst.get('na_reason', 'no reason')}): {saw}")
        if one["outcome"] == "unobservable":
            pytest.skip(f"unobservable: {saw}" + (f"; to see it: {printable(worst['remedy'])}" if worst["remedy"] else ""))
        if one["outcome"] in (*BROKEN, "warn") and one["expected"] == "as-expected":
            pytest.xfail(f"{printable(one['expectation_note'])}: {saw}")
        text = "\n".join([f"{one['outcome']}: {one['id']}, {one['strength']} of OTEP {one['otep']} #{one['anchor']}",
                          f"rule  {one['text']}", f"saw   {saw}",
                          *(f"      {printable(line)}" for line in worst["evidence"][:20]), f"why   {one['why']}"])
        if is_broken(one, self.parent.conformance.options):
            pytest.fail(text, pytrace=False)
        if one["outcome"] == "warn":
            warnings.warn(pytest.PytestWarning(text))

    def reportinfo(self):
        return self.path, None, f"{self.parent.name} {self.name}"


class Run(Requirement):
    def runtest(self):
        result, options = self.parent.judge(), self.parent.conformance.options
        explained = any(is_broken(one, options) and one["expected"] != "as-expected" for one in result["results"])
        code = result["exit"]["code"]
        if result["problems"] or code not in (0, 1) or (code == 1 and not explained):
            lines = [f"ctxconf ended with exit code {code}: {result['exit']['reason']}"]
            lines += [f"{one['outcome']}: {one['text']}" for one in result["problems"][:20]]
            lines += [f"{one['text']}\nto fix it: {one['mend']}" for one in result["expectation_problems"][:20]]
            pytest.fail("\n".join(map(printable, lines)), pytrace=False)
