#!/usr/bin/env python3
"""Runs scripts/sizes on sources of its own.

usage: sizes_test.py SOURCE_DIR
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pathlib.Path()
del sys.argv[1:2]
# What must not count, or not confuse: each brace here that opens no function, or stands alone.
CODE = """#define OPEN {
namespace a {
/* { */ constexpr char kBrace = '{', kRaw[] = R"x(}")x";  // }
constexpr auto kTable = to_array<int>({
FILL});
const std::vector<int> kMade = [] {
FILL  return f(1'000'000, "{");
}();
template <class T>
struct alignas(8) B {
  B() : x_(1) {
FILL  }
  bool operator==(const B& other) const {
FILL  }
};
int with_defaults(int first, std::vector<int> more = {},
                  int last = 2) {
  const auto lambda = [](int n) {
FILL  };
}
void short_one() { use({1, 2}); }
}  // namespace a
"""
# The files that the table names.
NAMED = ("conformance/command/main.cc", "conformance/judge/judge.cc", "conformance/observe/recording.cc",
         "conformance/observe/recording_loop.cc", "conformance/report/result_json.cc",
         "conformance/report/result_members.h", "conformance/testees/process/header.cc")
PAGE = """Text.

| lines | before | now |
|---|---|---|
| all of these files | 84,000 in 365 files | 1 in 1 files |
| longest file | 2,627 (`process_writer.cc`) | 1 (`a`) |
| files of more than 1,000 lines | 10 | 0 |
| longest function | 662 (`table`) | 1 (`a`) |
| functions of more than 100 lines | 11 | 0 |
| recording | 1,480 | 1, 1 |
| command line | 490 | 1, 1 |
| `judge()` | 127 | 1 |
| JSON of `result.json` | 807 | 1, 1 |
| broken and legal programs for `wrap` | 2,627 | 1 |

More.
"""


class SizesTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def sizes(self, *options, code=0):
        done = subprocess.run([SOURCE / "scripts" / "sizes", *options, self.root], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def test_functions_have_the_lines_between_their_braces(self):
        self.write("sys/a.cc", CODE.replace("FILL", "  1;\n" * 99))
        self.assertEqual(self.sizes().splitlines()[4:], [
            "functions of more than 100 lines: 3", "the longest functions:",
            "  103 with_defaults, sys/a.cc", "  101 operator==, sys/a.cc", "  101 B, sys/a.cc", "  1 short_one, sys/a.cc"])

    def test_sources_count_and_tests_do_not(self):
        self.write("abi/a.h", "\n" * 1001)
        self.write("conformance/b/testee.c", "\n" * 1000)
        for name in ("abi/a_test.cc", "reader_ref/test_target.c", "sys/a.py", "fuzz/a.cc"):
            self.write(name, "\n" * 5000)
        self.assertEqual(self.sizes().splitlines(), [
            "2,001 lines in 2 files", "files of more than 1,000 lines: 1", "the longest files:", "  1,001 abi/a.h",
            "  1,000 conformance/b/testee.c", "functions of more than 100 lines: 0", "the longest functions:"])

    def test_at_most_ten_are_named(self):
        for i in range(12):
            self.write(f"abi/{i}.cc", f"void f{i}() {{\n" + "\n" * i + "}\n")
        lines = self.sizes().splitlines()
        self.assertEqual(len(lines), 5 + 2 * 10)
        self.assertEqual((lines[3], lines[-1]), ("  13 abi/11.cc", "  4 f2, abi/2.cc"))

    def test_the_table_is_written_and_checked(self):
        for name in NAMED:
            self.write(name, "int judge() {\n}\n" + "\n" * 98)
        self.write("docs/architecture.md", PAGE)
        self.assertIn("longest file: 1 (`a`); now: 100 (`conformance/", self.sizes("--check", code=1))
        self.sizes("--fix")
        page = (self.root / "docs/architecture.md").read_text(encoding="utf-8")
        self.assertIn("\n| `judge()` | 127 | 2 |\n", page)
        self.assertTrue(page.startswith("Text.\n\n| lines ") and page.endswith(" |\n\nMore.\n"), page)
        self.assertIn("\n| command line | 490 | 100 in `main.cc`, the longest function 2 |\n", page)
        self.assertEqual(self.sizes("--check").splitlines()[-1], "10 rows, 0 problems")
        self.write(NAMED[0], "int judge() {\n}\n" + "\n" * 107)
        self.sizes("--check")
        self.write(NAMED[0], "int judge() {\n}\n" + "\n" * 120)
        self.assertIn("command line: 100 in", self.sizes("--check", code=1))
        self.write(NAMED[0], "int judge() {\n}\n" + "\n" * 98)
        self.sizes("--check")
        self.write("sys/a.cc", "void f() {\n" + "\n" * 100 + "}\n")
        self.sizes("--fix")
        self.sizes("--check")
        self.write("sys/b.cc", "void f() {\n" + "\n" * 100 + "}\n")
        self.assertIn("functions of more than 100 lines: 1; now: 2.", self.sizes("--check", code=1))

    def test_a_row_more_or_less_is_a_complaint(self):
        for name in NAMED:
            self.write(name, "int judge() {\n}\n")
        self.write("docs/architecture.md", PAGE.replace("| recording |", "| drawing |"))
        self.sizes("--fix", code=1)
        self.assertEqual(self.sizes("--check", code=1).splitlines(), [
            "docs/architecture.md: the row 'drawing' is unknown", "docs/architecture.md: the row 'recording' is missing",
            "10 rows, 2 problems"])


if __name__ == "__main__":
    unittest.main()
