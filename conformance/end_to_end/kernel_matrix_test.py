#!/usr/bin/env python3
"""What scripts/kernel-matrix makes of the results of machines. Scripts stand for ctxconf and for scripts/in-vm.

usage: kernel_matrix_test.py SOURCE_DIR [unittest arguments]
"""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

import script_module

SCRIPT = pathlib.Path(sys.argv.pop(1)).resolve() / "scripts/kernel-matrix"
ELF = b"\x7fELF\x02\x01\x01" + bytes(11)  # and e_machine
# Judges the programs that it is asked for: VERDICTS has a file for each machine, or for each machine when it judges them
# alone, with verdicts. It ends early at a verdict that is a number, its exit code.
IN_VM = r'''#!/usr/bin/env python3
import json, os, pathlib, sys
folder = pathlib.Path(__file__).resolve().parent
words = sys.argv[1:]
if words[0] == "--arch":
    machine, out = f"{words[1]}-{words[3]}", pathlib.Path(words[words.index("--out") + 1])
    words = words[words.index("--") + 1:]
else:
    machine, out = "host", pathlib.Path(words[words.index("--json") + 1]).parent
with (folder / "called").open("a") as f:
    print(machine, *[w for w in words[1:] if "/" not in w], file=f)
alone = "--jobs=1" in words
verdicts = json.loads((folder / f"{machine}{'-alone' if alone else ''}.verdicts").read_text())
asked = [w.removeprefix("--only=") for w in words if w.startswith("--only=")] or list(verdicts)
with (out / "lines.jsonl").open("w") as f:
    print(json.dumps({"kind": "selftest", "suite_version": "1", "commit": "c", "kernel": "K", "arch": "A", "programs": 3}), file=f)
    for name in asked:
        if isinstance(verdicts[name], int):
            f.write('{"kind": "prog')
            f.close()
            sys.exit(verdicts[name])
        print(json.dumps({"kind": "program", "name": name, "mutant": True, "command": "wrap", "verdict": verdicts[name],
                          "seconds": 1, "text": "a|b"}), file=f)
sys.exit(any(v not in ("killed", "clean", "skipped") for v in verdicts.values()))
'''


kernel_matrix = script_module.load(SCRIPT)


