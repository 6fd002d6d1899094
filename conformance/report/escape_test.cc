#include "conformance/report/escape.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ctxconf::conformance {
namespace {

using std::string_literals::operator""s;

TEST(Escape, LeavesOrdinaryTextAlone) {
  const std::string text = "service.name=Käse 日本 \\o/ <b> & 'q' 😀";
  EXPECT_EQ(escape(text, Escape::kTerminal), text);
}

TEST(Escape, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(escape("\x1b[2J\a\r\n\t\x7f", Escape::kTerminal), "\\x1b[2J\\x07\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(escape("a\0b"s, Escape::kTerminal), "a\\x00b");
  EXPECT_EQ(escape("\xc2\x9b"
                   "31m",
                   Escape::kTerminal),
            "\\xc2\\x9b31m");
}

TEST(Escape, QuotesWhatALabelOfPrometheusWouldObey) {
  EXPECT_EQ(escape("a\"b\\c\nd", Escape::kLabel), R"(a\"b\\c\\x0ad)");
  EXPECT_EQ(escape("\xff\u202e", Escape::kLabel), R"(\\xff\\xe2\\x80\\xae)");
  EXPECT_EQ(escape("Käse <b> & 'q' 😀", Escape::kLabel), "Käse <b> & 'q' 😀");
  EXPECT_EQ(escape("\\", Escape::kLabel, 1), R"(\\)");
  EXPECT_EQ(escape("\"\"", Escape::kLabel, 1), R"(\"… (1 byte more))");
}

TEST(Escape, ShowsCharactersThatReorderOrHide) {
  EXPECT_EQ(escape("a\u202eb", Escape::kTerminal), "a\\xe2\\x80\\xaeb");
  EXPECT_EQ(escape("\u2066", Escape::kTerminal), "\\xe2\\x81\\xa6");
  EXPECT_EQ(escape("\u200b\ufeff", Escape::kTerminal), "\\xe2\\x80\\x8b\\xef\\xbb\\xbf");
  EXPECT_EQ(escape("\u2028", Escape::kTerminal), "\\xe2\\x80\\xa8");
  EXPECT_EQ(escape("\U000e0041", Escape::kTerminal), "\\xf3\\xa0\\x81\\x81");
  EXPECT_EQ(escape("\uffff", Escape::kXmlText), "\\xef\\xbf\\xbf");
  EXPECT_EQ(escape("\U0010fffe", Escape::kXmlText), "\\xf4\\x8f\\xbf\\xbe");
}

TEST(Escape, ShowsEveryKindOfInvalidUtf8) {
  EXPECT_EQ(escape("\xff", Escape::kTerminal), "\\xff");
  EXPECT_EQ(escape("\x80", Escape::kTerminal), "\\x80");
  EXPECT_EQ(escape("\xc0\xaf", Escape::kTerminal), "\\xc0\\xaf");
  EXPECT_EQ(escape("\xe0\x80\xaf", Escape::kTerminal), "\\xe0\\x80\\xaf");
  EXPECT_EQ(escape("\xed\xa0\x80", Escape::kTerminal), "\\xed\\xa0\\x80");
  EXPECT_EQ(escape("\xf4\x90\x80\x80", Escape::kTerminal), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(escape("\xe2\x82", Escape::kTerminal), "\\xe2\\x82");
  EXPECT_EQ(escape("\xe2"
                   "A",
                   Escape::kTerminal),
            "\\xe2A");
}

TEST(Escape, XmlQuotesMarkupAndTheEndOfCdata) {
  EXPECT_EQ(escape("<a b='1'>&\"]]>", Escape::kXmlText),
            "&lt;a b=&#39;1&#39;&gt;&amp;&quot;]]&gt;");
  EXPECT_EQ(escape("1\n\t2\r\x01", Escape::kXmlText), "1\n\t2\\x0d\\x01");
  EXPECT_EQ(escape("1\n\t2", Escape::kXmlAttribute), "1\\x0a\\x092");
}

TEST(Escape, SaysHowMuchWasLeftOut) {
  EXPECT_EQ(escape("abcdef", Escape::kTerminal, 6), "abcdef");
  EXPECT_EQ(escape("abcdef", Escape::kTerminal, 4), "abcd… (2 bytes more)");
  EXPECT_EQ(escape("abc", Escape::kTerminal, 0), "… (3 bytes more)");
  const std::string large(1 << 20, '\x1b');
  EXPECT_LT(escape(large, Escape::kXmlText).size(), 4 * kTextLimit + 64);
}

TEST(Escape, DoesNotCutACharacter) {
  EXPECT_EQ(escape("ab€x", Escape::kTerminal, 4), "ab… (4 bytes more)");
  EXPECT_EQ(escape("ab€x", Escape::kTerminal, 5), "ab€… (1 byte more)");
  EXPECT_EQ(escape("ab😀", Escape::kTerminal, 5), "ab… (4 bytes more)");
  EXPECT_EQ(escape("\x80\x80\x80\x80\x80", Escape::kTerminal, 4),
            "\\x80\\x80\\x80\\x80… (1 byte more)");
}

TEST(JsonText, GivesEveryStringBack) {
  const std::vector<std::string> texts = {
      "plain",   "\xff\xfe", "\\xff",      "\\\xff",         "\\x\xff",   "\\x5\xff",
      "\\\\xff", "a\0b"s,    "\\x5c",      "\\x5cx5c",       "\\",        "\\x",
      "\\x5",    "\\xFF",    "é\xc3\\xc3", "\xed\xa0\x80é€", "\x1b[0m\n", "\\\\\\x00"};
  for (const std::string& text : texts) {
    SCOPED_TRACE(testing::PrintToString(text));
    const std::string json = json_text(text);
    EXPECT_EQ(json.find('\xff'), std::string::npos);
    EXPECT_EQ(bytes_of_json_text(json), text);
  }
}

TEST(JsonText, MarksWhatIsNoUtf8) {
  EXPECT_EQ(json_text("é\xff"), "é\\xff");
  EXPECT_EQ(json_text("\\xff"), "\\x5cxff");
  EXPECT_EQ(json_text("C:\\xyz"), "C:\\xyz");
  EXPECT_EQ(json_text("abcdef", 3), "abc… (3 bytes more)");
}

TEST(ShellWord, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(shell_word("--only=pctx.a-b"), "--only=pctx.a-b");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("pctx.*"), "'pctx.*'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("\x1b'\\\n"), "$'\\033\\'\\\\\\012'");
  EXPECT_EQ(shell_word("~"), "'~'");
  EXPECT_EQ(shell_command(std::vector<std::string>{"a", "b c", "$d"}), "a 'b c' '$d'");
}

TEST(DisplayWidth, CountsCharacters) {
  EXPECT_EQ(display_width("a€😀"), 3U);
  EXPECT_EQ(display_width("\xff\xff"), 2U);
}

}  // namespace
}  // namespace ctxconf::conformance
