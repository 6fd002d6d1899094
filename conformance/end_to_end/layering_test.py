#!/usr/bin/env python3
"""Runs scripts/check_layering.py on a small tree of its own, and adds one violation at a time.

usage: layering_test.py SOURCE_DIR
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pathlib.Path()
del sys.argv[1:2]
SCRIPT = SOURCE / "scripts" / "check_layering.py"
CMAKE = """ctxconf_library(ctxconf_writer SRCS writer_ref/otel_ctx.cc)
ctxconf_library(ctxconf_judge SRCS conformance/judge/judge.cc DEPS ctxconf_rules)
ctxconf_program(ctxconf SRCS conformance/command/main.cc DEPS ctxconf_judge)
ctxconf_library(ctxconf_adapter SRCS conformance/testees/adapter.cc DEPS ctxconf_writer)
"""
RULES = "ctxconf_library(ctxconf_rules SRCS conformance/rules/rule.cc{deps})\n"
# The files of the tree. All that they do is allowed.
FILES = {
    "abi/header.h": "",
    "abi/header.cc": '#include "abi/header.h"\n',
    "proto/opentelemetry/proto/resource/v1/resource.proto": "",
    "sys/arch/native.h": "",
    "sys/arch/here.cc": "#if defined(__x86_64__)\n",
    "sys/elf_image.cc": '#include <elfutils/libdw.h>\n#include <gelf.h>\n#include "sys/arch/native.h"\n',
    "sys/map_table.h": "",
    "sys/map_table.cc": '#include "sys/map_table.h"\n',
    "sys/trace_target.cc": "#if defined(__x86_64__)\n",
    "sys/tracer.h": "",
    "writer_ref/encode.cc": '#include "opentelemetry/proto/resource/v1/resource.pb.h"\n',
    "writer_ref/otel_ctx.cc": "#if defined(__x86_64__)\n",
    "writer_ref/otel_ctx.h": "",
    "writer_ref/otel_thread_ctx.h": '#include "otel_ctx.h"\n',
    "writer_ref/writer_test.cc": '#include "golden/vector.h"\n',
    "reader_ref/reader.cc": '#include <sys/mman.h>\n#  include "sys/tracer.h"\n#include "abi/header.h"\n',
    "golden/vector.h": "",
    "fuzz/record_fuzzer.cc": '#include "conformance/verdict/finding.h"\n',
    "conformance/command/main.cc": '#include "conformance/version.h"\n',
    "conformance/evidence/timeline.cc": '#include "conformance/text/json.h"\n',
    "conformance/evidence/timeline_test.cc": '#include "conformance/verdict/finding.h"\n#ifdef __aarch64__\n',
    "conformance/judge/judge.cc": "",
    "conformance/puppet/puppet.c": "#ifdef __aarch64__\n",
    "conformance/testees/adapter.cc":
        '#include "writer_ref/otel_ctx.h"\n#include "conformance/testees/process/list.h"\n',
    "conformance/testees/loop.h": "",
    "conformance/testees/process/header.cc": '#include "conformance/testees/writer/header.h"\n',
    "conformance/testees/process/list.h": "",
    "conformance/testees/reader/variable.cc": "#ifdef __aarch64__\n",
    "conformance/testees/writer/header.h": "",
    "conformance/text/json.h": "",
    "conformance/verdict/finding.h": "",
    "CMakeLists.txt": CMAKE + RULES.format(deps=""),
}
SOURCES = sum(name.endswith((".h", ".cc", ".c")) for name in FILES)
EVIDENCE = "conformance/evidence/timeline.cc"
TESTEE = "conformance/testees/process/header.cc"
NOT_FROM_ROOT = "write the path of {} from the root, without . and .."
ASKS = "only sys/arch may ask for the processor"
NO_FILE = "{} is not a file of this repository"
# File, include, complaint. {} in a complaint is the path in the include.
INCLUDES = (
    ("abi/header.cc", '"sys/tracer.h"', "abi may not include {}"),
    ("abi/header.cc", "<sys/tracer.h>", "abi may not include {}"),
    ("golden/vector.h", '"reader_ref/reader.cc"', "golden may not include {}"),
    ("reader_ref/reader.cc", '"golden/vector.h"', "reader_ref may not include {}"),
    ("writer_ref/otel_ctx.cc", '"opentelemetry/proto/resource/v1/resource.pb.h"', "writer_ref may not include {}"),
    (EVIDENCE, '"writer_ref/otel_ctx.h"', "conformance may not include {}"),
    (EVIDENCE, '"otel_ctx.h"', "conformance may not include writer_ref/otel_ctx.h"),
    ("sys/map_table.cc", '"sys/tracer.h"', "the pure part may not include {}"),
    (EVIDENCE, '"conformance/verdict/finding.h"', "conformance/evidence may not include {}"),
    (EVIDENCE, '"conformance/testees/process/list.h"', "conformance/evidence may not include {}"),
    ("conformance/cellar/a.h", '"conformance/text/json.h"', "conformance/cellar is not a room"),
    (EVIDENCE, '"sys/arch/native.h"', "only sys may include {}"),
    (EVIDENCE, "<elfutils/libdw.h>", "only sys may include {}"),
    (EVIDENCE, "<gelf.h>", "only sys may include {}"),
    ("reader_ref/reader.cc", "<libelf.h>", "only sys may include {}"),
    ("fuzz/record_fuzzer.cc", "<boost/a.hpp>", "only sys may include {}"),
    (TESTEE, '"conformance/text/json.h"', "a testee may not include {}"),
    (TESTEE, "<conformance/text/json.h>", "a testee may not include {}"),
    (TESTEE, '"abi/header.h"', "a testee may not include {}"),
    ("conformance/testees/reader/variable.cc", '"conformance/testees/process/list.h"', "a testee may not include {}"),
    ("conformance/testees/writer/header.h", '"conformance/testees/process/list.h"', "a testee may not include {}"),
    ("conformance/testees/writer/header.h", '"conformance/testees/loop.h"', "a testee may not include {}"),
    (EVIDENCE, '"../verdict/finding.h"', NOT_FROM_ROOT),
    (EVIDENCE, "<../verdict/finding.h>", NOT_FROM_ROOT),
    (EVIDENCE, '"conformance/text/../verdict/finding.h"', NOT_FROM_ROOT),
    (EVIDENCE, '"./conformance/verdict/finding.h"', NOT_FROM_ROOT),
    (EVIDENCE, '"conformance//verdict/finding.h"', NOT_FROM_ROOT),
    (EVIDENCE, '"/conformance/verdict/finding.h"', NOT_FROM_ROOT),
    (TESTEE, '"../../verdict/finding.h"', NOT_FROM_ROOT),
    (TESTEE, '"conformance/testees/../verdict/finding.h"', NOT_FROM_ROOT),
    ("conformance/verdict/finding.h", '"outcome.h"', NO_FILE),
    (EVIDENCE, '"conformance/evidence/nothing.h"', NO_FILE),
    (EVIDENCE, '"opentelemetry/proto/nothing.pb.h"', NO_FILE),
    (EVIDENCE, '"CMakeLists.txt"', NO_FILE),
    (TESTEE, '"list.h"', NO_FILE),
    (EVIDENCE, "HEADER", "an include must name its file"),
)


class LayeringTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def expect(self, *complaints, files=SOURCES, script=SCRIPT):
        done = subprocess.run([sys.executable, script, self.root], capture_output=True, text=True, timeout=60)
        last = f"{files} files, {len(complaints)} problems"
        self.assertEqual(done.stdout.splitlines(), [*complaints, last], done.stderr)
        self.assertEqual(done.returncode, 1 if complaints else 0)

    def expect_of_line(self, name, line, complaint):
        """Adds the line to the end of the file, and takes it back."""
        text = FILES.get(name, "")
        self.write(name, f"{text}{line}\n")
        with self.subTest(file=name, line=line):
            self.expect(f"{name}:{text.count(chr(10)) + 1}: {complaint}", files=SOURCES + (name not in FILES))
        if name in FILES:
            self.write(name, text)
        else:
            (self.root / name).unlink()

    def test_a_tree_that_keeps_the_rules_has_no_complaint(self):
        self.expect()

    def test_includes(self):
        for name, include, complaint in INCLUDES:
            self.expect_of_line(name, f"#include {include}", complaint.format(include[1:-1]))

    def test_other_spellings_of_an_include(self):
        for start in ("#include ", "  #  include", "#import ", "#include_next "):
            self.expect_of_line(EVIDENCE, f'{start}"conformance/verdict/finding.h"',
                                "conformance/evidence may not include conformance/verdict/finding.h")

    def test_the_processor_is_asked_for_in_sys_arch_alone(self):
        for name in ("abi/header.h", "sys/tracer.h", "sys/elf_image.cc", "writer_ref/encode.cc",
                     "writer_ref/otel_ctx.h", "reader_ref/reader.cc", "golden/vector.h", "fuzz/record_fuzzer.cc",
                     EVIDENCE):
            self.expect_of_line(name, "#if defined(__x86_64__)", ASKS)
        for word in ("__aarch64__", "__i386", "__riscv", "user_regs_struct", "u_debugreg", "AUDIT_ARCH_ARM"):
            self.expect_of_line(EVIDENCE, f"int a = {word};", ASKS)

    def test_the_judge_does_not_link_the_reference_writer(self):
        for dep in ("ctxconf_writer", "ctxconf_writer_objects", "ctxconf_writer_encode", "otel_ctx"):
            with self.subTest(dep=dep):
                self.write("CMakeLists.txt", CMAKE)
                self.write("cmake/rules.cmake", RULES.format(deps=f" DEPS {dep}"))
                self.expect(*(f"CMakeLists.txt: {target} may not link {dep}"
                              for target in ("ctxconf_judge", "ctxconf", "ctxconf_rules")))

    def test_targets_that_are_not_found_are_a_complaint(self):
        self.write("CMakeLists.txt", RULES.format(deps=""))
        self.expect("CMakeLists.txt: no target ctxconf found")

    def test_a_room_includes_none_below_it_in_the_list(self):
        text = SCRIPT.read_text(encoding="utf-8")
        row = '"evidence": {"requirements", "text"}'
        self.assertIn(row, text)
        self.write("check.py", text.replace(row, '"evidence": {"requirements", "text", "verdict"}'))
        self.expect("the rooms evidence and verdict are in the wrong order", script=self.root / "check.py")

    def test_a_folder_without_sources_does_not_pass(self):
        for name in FILES:
            (self.root / name).unlink()
        self.write("CMakeLists.txt", CMAKE)
        done = subprocess.run([sys.executable, SCRIPT, self.root], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (1, "0 files, 0 problems\n"))


if __name__ == "__main__":
    unittest.main()