class KernelMatrix(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.fake = self.folder / "fake"
        self.fake.mkdir()
        (self.fake / "in-vm").write_text(IN_VM)
        (self.fake / "in-vm").chmod(0o755)
        for patch in (unittest.mock.patch.object(kernel_matrix, "IN_VM", self.fake / "in-vm"),
                      unittest.mock.patch.object(kernel_matrix.os, "uname", lambda: os.uname_result(("", "", "", "", "x86_64")))):
            patch.start()
            self.addCleanup(patch.stop)
        self.build("x86", 62, ["bad_a", "bad_b", "good_c"])

    def build(self, name, machine, programs):
        folder = self.folder / name / "bin"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ctxconf").write_bytes(ELF + machine.to_bytes(2, "little"))
        for each in kernel_matrix.LISTS:
            (folder / each).write_text('{"mutants": []}')
        (folder / kernel_matrix.LISTS[0]).write_text(json.dumps({"mutants": [{"name": p, "program": "writer"} for p in programs]}))

    def say(self, machine, **verdicts):
        (self.fake / f"{machine}.verdicts").write_text(json.dumps(verdicts))

    def called(self):
        file = self.fake / "called"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    def run_it(self, *words):
        out, err = io.StringIO(), io.StringIO()
        argv = ["kernel-matrix", "--build", str(self.folder / "x86"), *words, str(self.folder / "out")]
        with unittest.mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = kernel_matrix.main()
            except SystemExit as e:
                code = e.code
        file = self.folder / "out/matrix.json"
        self.matrix = json.loads(file.read_text()) if file.exists() else None
        return code, out.getvalue(), err.getvalue()

    def test_what_one_machine_skips_is_shown_by_another(self):
        self.say("x86_64-5.10", bad_a="killed", bad_b="skipped", good_c="skipped")
        self.say("x86_64-names", bad_a="killed", bad_b="killed", good_c="skipped")
        code, out, _ = self.run_it("--machine", "x86_64-names", "--machine", "x86_64-5.10")
        self.assertEqual(code, 0)
        self.assertEqual(self.called(), [f"x86_64-{kernel} selftest --json" for kernel in ("5.10", "names")])
        self.assertEqual(self.matrix["shown_by_none"], ["good_c"])
        self.assertEqual(self.matrix["shown_by"], {"bad_b": ["x86_64-names"]})
        self.assertIn("| x86_64-5.10 | K | 3 | 1 | 0 | 2 | 0 | 0 |", out)
        self.assertIn("| `bad_b` | x86_64-5.10 | x86_64-names |", out)
        self.assertIn("Right on no machine: `good_c`.", out)
        self.assertEqual((self.folder / "out/matrix.md").read_text(), out)

    def test_a_whole_matrix_shows_each_program(self):
        self.build("arm", 183, ["bad_a", "bad_b", "good_c"])
        ctxconf = self.folder / "x86/bin/ctxconf"
        ctxconf.unlink()
        ctxconf.symlink_to(self.fake / "in-vm")
        patch = unittest.mock.patch.object(kernel_matrix, "processor_of", lambda file: {"x86": "x86_64", "arm": "aarch64"}[file.parts[-3]])
        patch.start()
        self.addCleanup(patch.stop)
        for machine in ("host", "x86_64-5.10", "x86_64-6.1", "x86_64-6.12", "x86_64-names", "aarch64-6.1", "aarch64-6.12",
                        "aarch64-names"):
            self.say(machine, bad_a="killed", bad_b="skipped", good_c="clean")
        both = ("--build", str(self.folder / "arm"))
        self.assertEqual(self.run_it(*both)[0], 1)
        self.assertEqual(len(self.matrix["machines"]), 8)
        self.assertEqual(self.run_it(*both, "--only", "*_[ac]")[0], 0)

    def test_what_is_wrong_is_judged_again_alone(self):
        self.say("x86_64-6.1", bad_a="broken", bad_b="missed", good_c="clean")
        self.say("x86_64-6.1-alone", bad_a="killed", bad_b="missed")
        code, out, _ = self.run_it("--machine", "x86_64-6.1", "--scale", "7")
        self.assertEqual(code, 1)
        self.assertEqual(self.called(), ["x86_64-6.1 selftest --json",
                                         "x86_64-6.1 selftest --json --jobs=1 --timeout-scale=7.0 --only=bad_a --only=bad_b"])
        row = self.matrix["machines"]["x86_64-6.1"]
        self.assertEqual((row["right"], row["right_alone"], row["wrong"]), (2, 1, 1))
        self.assertEqual(row["wrong_programs"], {"bad_b": "a|b"})
        self.assertIn("| x86_64-6.1 | `bad_b` | a\\|b |", out)

    def test_one_that_ends_the_machine_hides_no_other(self):
        self.say("x86_64-6.1", bad_a="broken", bad_b=125, good_c="clean")
        self.say("x86_64-6.1-alone", bad_a="killed")
        self.assertEqual(self.run_it("--machine", "x86_64-6.1")[0], 3)
        row = self.matrix["machines"]["x86_64-6.1"]
        self.assertEqual((row["right_alone"], row["wrong"], row["not_judged"]), (1, 0, 2))

    def test_it_goes_on_where_a_machine_ended(self):
        self.say("x86_64-5.10", bad_a="killed", bad_b=124, good_c="clean")
        code, out, _ = self.run_it("--machine", "x86_64-5.10")
        self.assertEqual(code, 3)
        self.assertIn("x86_64-5.10 is incomplete: its time is over.", out)
        self.assertEqual(self.matrix["machines"]["x86_64-5.10"]["not_judged"], 2)
        self.assertEqual(self.matrix["shown_by_none"], [], "the others may be shown")
        # It goes on while there is something new.
        self.assertEqual(self.called(), ["x86_64-5.10 selftest --json", "x86_64-5.10 selftest --json --only=bad_b --only=good_c"])
        self.say("x86_64-5.10", bad_a="killed", bad_b="killed", good_c="clean")
        self.assertEqual(self.run_it("--machine", "x86_64-5.10")[0], 0)
        self.assertEqual(self.called(), ["x86_64-5.10 selftest --json --only=bad_b --only=good_c"])
        self.assertEqual(self.run_it("--machine", "x86_64-5.10")[0], 0)
        self.assertEqual(self.called(), [], "all is known")

    def test_another_build_is_judged_anew(self):
        self.say("x86_64-5.10", bad_a="killed", bad_b="killed", good_c="clean")
        self.run_it("--machine", "x86_64-5.10")
        self.called()
        for file in ("ctxconf", kernel_matrix.LISTS[0], "writer"):
            with self.subTest(file):
                with (self.folder / "x86/bin" / file).open("ab") as f:
                    f.write(b"\n")
                self.run_it("--machine", "x86_64-5.10")
                self.assertEqual(self.called(), ["x86_64-5.10 selftest --json"])
                self.run_it("--machine", "x86_64-5.10")
                self.assertEqual(self.called(), [], "the same build")

    def test_a_machine_that_does_not_start(self):
        self.say("x86_64-5.10", bad_a=125, bad_b="killed", good_c="clean")
        self.say("x86_64-6.1", bad_a="killed", bad_b="killed", good_c="clean")
        code, out, err = self.run_it("--machine", "x86_64-5.10", "--machine", "x86_64-6.1")
        self.assertEqual(code, 3)
        self.assertIn("exited with 125", err)
        self.assertIn("| x86_64-6.1 | K | 3 | 3 |", out)

    def test_a_program_without_a_result(self):
        self.say("x86_64-5.10", bad_a="killed", bad_b="killed", good_c="clean")
        self.build("x86", 62, ["bad_a", "bad_b", "good_c", "good_d"])
        code, out, _ = self.run_it("--machine", "x86_64-5.10")
        self.assertEqual(code, 3)
        self.assertIn("1 programs have no result, such as good_d", out)

    def test_wrong_words_are_usage(self):
        (self.folder / "text/bin").mkdir(parents=True)
        (self.folder / "text/bin/ctxconf").write_text("#!/bin/sh\n")
        for words, said in ((["--machine", "vax-4.3"], "vax-4.3 is none of host, "),
                            (["--machine", "aarch64-6.1"], "there is no --build for its processor"),
                            (["--build", str(self.folder / "x86")], "two for x86_64"),
                            (["--build", str(self.folder / "text")], "is not a program for"),
                            (["--build", str(self.folder / "absent")], "No such file"),
                            (["--only", "vax*"], "matches no program"), (["--jobs", "many"], "usage: kernel-matrix")):
            with self.subTest(words):
                code, _, err = self.run_it(*words)
                self.assertEqual(code, 2)
                self.assertIn(said, err)


if __name__ == "__main__":
    unittest.main()
