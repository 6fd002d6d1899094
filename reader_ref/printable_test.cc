#include "reader_ref/printable.h"

#include <gtest/gtest.h>

namespace ctxconf::reader {
namespace {

TEST(Printable, LeavesTextAlone) {
  EXPECT_EQ(printable("caf\u00e9 \u6f22 \U0001f600 \"x\""), "caf\u00e9 \u6f22 \U0001f600 \"x\"");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, MakesControlsInert) {
  EXPECT_EQ(printable("\x1b[2J\r\n\t\x7f"), "\\x1b[2J\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\u009b31m"), "\\xc2\\x9b31m");
  EXPECT_EQ(printable("\u202e\u2028\ufeff"), "\\xe2\\x80\\xae\\xe2\\x80\\xa8\\xef\\xbb\\xbf");
  EXPECT_EQ(printable("C:\\x41"), "C:\\\\x41");
}

TEST(Printable, ShowsBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("a\xff\xfe"), "a\\xff\\xfe");
  EXPECT_EQ(printable("\xe6\xbc"), "\\xe6\\xbc");                    // cut
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");           // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
}

TEST(Printable, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 4), "abcd… (2 bytes more)");
  EXPECT_EQ(printable("abc\u00e9", 4), "abc… (2 bytes more)");
  EXPECT_EQ(printable("abcdef", 5), "abcde… (1 byte more)");
}

TEST(Printable, CountsCharacters) { EXPECT_EQ(width("caf\u00e9"), 4U); }

}  // namespace
}  // namespace ctxconf::reader
