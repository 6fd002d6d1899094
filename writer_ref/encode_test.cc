#include "writer_ref/encode.h"

#include <gtest/gtest.h>

#include <string>

#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"

namespace ctxconf::writer {
namespace {

using opentelemetry::proto::common::v1::AnyValue;
using opentelemetry::proto::processcontext::v1development::ProcessContext;

AnyValue value_of(const char* argument, const char* key) {
  const auto attribute = parse_attribute(argument);
  EXPECT_TRUE(attribute) << attribute.error();
  const auto bytes = encode({.resource = {}, .attributes = {*attribute}});
  EXPECT_TRUE(bytes);
  ProcessContext message;
  EXPECT_TRUE(message.ParseFromString(*bytes));
  EXPECT_EQ(message.attributes_size(), 1);
  EXPECT_EQ(message.attributes(0).key(), key);
  return message.attributes(0).value();
}

TEST(ParseAttribute, TakesEachType) {
  EXPECT_EQ(value_of("a=b=c", "a").string_value(), "b=c");
  EXPECT_EQ(value_of("a=", "a").string_value(), "");
  EXPECT_EQ(value_of("a:b:string=c", "a:b").string_value(), "c");
  EXPECT_EQ(value_of("schl\xc3\xbcssel=\xf0\x9f\x94\x91", "schl\xc3\xbcssel").string_value(),
            "\xf0\x9f\x94\x91");
  EXPECT_EQ(value_of("n:int=-9223372036854775808", "n").int_value(), INT64_MIN);
  EXPECT_EQ(value_of("d:double=1e-3", "d").double_value(), 1e-3);
  EXPECT_TRUE(value_of("b:bool=true", "b").bool_value());
  EXPECT_EQ(value_of("b:bool=false", "b").value_case(), AnyValue::kBoolValue);
  EXPECT_EQ(value_of("x:bytes=00fF", "x").bytes_value(), std::string("\0\xff", 2));
  const auto list = value_of("map:strings=one,,two", "map").array_value();
  ASSERT_EQ(list.values_size(), 3);
  EXPECT_EQ(list.values(0).string_value(), "one");
  EXPECT_EQ(list.values(1).string_value(), "");
  EXPECT_EQ(list.values(2).string_value(), "two");
  EXPECT_EQ(value_of("map:strings=", "map").array_value().values_size(), 0);
}

TEST(ParseAttribute, SaysWhatIsWrong) {
  const struct {
    const char* argument;
    const char* why;
  } cases[] = {
      {"", "expected KEY=VALUE"},
      {"key", "expected KEY=VALUE"},
      {"=v", "key is empty"},
      {":int=5", "key is empty"},
      {"a:float=5", "one of string"},
      {"a:int=", "64-bit"},
      {"a:int=5x", "64-bit"},
      {"a:int=9223372036854775808", "64-bit"},
      {"a:double=x", "not a number"},
      {"a:bool=yes", "true or false"},
      {"a:bytes=abc", "hexadecimal"},
      {"a:bytes=zz", "hexadecimal"},
      {"a:bytes=-1", "hexadecimal"},
      {"a=\xff", "UTF-8"},
      {"\xc0\x80=v", "key is not valid"},
      {"a=\xed\xa0\x80", "UTF-8"},
      {"a=\xf4\x90\x80\x80", "UTF-8"},
      {"a=\xe2\x82", "UTF-8"},
      {"a=\x80", "UTF-8"},
      {"a=\xc3(", "UTF-8"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.argument);
    const auto attribute = parse_attribute(bad.argument);
    ASSERT_FALSE(attribute);
    EXPECT_NE(attribute.error().find(bad.why), std::string::npos) << attribute.error();
  }
}

TEST(Encode, KeepsKeysUniqueInEachList) {
  const Attribute a{"k", "v"};
  EXPECT_TRUE(encode({.resource = {a}, .attributes = {a}}));
  ASSERT_FALSE(encode({.resource = {a, a}, .attributes = {}}));
  const auto twice = encode({.resource = {}, .attributes = {a, a}});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error(), "attribute 'k' is given twice");
}

TEST(Encode, IsNeverEmpty) { EXPECT_EQ(encode({})->size(), 2U); }

}  // namespace
}  // namespace ctxconf::writer
