#!/usr/bin/env python3
"""Tests the scripts for the fuzz targets: scripts_test.py SOURCE-DIR TARGET"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE, TARGET = pathlib.Path(sys.argv[1]), sys.argv[2]
SEEDS = SOURCE / "fuzz/make_seeds.py"


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, timeout=60)


class Folder(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)


class MakeSeeds(Folder):
    VECTORS = {
        "thread-record/one-attribute.json": {"id": "rec/one-attribute", "record": "00" * 28, "key_map": ["a"]},
        "process-context/plain.json": {"id": "pctx/plain", "header": "00" * 32, "payload": "0a00",
                                       "payload_at": "0x1000", "clock": {"boottime_ns": 1}},
        "maps/one.json": {"id": "maps/one", "maps": "1000-2000 rw-p 00000000 00:00 0 \n"},
    }

    def write(self, name, content):
        path = self.dir / "golden" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")

    def make(self):
        return run(sys.executable, SEEDS, self.dir / "golden", self.dir / "seeds")

    def test_every_target_gets_seeds_and_old_ones_go(self):
        for name, vector in self.VECTORS.items():
            self.write(name, vector)
        (self.dir / "seeds/maps_fuzzer").mkdir(parents=True)
        (self.dir / "seeds/maps_fuzzer/old").touch()
        done = self.make()
        self.assertEqual(done.returncode, 0, done.stderr)
        made = {p.name for p in (self.dir / "seeds").iterdir()}
        self.assertEqual(made, {path.stem for path in (SOURCE / "fuzz").glob("*_fuzzer.options")})
        for target in made:
            self.assertTrue(any((self.dir / "seeds" / target).iterdir()), target)
        self.assertEqual((self.dir / "seeds/record_fuzzer/one-attribute-last").read_bytes(), b"\x01" + bytes(28))
        context = self.dir / "seeds/thread_context_fuzzer/one-attribute-2"
        self.assertEqual(context.read_bytes(), b"\x01\x02" + bytes(28))
        self.assertFalse((self.dir / "seeds/maps_fuzzer/old").exists())
        timelines = self.dir / "seeds/timeline_fuzzer"
        self.assertEqual(json.loads((timelines / "old-names").read_bytes())["version"], 12)

    def test_no_vectors_are_an_error(self):
        done = self.make()
        self.assertEqual(done.returncode, 2)
        self.assertIn("no vectors in", done.stderr)
        self.assertFalse((self.dir / "seeds").exists())

    def test_a_bad_vector_is_named(self):
        for text in ("{", "[]", "{}", '{"id": "maps/one", "maps": 5}'):
            for name, vector in self.VECTORS.items():
                self.write(name, vector)
            self.write("maps/bad.json", text)
            done = self.make()
            self.assertEqual(done.returncode, 2, text)
            self.assertIn("maps/bad.json", done.stderr)
            self.assertFalse((self.dir / "seeds").exists())


class Replay(Folder):
    def test_files_and_directories_are_run(self):
        (self.dir / "a/b").mkdir(parents=True)
        (self.dir / "a/b/one").write_bytes(b"\0\0" + bytes(30))
        (self.dir / "two").write_bytes(b"")
        done = run(TARGET, self.dir / "a", self.dir / "two")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 inputs, none of them a finding", done.stdout)

    def test_an_empty_corpus_is_an_error(self):
        done = run(TARGET, self.dir)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no input", done.stderr)
        # Even together with one that has some.
        (self.dir / "empty").mkdir()
        (self.dir / "full").mkdir()
        (self.dir / "full/one").write_bytes(bytes(30))
        self.assertEqual(run(TARGET, self.dir / "full").returncode, 0)
        self.assertEqual(run(TARGET, self.dir / "empty", self.dir / "full").returncode, 2)

    def test_what_cannot_be_read_is_an_error(self):
        self.assertEqual(run(TARGET, self.dir / "missing").returncode, 2)
        self.assertEqual(run(TARGET).returncode, 2)


class HostileFiles(Folder):
    """The script with a program that does one thing whatever it is given."""

    def found(self, does, kind="elf", count=2):
        program = self.dir / "ctxconf"
        program.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        program.chmod(0o755)
        return run(sys.executable, SOURCE / "scripts/hostile-files", count, "--program", program, "--kind", kind,
                   "--keep", self.dir / "found", "--jobs", 1)

    def test_each_sort_of_finding(self):
        for does, problem in (("kill -SEGV $$", "signal 11"), ("echo it broke >&2; exit 70", "exit code 70: it broke"),
                              ("exit 42", "exit code 42, which is not documented"), ("touch left", "left left"),
                              ("mkdir a; touch a/b", "left a"), ("echo x >> input", "input was changed"),
                              ("echo 'ERROR: AddressSanitizer: heap' >&2; exit 1", "ERROR: AddressSanitizer: heap"),
                              ("echo 'x.cc:1: runtime error: y' >&2; exit 1", "x.cc:1: runtime error: y")):
            done = self.found(does)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"  FINDING  elf 0: {problem}\n  FINDING  elf 1: {problem}\n", done.stdout)
            self.assertRegex(done.stdout, r"elf +2 files, +\d accepted, 2 findings, slowest \d")
            at = self.dir / "found/elf-1-0"
            self.assertTrue((at / "problem.txt").read_text(encoding="utf-8").startswith(f"{problem}\nctxconf elf "))
            self.assertTrue((at / "input").exists())

    def test_the_same_seed_makes_the_same_files(self):
        self.found("exit 70", count=3)
        first = [(self.dir / f"found/elf-1-{n}/input").read_bytes() for n in range(3)]
        self.found("exit 70", count=3)
        self.assertEqual(first, [(self.dir / f"found/elf-1-{n}/input").read_bytes() for n in range(3)])

    def test_what_is_documented_is_no_finding(self):
        for does, kind in (("exit 2", "elf"), ("echo x >> input; exit 2", "expect-from"),
                           ("[ $2 != -vv ] || { mkdir -p out/traces; touch out/result.json out/traces/a.b-c.trace; }",
                            "timeline")):
            done = self.found(does, kind, 12)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("seed 1\n", done.stdout)
            self.assertFalse((self.dir / "found").exists())

    def test_no_program(self):
        done = run(SOURCE / "scripts/hostile-files", "--program", self.dir / "missing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("hostile-files: no ", done.stderr)


class FuzzAll(Folder):
    STUB = """#!/bin/sh
