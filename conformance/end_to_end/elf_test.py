#!/usr/bin/env python3
"""Runs `ctxconf elf` as its users do: its advice works, its reports are valid, and every malformed file
only makes it complain.

usage: elf_test.py SOURCE_DIR BIN_DIR C_COMPILER
"""

import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import unittest

try:
    import jsonschema
except ImportError:
    jsonschema = None

SOURCE, BIN = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) > 3 else ("", "")
COMPILER = sys.argv[3] if len(sys.argv) > 3 else ""
del sys.argv[1:4]

CTXCONF = os.path.join(BIN, "ctxconf")
CLEAN, FAILED, USAGE = range(3)
DEADLINE_S = 60
EXPORT = "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"
KEEP = "-Wl,-u,otel_thread_ctx_v1"

SDK = """
__attribute__((visibility("default"))) __thread void *otel_thread_ctx_v1;
void sdk_attach(void *record) { otel_thread_ctx_v1 = record; }
"""
APPLICATION = """
void sdk_attach(void *record);
int main(void) { sdk_attach(0); return 0; }
"""
FORGETFUL = "int main(void) { return 0; }\n"
PLUGIN = "int plugin(void) { return 0; }\n"


class Done:
    def __init__(self, args, done):
        self.args, self.code, self.out, self.err = args, done.returncode, done.stdout, done.stderr

    def __str__(self):
        return f"{self.args}\nexit {self.code}\n{self.out[-4000:]}\n{self.err[-4000:]}"

    def unfolded(self):
        return re.sub(r"\n {7,}(?=\S)", " ", self.out + self.err)


class ElfTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = holder.name

    def path(self, name):
        return os.path.join(self.dir, name)

    def elf(self, *args, limit=None):
        done = subprocess.run(
            [CTXCONF, "elf", "--color", "never", *args], stdin=subprocess.DEVNULL, cwd=self.dir,
            capture_output=True, text=True, errors="surrogateescape", timeout=DEADLINE_S,
            preexec_fn=limit, check=False)
        out = Done(args, done)
        self.assertIn(out.code, (CLEAN, FAILED, USAGE), str(out))
        self.assertNotRegex(out.out + out.err, r"[\x00-\x09\x0b-\x1f\x7f]", "not escaped")
        return out

    def check(self, done, code, *texts):
        self.assertEqual(done.code, code, str(done))
        for text in texts:
            self.assertIn(text, done.unfolded(), str(done))

    def write(self, name, content):
        mode = "wb" if isinstance(content, bytes) else "w"
        with open(self.path(name), mode) as file:
            file.write(content)
        return self.path(name)

    def compile(self, output, *args):
        subprocess.run([COMPILER, "-O1", "-o", self.path(output), *args], check=True, cwd=self.dir,
                       timeout=DEADLINE_S)
        return self.path(output)

    def sdk_library(self):
        self.compile("sdk.o", "-c", "-fPIC", self.write("sdk.c", SDK))
        subprocess.run(["ar", "rc", "libsdk.a", "sdk.o"], check=True, cwd=self.dir,
                       timeout=DEADLINE_S)
        return self.path("libsdk.a")


