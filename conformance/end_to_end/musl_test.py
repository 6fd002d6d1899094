#!/usr/bin/env python3
"""Judges programs with musl: each access model of the thread context, dynamic and static, under wrap, attach
and run. Exits 77 without musl-gcc, which is in the package musl-tools.

usage: musl_test.py SOURCE_DIR BIN_DIR WRITER     the archive of the reference writer
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BIN, WRITER = map(os.path.abspath, sys.argv[1:4])
del sys.argv[1:4]
CTXCONF = os.path.join(BIN, "ctxconf")
TESTEES = os.path.join(SOURCE, "conformance", "testees")
COMPILER = ["musl-gcc", "-O2", "-Wall", "-Wextra", "-I", SOURCE]
EXPORT = ["-Wl,--export-dynamic-symbol=otel_thread_ctx_v1", "-Wl,-u,otel_thread_ctx_v1"]
LIBRARIES = {  # options, relocations of the variable
    "tlsdesc": (["-mtls-dialect=gnu2"], {"TLSDESC"}),
    "general_dynamic": (["-mtls-dialect=gnu"], {"DTPMOD64", "DTPOFF64"}),
    "initial_exec": (["-ftls-model=initial-exec"], {"TPOFF64"}),
}
DEADLINE_S = 300
HOLDS_S = (0.3, 3, 20)  # a program waits that long for samples of its threads; the next if they were too few
PASSED, FAILED = 0, 1


def field(number, data):
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def attribute(key, value):
    return field(1, key.encode()) + field(2, value)


def payload(service=b"musl", last_first=False):
    text = lambda t: field(1, t.encode())  # noqa: E731
    resource = field(1, attribute("service.name", field(1, service)))
    keys = attribute("threadlocal.attribute_key_map", field(5, field(1, text("http.route"))))
    schema = attribute("threadlocal.schema_version", text("tlsdesc_v1_dev"))
    fields = [field(1, resource), field(2, schema), field(2, keys)]
    return b"".join(reversed(fields) if last_first else fields)


def printed_by(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S,
                          check=False)
    return done.stdout + done.stderr


def images_of(folder):
    with open(os.path.join(folder, "timeline.json"), encoding="utf-8") as file:
        return [i for p in json.load(file)["processes"] for i in p["images"]]


def outcomes_of(folder):
    with open(os.path.join(folder, "result.json"), encoding="utf-8") as file:
        return {r["id"]: r["outcome"] for r in json.load(file)["results"]}


def sampled_in(folder):
    return {s["tid"] for i in images_of(folder) for s in i["threads"] if "record" in s}


def ids_of_races():
    """Whether a reader meets an update differs from run to run."""
    ids = set()
    for path in glob.glob(os.path.join(SOURCE, "conformance", "requirements", "[0-9]*.json")):
        with open(path, encoding="utf-8") as file:
            ids |= {r["id"] for r in json.load(file)["requirements"] if r["observe"]["level"] == "race"}
    return ids


class Musl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.dir = folder.name
        with open(cls.path("payload"), "wb") as file:
            file.write(payload())
        for source in ("attaching_threads", "slot_library"):
            cls.compile("-fPIE", "-c", os.path.join(TESTEES, source + ".c"), "-o", cls.path(source + ".o"))
        for name, (options, _) in LIBRARIES.items():
            cls.compile("-shared", "-fPIC", *options, os.path.join(TESTEES, "slot_library.c"), "-o",
                        cls.path(name + ".so"))
        program = [cls.path("attaching_threads.o"), WRITER]
        both = [cls.path("slot_library.o"), *program]
        cls.compile("-pie", *program, "-o", cls.path("opens"))
        cls.compile("-pie", *both, *EXPORT, "-o", cls.path("local_exec"))
        cls.compile("-static", *both, *EXPORT, "-o", cls.path("static"))
        # The specs of musl-gcc do not know -static-pie.
        library = os.path.dirname(os.path.realpath(cls.loader()))
        start = [os.path.join(library, name) for name in ("rcrt1.o", "crti.o", "crtn.o")]
        cls.compile("-nostartfiles", "-static", "-Wl,-pie,--no-dynamic-linker,-z,text", *start[:2], *both, start[2],
                    *EXPORT, "-o", cls.path("static_pie"))
        for name in LIBRARIES:
            cls.compile("-pie", *program, "-Wl,--no-as-needed", cls.path(name + ".so"), f"-Wl,-rpath,{cls.dir}", "-o",
                        cls.path("linked_" + name))

    @classmethod
    def path(cls, name):
        return os.path.join(cls.dir, name)

    @classmethod
    def compile(cls, *words):
        done = subprocess.run([*COMPILER, *words], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{words}\n{done.stderr}")

    def start(self, *words, **environment):
        """Until it waits: its process, and the slot of each thread by the last digit of its trace id."""
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, env=dict(os.environ, **environment))
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        slots = {}
        for line in process.stdout:
            if line == "ready\n":
                return process, slots
            thread = re.fullmatch(r"thread (\d) tid=(\d+) slot=(0x[0-9a-f]+)\n", line)
            self.assertTrue(thread, line)
            slots[int(thread[2])] = (thread[3], f"1{thread[1]}" * 16)
        self.fail("the program ended")

    def end(self, process):
        out, _ = process.communicate(timeout=DEADLINE_S)
        return process.returncode, out

    def wrap(self, *words, options=(), shows_threads=True, **environment):
        for hold in HOLDS_S:
            folder = tempfile.mkdtemp(dir=self.dir)
            process, slots = self.start(CTXCONF, "wrap", *options, "--out", folder, "--", *words, **environment)
            time.sleep(hold)
            code, out = self.end(process)
            if not shows_threads or sampled_in(folder) >= set(slots):
                break
        return code, out, folder, slots

    def sees_all(self, image, slots):
        self.assertEqual(len(slots), 3)
        # Later the slot is null.
        seen = {s["tid"]: (s["slot"], s["record"]["bytes"][:32]) for s in image["threads"] if "record" in s}
        self.assertEqual(seen, slots)
        self.assertEqual(image["threads_unread"], "")

    def programs(self):
        yield "local_exec", [], set()
        yield "static_pie", [], set()
        for name, (_, relocations) in LIBRARIES.items():
            yield "linked_" + name, [], relocations
            # musl opens no library whose variable it cannot place.
            if name != "initial_exec":
                yield "opens", [self.path(name + ".so")], relocations

    def test_every_access_model(self):
        for program, words, relocations in self.programs():
            with self.subTest(program=program, words=words):
                code, out, folder, slots = self.wrap(self.path(program), self.path("payload"), *words)
                self.assertEqual(code, PASSED, out)
                (image,) = images_of(folder)
                self.sees_all(image, slots)
                self.assertEqual({r["kind"] for m in image["modules"] for r in m["relocations"] if r["symbol"]},
                                 relocations)
                self.assertEqual(image["calls_unseen"] + image["stores_unseen"], "")
                for requirement in ("pctx.publish.timestamp-last", "tctx.tls.access-model", "tctx.record.ids-both-or-neither"):
                    self.assertEqual(outcomes_of(folder)[requirement], "pass", requirement)

    def test_a_static_program_hides_the_variable(self):
        code, out, folder, _ = self.wrap(self.path("static"), self.path("payload"), shows_threads=False)
        self.assertEqual(code, PASSED, out)
        self.assertEqual(outcomes_of(folder)["tctx.tls.fully-static"], "warn")
        (image,) = images_of(folder)
        self.assertEqual(image["threads"], [])
        self.assertEqual(image["libc"], "static")

    def test_broken_programs_fail(self):
        for bad, requirement in BROKEN.items():
            for program, words in (("opens", [self.path("tlsdesc.so")]), ("static_pie", [])):
                with self.subTest(bad=bad, program=program):
                    code, out, folder, _ = self.wrap(self.path(program), self.path("payload"), *words, BAD=bad)
                    self.assertEqual(code, FAILED, out)
                    failed = {i for i, outcome in outcomes_of(folder).items() if outcome == "fail"}
                    self.assertEqual(failed, {requirement})

    def test_process_contexts(self):
        for name, data, expected in (("not-utf8", payload(service=b"\xff"), {"pctx.payload.utf8"}),
                                     ("last-field-first", payload(last_first=True), set())):
            with self.subTest(name=name):
                with open(self.path(name), "wb") as file:
                    file.write(data)
                code, out, folder, _ = self.wrap(self.path("local_exec"), self.path(name))
                self.assertEqual(code, FAILED if expected else PASSED, out)
                self.assertEqual({i for i, outcome in outcomes_of(folder).items() if outcome == "fail"}, expected)

    def test_started_by_the_loader(self):
        for program, words in (("local_exec", []), ("opens", [self.path("general_dynamic.so")])):
            with self.subTest(program=program):
                code, out, folder, slots = self.wrap(self.loader(), self.path(program), self.path("payload"), *words)
                self.assertEqual(code, PASSED, out)
                self.sees_all(images_of(folder)[0], slots)

    def test_after_an_exec(self):
        code, out, folder, slots = self.wrap(self.path("opens"), self.path("payload"), self.path("tlsdesc.so"), "exec")
        self.assertEqual(code, PASSED, out)
        before, after = images_of(folder)
        self.assertEqual(before["threads"], [])
        self.sees_all(after, slots)

    def test_attach(self):
        for program, words in (("opens", [self.path("general_dynamic.so")]), ("static_pie", [])):
            with self.subTest(program=program):
                process, slots = self.start(self.path(program), self.path("payload"), *words)
                for hold in HOLDS_S:
                    folder = tempfile.mkdtemp(dir=self.dir)
                    done = subprocess.run([CTXCONF, "attach", "--for", f"{int(hold * 1000)}ms", "--out", folder,
                                           str(process.pid)], capture_output=True, text=True, timeout=DEADLINE_S,
                                          check=False)
                    if sampled_in(folder) >= set(slots):
                        break
                self.assertEqual(done.returncode, PASSED, done.stdout + done.stderr)
                self.sees_all(images_of(folder)[0], slots)
                self.assertEqual(self.end(process)[0], 0)

    def test_faults(self):
        code, out, folder, _ = self.wrap(self.path("local_exec"), self.path("payload"), options=["--faults"])
        self.assertEqual(code, PASSED, out)
        self.assertEqual(outcomes_of(folder)["pctx.publish.memfd-retry"], "pass")

    def test_adapters_get_the_verdicts_of_glibc_but_where_freed_memory_counts(self):
        adapter = os.path.join(TESTEES, "adapter_c.c")
        self.compile("-shared", "-Wl,--whole-archive", WRITER, "-Wl,--no-whole-archive", "-o", self.path("libwriter.so"))
        self.compile(adapter, WRITER, *EXPORT, "-o", self.path("adapter"))
        self.compile(adapter, self.path("libwriter.so"), f"-Wl,-rpath,{self.dir}", "-o", self.path("adapter_shared"))
        self.compile("-static", adapter, WRITER, *EXPORT, "-o", self.path("adapter_static"))
        outcomes = {}
        races = ids_of_races()
        self.assertTrue(races)
        for name in ("adapter_c", "adapter", "adapter_shared", "adapter_static"):
            command = os.path.join(BIN, name) if name == "adapter_c" else self.path(name)
            folder = tempfile.mkdtemp(dir=self.dir)
            done = subprocess.run([CTXCONF, "run", "--seed", "7", "--out", folder, "--", command],
                                  capture_output=True, text=True, timeout=DEADLINE_S, check=False)
            self.assertEqual(done.returncode, PASSED, done.stdout + done.stderr)
            outcomes[name] = {i: outcome for i, outcome in outcomes_of(folder).items() if i not in races}
        # musl does not overwrite memory that is freed.
        self.assertEqual(outcomes["adapter_c"]["tctx.attach.record-outlives-slot"], "pass")
        expected = dict(outcomes["adapter_c"], **{"tctx.attach.record-outlives-slot": "unobservable"})
        self.assertEqual(outcomes["adapter"], expected)
        self.assertEqual(outcomes["adapter_shared"], expected)
        of_process = {i: outcome for i, outcome in outcomes["adapter_static"].items() if i.startswith("pctx.")}
        self.assertEqual(of_process, {i: o for i, o in outcomes["adapter_c"].items() if i.startswith("pctx.")})

    @classmethod
    def loader(cls):
        said = printed_by("readelf", "--wide", "--program-headers", cls.path("opens"))
        return re.search(r"interpreter: (/.*?)\]", said)[1]

    def test_reports_name_the_library_of_the_program(self):
        version = re.search(r"^Version (\S+)$", printed_by(self.loader()), re.MULTILINE)[1]
        code, out, folder, _ = self.wrap(self.path("local_exec"), self.path("payload"))
        self.assertEqual(code, PASSED, out)
        self.assertRegex(out, rf"; program: musl {re.escape(version)}; ctxconf: glibc \d+\.\d+; ")
        with open(os.path.join(folder, "result.json"), encoding="utf-8") as file:
            result = json.load(file)
        self.assertEqual([i["libc"] for i in result["images"]], ["musl " + version])
        self.assertEqual(result["host"]["libc"], "musl " + version)
        self.assertRegex(result["suite"]["libc"], r"^glibc \d+\.\d+$")


BROKEN = {"misaligned": "tctx.record.aligned", "ids": "tctx.record.ids-both-or-neither", "key": "tctx.attrs.key-in-map"}

if __name__ == "__main__":
    if shutil.which("musl-gcc") is None:
        print("skipped: no musl-gcc; install musl-tools")
        sys.exit(77)
    unittest.main(verbosity=1)