printf '%s\\n' "$@" >"$0.words"
echo "stat::number_of_executed_units: 17"
exit CODE
"""

    def setUp(self):
        super().setUp()
        self.targets = sorted(path.stem for path in (SOURCE / "fuzz").glob("*_fuzzer.options"))
        for target in self.targets:
            self.stub(target)

    def stub(self, target, code=0):
        path = self.dir / target
        path.write_text(self.STUB.replace("CODE", str(code)), encoding="ascii")
        path.chmod(0o755)

    def fuzz(self, *words):
        return run(SOURCE / "scripts/fuzz-all", *words, "--bin", self.dir, "--corpus", self.dir / "corpus")

    def test_each_target_gets_what_it_has(self):
        done = self.fuzz("9")
        self.assertEqual(done.returncode, 0, done)
        self.assertTrue(done.stdout.endswith(f"\n{len(self.targets)} targets, 0 with a finding\n"), done.stdout)
        for target in self.targets:
            self.assertRegex(done.stdout, rf"(?m)^{target} +17 inputs, no finding$")
            words = (self.dir / f"{target}.words").read_text(encoding="utf-8").split("\n")
            self.assertLessEqual({"-max_total_time=9", f"-dict={SOURCE.resolve()}/fuzz/{target}.dict"}, set(words))
            self.assertTrue(all(pathlib.Path(word).exists() for word in words[-4:-1]), words)
        words = (self.dir / "maps_fuzzer.words").read_text(encoding="utf-8").split("\n")
        self.assertIn("-max_len=512", words)

    def test_a_finding(self):
        self.stub("maps_fuzzer", 77)
        done = self.fuzz("1")
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stdout, r"(?m)^maps_fuzzer +17 inputs, FINDING: exit code 77$")
        self.assertIn(f"{len(self.targets)} targets, 1 with a finding", done.stdout)

    def test_no_targets(self):
        (self.dir / "maps_fuzzer").unlink()
        done = self.fuzz()
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("lacks maps_fuzzer: cmake --preset fuzz", done.stderr)


class MissingPackages(Folder):
    """The scripts with a dpkg-query that lacks some packages."""

    def lacking(self, *packages):
        query = self.dir / "dpkg-query"
        query.write_text("#!/bin/sh\nfor p; do :; done\ncase $p in " + "|".join(packages) +
                         ") exit 1 ;; esac\necho 'all ii '\n", encoding="utf-8")
        query.chmod(0o755)
        return {**os.environ, "PATH": f"{self.dir}:{os.environ['PATH']}"}

    def run_lacking(self, script, *packages):
        return subprocess.run([SOURCE / "scripts" / script, self.dir / "build"], env=self.lacking(*packages),
                              capture_output=True, text=True, check=False, timeout=60)

    def test_each_is_named_with_what_installs_it(self):
        for script, packages in (("check-oss-fuzz", ("libc++-19-dev", "libc++abi-19-dev")),
                                 ("fuzz-coverage", ("llvm-19", "libvalijson-dev")),
                                 ("fuzz-coverage", ("libcapstone-dev",)),
                                 ("check-aarch64", ("libcapstone-dev", "libstdc++-12-dev-arm64-cross"))):
            done = self.run_lacking(script, *packages)
            self.assertEqual(done.returncode, 2, done.stderr)
            names = " ".join(packages)
            self.assertEqual(done.stderr, f"{script}: not installed: {names}; scripts/setup {names}\n")
            self.assertFalse(list((self.dir / "build").glob("*")), "nothing is built")

    def test_setup_names_its_own_and_others(self):
        for given, named in (((), "clang-19"), (("bash", "clang-19", "llvm-19"), "clang-19 llvm-19"), (("bash",), "")):
            done = subprocess.run([SOURCE / "scripts/setup", "--missing", *given],
                                  env=self.lacking("clang-19", "llvm-19"), capture_output=True, text=True,
                                  check=False, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (0, named + "\n"), done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
