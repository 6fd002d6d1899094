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


class SizesTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def sizes(self):
        return subprocess.run([SOURCE / "scripts" / "sizes", self.root], capture_output=True, text=True, check=True,
                              timeout=60).stdout

    def test_functions_have_the_lines_between_their_braces(self):
        self.write("sys/a.cc", CODE.replace("FILL", "  1;\n" * 99))
        self.assertEqual(self.sizes().splitlines()[1:], [
            "files of more than 1,000 lines: 0", "functions of more than 100 lines: 3",
            "  103 with_defaults, sys/a.cc", "  101 operator==, sys/a.cc", "  101 B, sys/a.cc"])

    def test_sources_count_and_tests_do_not(self):
        self.write("abi/a.h", "\n" * 1001)
        self.write("conformance/b/testee.c", "\n" * 1000)
        for name in ("abi/a_test.cc", "reader_ref/test_target.c", "sys/a.py", "fuzz/a.cc"):
            self.write(name, "\n" * 5000)
        self.assertEqual(self.sizes().splitlines(), [
            "2,001 lines in 2 files", "files of more than 1,000 lines: 1", "  1,001 abi/a.h",
            "functions of more than 100 lines: 0"])


if __name__ == "__main__":
    unittest.main()
