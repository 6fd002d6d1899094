#include "conformance/evidence/trace_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ctxconf::conformance {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::string kTrace = "0af7651916cd43dd8448eb211c80319c";
const std::string kSpan = "b7ad6b7169203331";

TEST(TraceIds, ATraceparent) {
  EXPECT_EQ(traceparent_from("00-" + kTrace + "-" + kSpan + "-01"), (Traceparent{kTrace, kSpan}));
  const std::vector<std::string> wrong_ones = {std::string(),
                                               kTrace,
                                               "00-" + kTrace + "-" + kSpan,
                                               "00-" + kTrace + "-" + kSpan + "-0x",
                                               "01-" + kTrace + "-" + kSpan + "-01",
                                               "00-" + kTrace + "_" + kSpan + "-01",
                                               "00-" + kTrace + "-" + kSpan + "-01-",
                                               "00-" + kTrace + "-" + std::string(16, '0') + "-01",
                                               "00-" + std::string(32, '0') + "-" + kSpan + "-01"};
  for (const std::string& wrong : wrong_ones) {
    EXPECT_EQ(traceparent_from(wrong), std::nullopt) << wrong;
  }
}

TEST(TraceIds, Ids) {
  EXPECT_EQ(trace_id_from("0AF7651916CD43DD8448EB211C80319C"), kTrace);
  EXPECT_EQ(span_id_from(kSpan), kSpan);
  EXPECT_EQ(trace_id_from(kSpan), std::nullopt);
  EXPECT_EQ(span_id_from(kTrace), std::nullopt);
  EXPECT_EQ(span_id_from("b7ad6b716920333g"), std::nullopt);
  EXPECT_EQ(span_id_from(std::string(16, '0')), std::nullopt);
}

TEST(TraceIds, InText) {
  IdScanner scanner;
  scanner.take("ready trace_id=" + kTrace + ", pid=7\n");
  EXPECT_THAT(scanner.trace_ids(), ElementsAre(kTrace));
  EXPECT_THAT(scanner.span_ids(), IsEmpty());
}

TEST(TraceIds, InPieces) {
  const std::string text = "{\"traceparent\":\"00-" + kTrace + "-" + kSpan + "-00\"}";
  IdScanner scanner;
  for (const char c : text) scanner.take(std::string(1, c));
  EXPECT_THAT(scanner.trace_ids(), ElementsAre(kTrace));
  EXPECT_THAT(scanner.span_ids(), ElementsAre(kSpan));
}

TEST(TraceIds, AtTheEnd) {
  IdScanner scanner;
  scanner.take(kTrace);
  EXPECT_THAT(scanner.trace_ids(), IsEmpty());
  scanner.end();
  EXPECT_THAT(scanner.trace_ids(), ElementsAre(kTrace));
}

TEST(TraceIds, PartsOfOtherWordsAreNone) {
  IdScanner scanner;
  scanner.take(kTrace + kTrace + "\n" + kTrace + "0 x" + kTrace + " " + kTrace + "-1 " + kSpan +
               " 0af76519-16cd-43dd-8448-eb211c80319c\n");
  scanner.take(std::string(100'000, 'a') + kTrace + "\n");
  scanner.end();
  EXPECT_THAT(scanner.trace_ids(), IsEmpty());
  EXPECT_THAT(scanner.span_ids(), IsEmpty());
}

TEST(TraceIds, SoManyAreKept) {
  IdScanner scanner;
  for (std::size_t i = 1; i <= kMaxPrintedIds + 10; ++i) {
    const auto number = std::to_string(i);
    scanner.take(std::string(kTraceIdDigits - number.size(), '0') + number + "\n");
  }
  EXPECT_EQ(scanner.trace_ids().size(), kMaxPrintedIds);
}

}  // namespace
}  // namespace ctxconf::conformance