class Advice(ElfTest):
    """Builds a broken program, then builds it again with the options that ctxconf names."""

    def options_in(self, done):
        found = re.search(r"(?:link|compile) with ((?:-\S+\s?)+)", done.unfolded())
        self.assertTrue(found, str(done))
        return found[1].split()

    def follow(self, output, inputs, fixed=(), dropped=(), code=FAILED, wants=()):
        before = self.elf(self.compile(output, *fixed, *dropped, *inputs))
        self.check(before, code)
        options = self.options_in(before)
        self.assertEqual(options, list(wants), str(before))
        after = self.elf(self.compile(output, *fixed, *inputs, *options))
        self.check(after, CLEAN, "a profiler will find otel_thread_ctx_v1")
        self.assertNotIn("\nINFO", after.out)
        return after

    def test_a_program_exports_what_it_has(self):
        inputs = [self.write("app.c", APPLICATION), self.write("sdk.c", SDK)]
        self.follow("app", inputs, wants=[EXPORT])
        subprocess.run([self.path("app")], check=True, timeout=DEADLINE_S)

    def test_a_static_program_becomes_position_independent(self):
        inputs = ["-fPIE", self.write("app.c", APPLICATION), self.write("sdk.c", SDK)]
        self.follow("app", inputs, dropped=["-static"], wants=["-static-pie", EXPORT])
        subprocess.run([self.path("app")], check=True, timeout=DEADLINE_S)

    def test_a_static_pie_exports_too(self):
        inputs = ["-fPIE", self.write("app.c", APPLICATION), self.write("sdk.c", SDK)]
        self.follow("app", inputs, fixed=["-static-pie"], wants=[EXPORT])

    def test_a_program_keeps_the_member_of_a_static_library(self):
        inputs = [self.write("app.c", FORGETFUL), self.sdk_library()]
        self.follow("app", inputs, wants=[KEEP, EXPORT])

    def test_a_library_keeps_the_member_of_a_static_library(self):
        inputs = [self.write("plugin.c", PLUGIN), self.sdk_library()]
        before = self.elf(self.compile("plugin.so", "-shared", "-fPIC", *inputs))
        self.check(before, FAILED, "does not define otel_thread_ctx_v1")
        self.assertEqual(self.options_in(before), [KEEP])
        after = self.elf(self.compile("plugin.so", "-shared", "-fPIC", KEEP, *inputs))
        self.check(after, CLEAN, "a profiler will find otel_thread_ctx_v1: General Dynamic")

    def test_a_library_takes_to_descriptors(self):
        inputs = ["-shared", "-fPIC", self.write("sdk.c", SDK)]
        after = self.follow("sdk.so", inputs, code=CLEAN, wants=["-mtls-dialect=gnu2"])
        self.check(after, CLEAN, "a profiler will find otel_thread_ctx_v1: TLSDESC")


class Reports(ElfTest):
    GOOD, HIDDEN = (os.path.join(BIN, f) for f in ("slot_tlsdesc.so", "slot_hidden.so"))
    USER, ONLY = (os.path.join(BIN, f) for f in ("slot_user", "slot_only.so"))

    # The variable is at the start of its module; any relocations are fine.
    def hidden(self):
        source = SDK.replace('"default"', '"hidden"')
        return self.compile("hidden.so", "-shared", "-fPIC", self.write("hidden.c", source))

    def test_exit_codes(self):
        self.check(self.elf(self.GOOD), CLEAN, "9 selected")
        self.check(self.elf(self.HIDDEN), FAILED, "FAIL  tctx.tls.dynsym-exported")
        self.check(self.elf("/bin/true"), FAILED, "no reader will find it there")
        self.check(self.elf("/bin/true", self.GOOD), CLEAN)
        self.check(self.elf(self.GOOD, self.hidden()), FAILED)
        self.check(self.elf(self.GOOD, "nothing"), USAGE, "nothing: No such file",
                   "1 of 2 files could not be read", "a profiler will find")
        for wrong in ((), ("--only", "pctx.*", self.GOOD), ("--only", "x", self.GOOD), ("--no",)):
            self.check(self.elf(*wrong), USAGE)

    def test_the_number_of_files_has_a_limit(self):
        self.check(self.elf(*[self.GOOD] * 300), CLEAN, "none failed")
        done = self.elf(*[self.GOOD] * 2049)
        self.check(done, USAGE, "2049 files; at most 2048 are judged together")
        self.assertEqual(done.out, "")

    def test_a_selection_leaves_the_verdict_alone(self):
        done = self.elf("--only", "*.is-pointer", self.HIDDEN)
        self.check(done, FAILED, "1 selected", "a profiler will not find otel_thread_ctx_v1")

    def test_files_named_together_are_one_program(self):
        self.check(self.elf(self.USER), FAILED, "name the module that does")
        self.check(self.elf(self.ONLY), CLEAN, "another module may hold the relocation")
        self.check(self.elf(self.USER, self.ONLY), CLEAN, "9 of 9 requirements judged",
                   "another of these files defines", "slot_user: TPOFF64")

    def test_local_dynamic_comes_with_its_code(self):
        done = self.elf(os.path.join(BIN, "slot_local_dynamic.so"))
        self.check(done, FAILED, "next word 0x0", "lea rdi, [rip + 0x", "call 0x")

    def test_json_is_the_same_result(self):
        with open(os.path.join(SOURCE, "conformance/report/result.schema.json"),
                  encoding="utf-8") as file:
            schema = json.load(file)
        hidden = self.hidden()
        done = self.elf("--json", "--out", self.path("out"), self.GOOD, hidden)
        self.assertEqual(done.code, FAILED)
        with open(self.path("out/result.json"), encoding="utf-8") as file:
            self.assertEqual(done.out, file.read())
        result = json.loads(done.out)
        if jsonschema:
            jsonschema.validate(result, schema)
        self.assertEqual([image["executable"] for image in result["images"]],
                         [self.GOOD, hidden])
        self.assertEqual(result["run"]["mode"], "elf")
        shown = subprocess.run([CTXCONF, "report", self.path("out/result.json")], text=True,
                               capture_output=True, timeout=DEADLINE_S, check=False)
        self.assertIn("a profiler will find otel_thread_ctx_v1: TLSDESC", shown.stdout)
        self.assertTrue(os.path.getsize(self.path("out/junit.xml")))
        with open(self.path("out/results.sarif"), encoding="utf-8") as file:
            broken = json.load(file)["runs"][0]["results"]
        self.assertEqual({r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in broken},
                         {os.path.basename(hidden)})


