#include "conformance/reader/message_content.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/reader/publish.h"

namespace ctxconf::conformance::reader {
namespace {

using Json = nlohmann::json;

Json content(const Record& record, const std::vector<std::string>& names, bool attributes = true) {
  return Json::parse(content_of_record(record.encoded(), names, attributes));
}

TEST(Base64, PadsTheLastGroup) {
  EXPECT_EQ(base64({}), "");
  EXPECT_EQ(base64(puppet::bytes_of("f")), "Zg==");
  EXPECT_EQ(base64(puppet::bytes_of("fo")), "Zm8=");
  EXPECT_EQ(base64(puppet::bytes_of("foo")), "Zm9v");
  EXPECT_EQ(base64(from_hex("ff00fe01")), "/wD+AQ==");
}

TEST(ContentOfMessage, IsThatOfTheBuilder) {
  Message message = service("shop");
  message.attributes = {{"build.id", "1"}, {"empty", ""}};
  message.schema = "tlsdesc_v1_dev";
  message.key_map = {"http.route"};
  EXPECT_EQ(Json::parse(content_of_message(message.encoded())), Json::parse(message.content()));
  EXPECT_EQ(Json::parse(content_of_message({})),
            (Json{{"resource", Json::object()}, {"attributes", Json::object()}}));
}

TEST(SchemaOfMessage, IsAStringInField2) {
  Message message = service("shop");
  EXPECT_EQ(schema_of_message(message.encoded()), "");
  message.attributes = {{"build.id", "1"}};
  message.schema = "tls_v1";
  EXPECT_EQ(schema_of_message(message.encoded()), "tls_v1");
  message.schema_number = 1;
  EXPECT_EQ(schema_of_message(message.encoded()), "");
  message = service("shop");
  message.resource.emplace_back("threadlocal.schema_version", "tls_v1");
  EXPECT_EQ(schema_of_message(message.encoded()), "");
}

TEST(ContentOfRecord, TheLastEntryOfANameCounts) {
  Record record;
  record.entries = {{0, "a"}, {1, "b"}, {0, "c"}, {7, "no name"}};
  const Json out = content(record, {"one", "two"});
  EXPECT_EQ(out["trace_id"], record.trace_id);
  EXPECT_EQ(out["span_id"], record.span_id);
  EXPECT_EQ(out["names"], (Json{{"one", "c"}, {"two", "b"}}));
  EXPECT_FALSE(content(record, {"one", "two"}, false).contains("names"));
}

TEST(ContentOfRecord, AnEmptyValueMayBeLeftOut) {
  Record record;
  record.entries = {{0, "a"}, {1, ""}};
  const Json out = content(record, {"one", "two"});
  EXPECT_FALSE(out.contains("names"));
  EXPECT_EQ(out["names_has"], (Json{{"one", "a"}}));
}

TEST(ContentOfRecord, WhatIsBeyondTheSizeDoesNotCount) {
  Record record;
  record.entries = {{0, "a"}, {1, "b"}};
  record.size = 3;
  EXPECT_EQ(content(record, {"one", "two"})["names"], (Json{{"one", "a"}}));
  record.size = 5;  // the second entry does not fit
  EXPECT_EQ(content(record, {"one", "two"})["names"], (Json{{"one", "a"}}));
  record.size = 60'000;  // more than there is
  EXPECT_EQ(content(record, {"one", "two"})["names"], (Json{{"one", "a"}, {"two", "b"}}));
}

TEST(HasIds, OneByteIsEnough) {
  Record record;
  record.trace_id = std::string(32, '0');
  record.span_id = std::string(16, '0');
  EXPECT_FALSE(has_ids(record.encoded()));
  record.span_id.back() = '1';
  EXPECT_TRUE(has_ids(record.encoded()));
}

}  // namespace
}  // namespace ctxconf::conformance::reader