def little_memory():
    with open(CTXCONF, "rb") as file:
        if b"__asan_init" not in file.read():  # ASan reserves terabytes
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (40, 40))


class Hostile(ElfTest):
    def setUp(self):
        super().setUp()
        with open(os.path.join(BIN, "slot_local_dynamic.so"), "rb") as file:
            self.sound = file.read()

    def test_what_is_no_file_to_read(self):
        os.mkfifo(self.path("fifo"))
        self.write("empty", b"")
        self.write("text", "#!/bin/sh\n")
        self.write("archive", b"!<arch>\n")
        for name in ("fifo", "empty", "text", "archive", "/dev/zero", ".", "a/b"):
            done = self.elf(name, limit=little_memory)
            self.check(done, USAGE, f"elf: {name}: ")
            self.assertEqual(done.out, "")

    def test_an_object_file_and_another_machine(self):
        self.compile("sdk.o", "-c", "-fPIC", self.write("sdk.c", SDK))
        self.check(self.elf("sdk.o"), USAGE, "sdk.o: an object file")
        other = bytearray(self.sound)
        other[18:20] = (243).to_bytes(2, "little")  # RISC-V
        self.write("other.so", bytes(other))
        self.check(self.elf("other.so"), CLEAN, "machine 243")

    def test_sizes_that_cannot_be(self):
        def changed(**fields):
            places = {"e_phoff": (32, 8), "e_shoff": (40, 8), "e_phnum": (56, 2),
                      "e_phentsize": (54, 2), "e_ident": (4, 2)}
            out = bytearray(self.sound)
            for name, value in fields.items():
                at, size = places[name]
                out[at:at + size] = value.to_bytes(size, "little")
            return bytes(out)

        cases = [changed(e_phoff=1 << 63), changed(e_phoff=len(self.sound) - 8),
                 changed(e_phnum=0xffff), changed(e_phentsize=1), changed(e_ident=0x0201),
                 changed(e_ident=0x0101), changed(e_shoff=0xffffffffffffff00)]
        for i, content in enumerate(cases):
            self.write(f"case{i}.so", content)
            done = self.elf(f"case{i}.so", limit=little_memory)
            # Extended numbering, and a 32-bit file: read this way, they lack the variable.
            self.assertEqual(done.code, FAILED if i in (2, 5) else USAGE, f"{i}\n{done}")
        with open(self.write("huge.so", self.sound), "r+b") as file:
            file.truncate(1 << 40)
        self.check(self.elf("huge.so", limit=little_memory), FAILED, "tctx.tls.not-local-dynamic")

    def test_any_bytes(self):
        chance = random.Random(4947)
        names = []
        for i in range(300):
            content = bytearray(self.sound)
            if i % 3 == 0:
                del content[chance.randrange(len(content)):]
            else:
                # Headers and dynamic tables are at the start; .dynamic and GOT come later.
                end = 0x800 if i % 3 == 1 else len(content)
                for _ in range(chance.choice((1, 4, 64))):
                    content[chance.randrange(4, end)] = chance.choice((0, 1, 0x7f, 0x80, 0xff))
            names.append(os.path.basename(self.write(f"{i}.so", bytes(content))))
        self.check(self.elf(*names, limit=little_memory), USAGE, " of 300 files could not be read")

    def test_names_cannot_command_the_terminal(self):
        name = "\x1b]0;owned\x07\u202e\n.so"
        self.write(name, self.sound)
        self.write(name + "x", "text")
        for done in (self.elf(name), self.elf(name + "x"), self.elf("-v", name)):
            self.assertIn("owned", done.out + done.err)
            self.assertNotIn("\u202e", done.out + done.err)


if __name__ == "__main__":
    if not COMPILER:
        sys.exit(__doc__)
    unittest.main()
