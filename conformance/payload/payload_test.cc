#include "conformance/payload/payload.h"

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/payload/payload_walk.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"

namespace ctxconf::conformance {
namespace {

using abi::PayloadFormat;
using opentelemetry::proto::common::v1::AnyValue;
using opentelemetry::proto::common::v1::KeyValue;
using opentelemetry::proto::processcontext::v1development::ProcessContext;
using opentelemetry::proto::resource::v1::Resource;

// --- an encoder that can also encode wrongly

std::string varint(std::uint64_t v, int at_least = 1) {
  std::string out;
  for (int i = 1; v >= 0x80 || i < at_least; ++i, v >>= 7U) {
    out += static_cast<char>((v & 0x7fU) | 0x80U);
  }
  return out + static_cast<char>(v);
}

std::string tag(unsigned number, unsigned wire_type) { return varint(number << 3U | wire_type); }
std::string len(unsigned number, std::string_view value) {
  return tag(number, 2) + varint(value.size()) + std::string(value);
}
std::string str(std::string_view s) { return len(1, s); }
std::string integer(std::uint64_t v) { return tag(3, 0) + varint(v); }
std::string pair(std::string_view key, std::string_view value) {
  return len(1, key) + len(2, value);
}
std::string kvlist(std::initializer_list<std::string> pairs) {
  std::string out;
  for (const auto& p : pairs) out += len(1, p);
  return len(6, out);
}
std::string array(std::initializer_list<std::string> values) {
  std::string out;
  for (const auto& v : values) out += len(1, v);
  return len(5, out);
}
// An attribute of a Resource.
std::string attribute(std::string_view key, std::string_view value) {
  return len(1, pair(key, value));
}

Payload analyse(std::string_view bytes) {
  return analyse_payload(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

const std::string kResource =
    attribute("service.name", str("cart")) + attribute("service.version", str("1.0"));
const std::string kContext =
    len(1, kResource) + len(2, pair("threadlocal.schema_version", str("tlsdesc_v1_dev")));

PayloadProblem problem_of(std::string_view bytes) { return analyse(bytes).problem; }

std::vector<std::string> as_text(const std::vector<Attribute>& attributes) {
  std::vector<std::string> out;
  out.reserve(attributes.size());
  for (const auto& a : attributes) out.push_back(a.key + "=" + a.value);
  return out;
}

using Texts = std::vector<std::string>;

TEST(Payload, ListsReferenceDataOfThreadsWithKindsAndPlaces) {
  const std::string map = array({str("http_route"), integer(1), str("")});
  const std::string resource = len(1, pair("threadlocal.max_record_size", integer(640)));
  const std::string bytes =
      len(1, resource) + len(2, pair("threadlocal.schema_version", str("v"))) +
      len(2, pair("other", str("x"))) + len(2, pair("threadlocal.attribute_key_map", map));
  const Payload p = analyse_payload(std::as_bytes(std::span(bytes)));
  ASSERT_EQ(p.problem, PayloadProblem::kNone) << p.detail;
  ASSERT_EQ(p.threadlocal.size(), 3U);
  EXPECT_EQ(p.threadlocal[0].key, "threadlocal.max_record_size");
  EXPECT_TRUE(p.threadlocal[0].in_resource);
  EXPECT_EQ(p.threadlocal[0].kind, ValueKind::kInt);
  EXPECT_EQ(p.threadlocal[1].text, "v");
  EXPECT_FALSE(p.threadlocal[1].in_resource);
  EXPECT_EQ(p.threadlocal[1].kind, ValueKind::kString);
  const ThreadlocalEntry& keys = p.threadlocal[2];
  EXPECT_EQ(keys.kind, ValueKind::kArray);
  ASSERT_EQ(keys.element_count, 3U);
  EXPECT_EQ(keys.elements[0].text, "http_route");
  EXPECT_EQ(keys.elements[1].kind, ValueKind::kInt);
  EXPECT_EQ(keys.elements[2].kind, ValueKind::kString);
  EXPECT_EQ(bytes[keys.offset], '\x12');  // field 2, length-delimited
}

TEST(Payload, OfAProcessContextIsListedWithOffsets) {
  const Payload p = analyse(kContext);
  EXPECT_EQ(p.problem, PayloadProblem::kNone) << p.detail;
  EXPECT_EQ(p.format, PayloadFormat::kP4);
  EXPECT_EQ(as_text(p.resource), (Texts{"service.name=cart", "service.version=1.0"}));
  EXPECT_EQ(as_text(p.attributes), (Texts{"threadlocal.schema_version=tlsdesc_v1_dev"}));
  ASSERT_EQ(p.top_level.size(), 2U);
  EXPECT_EQ(p.top_level[0].offset, 0U);
  EXPECT_EQ(p.top_level[0].value_offset, 2U);
  EXPECT_EQ(p.top_level[0].value_size, kResource.size());
  EXPECT_EQ(p.top_level[1].offset, 2 + kResource.size());
  EXPECT_EQ(p.top_level[1].number, 2U);
  EXPECT_EQ(p.top_level[1].wire_type, 2U);
  EXPECT_EQ(p.resource[0].offset, 2U);
  EXPECT_EQ(p.resource[1].offset, 2 + attribute("service.name", str("cart")).size());
  EXPECT_EQ(p.attributes[0].offset, 2 + kResource.size());
  EXPECT_TRUE(p.unknown.empty());
  EXPECT_TRUE(p.incomplete.empty());
}

TEST(Payload, MayBeEncodedInEveryLegalWay) {
  const std::string one = attribute("a", str("1"));
  const std::string two = attribute("b", str("2"));
  const std::string extra = len(2, pair("x", str("y")));
  struct Case {
    const char* name;
    std::string bytes;
    Texts resource;
    Texts attributes;
  };
  const std::vector<Case> cases = {
      {"nothing", "", {}, {}},
      {"empty Resource", len(1, ""), {}, {}},
      {"no field 1", extra, {}, {"x=y"}},
      {"no field 2", len(1, one), {"a=1"}, {}},
      {"2 before 1", extra + len(1, one), {"a=1"}, {"x=y"}},
      {"field 1 in parts", len(1, one) + extra + len(1, two), {"a=1", "b=2"}, {"x=y"}},
      {"value before key", len(1, len(1, len(2, str("1")) + len(1, "a"))), {"a=1"}, {}},
      {"last key wins", len(1, len(1, len(1, "z") + pair("a", str("1")))), {"a=1"}, {}},
      {"last value wins", len(1, len(1, pair("a", integer(4) + str("1")))), {"a=1"}, {}},
      {"value in parts",
       len(1, len(1, pair("a", array({str("1")})) + len(2, array({str("2")})))),
       {"a=[\"1\",\"2\"]"},
       {}},
      {"other member in between",
       len(1,
           len(1, pair("a", array({str("1")})) + len(2, integer(1)) + len(2, array({str("2")})))),
       {"a=[\"2\"]"},
       {}},
      {"no key", len(1, len(1, len(2, str("1")))), {"=1"}, {}},
      {"no value", len(1, len(1, len(1, "a"))), {"a="}, {}},
      {"empty value", len(1, attribute("a", "")), {"a="}, {}},
      {"longer varints",
       varint(1U << 3U | 2U, 5) + varint(one.size(), 5) + one + varint(2U << 3U | 2U, 3) +
           varint(pair("x", tag(3, 0) + varint(5, 10)).size(), 2) +
           pair("x", tag(3, 0) + varint(5, 10)),
       {"a=1"},
       {"x=5"}},
      {"dropped count and entities",
       len(1, one + tag(2, 0) + varint(7) + len(3, len(1, "u") + len(2, "t") + len(3, "a"))),
       {"a=1"},
       {}},
      {"unknown fields further down",
       len(1, one + len(9, "x") + tag(10, 5) + "1234") +
           len(2, pair("x", str("y") + tag(12, 1) + "12345678") + tag(4, 3) + tag(4, 4)),
       {"a=1"},
       {"x=y"}},
  };
  for (const auto& c : cases) {
    const Payload p = analyse(c.bytes);
    EXPECT_EQ(p.problem, PayloadProblem::kNone) << c.name << ": " << p.detail;
    EXPECT_EQ(as_text(p.resource), c.resource) << c.name;
    EXPECT_EQ(as_text(p.attributes), c.attributes) << c.name;
    EXPECT_TRUE(p.unknown.empty()) << c.name;
  }
}

TEST(Payload, MayHaveFieldsWithOtherNumbers) {
  const std::string group = tag(8, 3) + len(1, "abc") + tag(2, 3) + tag(2, 4) + tag(8, 4);
  const std::string bytes = tag(3, 0) + varint(300) + len(1, kResource) + tag(4, 1) + "12345678" +
                            len(5, "xyz") + tag(6, 5) + "1234" + group + tag(100000, 0) + "\x01";
  const Payload p = analyse(bytes);
  EXPECT_EQ(p.problem, PayloadProblem::kNone) << p.detail;
  EXPECT_EQ(p.resource.size(), 2U);
  EXPECT_EQ(p.top_level.size(), 7U);
  ASSERT_EQ(p.unknown.size(), 6U);
  const std::vector<std::pair<unsigned, unsigned>> want = {{3, 0}, {4, 1}, {5, 2},
                                                           {6, 5}, {8, 3}, {100000, 0}};
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(p.unknown[i].number, want[i].first);
    EXPECT_EQ(p.unknown[i].wire_type, want[i].second);
  }
  EXPECT_EQ(problem_of(tag(3, 0) + varint(300)), PayloadProblem::kNone) << "no other field";
}

TEST(Payload, ShowsEveryKindOfValueAsText) {
  ProcessContext c;
  const auto add = [&](const char* key) {
    auto* kv = c.mutable_resource()->add_attributes();
    kv->set_key(key);
    return kv->mutable_value();
  };
  add("s")->set_string_value("a \"b\"\n");
  add("t")->set_bool_value(true);
  add("f")->set_bool_value(false);
  add("i")->set_int_value(std::numeric_limits<std::int64_t>::min());
  add("d")->set_double_value(0.1);
  add("big")->set_double_value(1e300);
  add("nan")->set_double_value(std::numeric_limits<double>::quiet_NaN());
  add("inf")->set_double_value(-std::numeric_limits<double>::infinity());
  add("b")->set_bytes_value(std::string("\x00\xff\x10", 3));
  add("ea")->mutable_array_value();
  add("ek")->mutable_kvlist_value();
  auto* list = add("l")->mutable_array_value();
  list->add_values()->set_string_value("q\"\\\n\x01");
  list->add_values()->set_int_value(5);
  list->add_values();
  list->add_values()->set_bytes_value("\xab");
  list->add_values()->set_double_value(std::numeric_limits<double>::infinity());
  auto* kv = list->add_values()->mutable_kvlist_value()->add_values();
  kv->set_key("k");
  kv->mutable_value()->set_bool_value(true);
  const Payload p = analyse(c.SerializeAsString());
  EXPECT_EQ(as_text(p.resource),
            (Texts{"s=a \"b\"\n", "t=true", "f=false", "i=-9223372036854775808", "d=0.1",
                   "big=1e+300", "nan=NaN", "inf=-Infinity", "b=00ff10", "ea=[]", "ek={}",
                   "l=[\"q\\\"\\\\\\u000a\\u0001\",5,null,\"ab\",\"Infinity\",{\"k\":true}]"}));
}

// --- one mistake, one problem

TEST(Payload, WithATrailingZeroHasTheWrongSize) {
  for (const auto& good : {kContext, len(1, kResource), len(1, ""), std::string()}) {
    const Payload p = analyse(good + std::string(1, '\0'));
    EXPECT_EQ(p.problem, PayloadProblem::kNotWalkable) << p.detail;
    EXPECT_EQ(p.problem_offset, good.size());
    EXPECT_TRUE(p.resource.empty());
    EXPECT_NE(p.detail.find("number 0"), std::string::npos) << p.detail;
  }
}

TEST(Payload, WithAnyOtherByteTooManyHasTheWrongSize) {
  for (int b = 0; b < 256; ++b) {
    EXPECT_EQ(problem_of(kContext + static_cast<char>(b)), PayloadProblem::kNotWalkable) << b;
  }
}

TEST(Payload, CutAnywhereHasTheWrongSize) {
  const std::size_t border = len(1, kResource).size();
  for (std::size_t n = 1; n < kContext.size(); ++n) {
    const Payload p = analyse(kContext.substr(0, n));
    if (n == border) {
      EXPECT_EQ(p.problem, PayloadProblem::kNone) << "all of field 1 and nothing else";
      continue;
    }
    EXPECT_EQ(p.problem, PayloadProblem::kNotWalkable) << n << " " << p.detail;
    EXPECT_EQ(p.problem_offset, n < border ? 0 : border) << n;
    EXPECT_EQ(p.top_level.size(), n < border ? 0U : 1U) << n;
  }
}

TEST(Payload, OfAnOlderFormatIsNamed) {
  const std::string p3 = kResource;
  EXPECT_EQ(analyse(p3).problem, PayloadProblem::kOlderFormat);
  EXPECT_EQ(analyse(p3).format, PayloadFormat::kP3);
  EXPECT_EQ(analyse(p3).detail, "P3: bare Resource, December 2025 to mid February 2026");

  const std::vector<std::pair<std::string, PayloadFormat>> cases = {
      {attribute("a", integer(5)), PayloadFormat::kP3},
      {attribute("a", len(5, "")) + tag(2, 0) + varint(3), PayloadFormat::kP3},
      {attribute("gr\xc3\xbc\xc3\x9f", str("x")), PayloadFormat::kP3},
      {p3 + std::string(1, '\0'), PayloadFormat::kP3},
      {p3.substr(0, p3.size() - 1), PayloadFormat::kP3},
      {p3.substr(0, 9), PayloadFormat::kP3},
      {len(2, "cart") + len(3, "1.0") + len(8, "x"), PayloadFormat::kP2},
      {len(1, len(1, "a") + len(2, "text")) + len(2, "cart"), PayloadFormat::kP2},
      {len(3, "cart"), PayloadFormat::kP2},
      {len(2, "cart") + len(3, "1.0").substr(0, 4), PayloadFormat::kP2},
      {"\x81\xacservice.name\xa4"
       "cart",
       PayloadFormat::kP1},
      {std::string("\xde\x00\x01\xd9\x03key\xa1v", 10), PayloadFormat::kP1},
      {std::string("\x02\x00\x04\x00\x00\x00"
                   "cart\x01\x00\x00\x00x",
                   15),
       PayloadFormat::kP0},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Payload p = analyse(cases[i].first);
    EXPECT_EQ(p.problem, PayloadProblem::kOlderFormat) << i << " " << p.detail;
    EXPECT_EQ(abi::to_string(p.format), abi::to_string(cases[i].second)) << i;
  }
}

TEST(Payload, WithPartsInOtherFieldsIsMisplaced) {
  const std::string extra = pair("threadlocal.schema_version", str("tls_v1"));
  const std::vector<std::string> cases = {
      len(2, kResource) + len(1, extra),                      // swapped
      len(1, extra) + len(2, kResource),                      // the other way round
      len(2, kResource),                                      // swapped, without a field 1
      len(2, len(1, pair("a", str(std::string(200, 'x'))))),  // the same; the key is not UTF-8
      len(3, kResource) + len(4, extra),                      // both elsewhere
      len(1, "\x08\x01") + len(3, kResource),                 // 1 is something else
      len(3, kResource),
      len(7, extra),
      tag(1, 0) + varint(5) + len(2, extra),  // wire types of 1 and 2
      len(1, kResource) + tag(2, 5) + "1234",
      tag(1, 3) + tag(1, 4),
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Payload p = analyse(cases[i]);
    EXPECT_EQ(p.problem, PayloadProblem::kFieldsMisplaced) << i << " " << p.detail;
    EXPECT_FALSE(p.detail.empty()) << i;
    EXPECT_FALSE(p.top_level.empty()) << i;
  }
  EXPECT_EQ(analyse(cases[0]).detail, "field 2 at offset 0 holds a Resource");
  EXPECT_EQ(analyse(cases[8]).detail, "field 1 is varint, not length-delimited");
}

TEST(Payload, WithSomethingWrongInsideIsNotTyped) {
  struct Case {
    std::string bytes;
    std::uint64_t offset;
    std::string detail;  // how it begins
  };
  const std::string key = len(1, "a");
  const std::vector<Case> cases = {
      {len(1, len(1, tag(1, 0) + varint(5))), 4, "resource.attributes[0].key: varint where"},
      {len(1, tag(1, 0) + varint(5)), 2, "resource.attributes[0]: varint where"},
      {len(1, len(2, "x")), 2, "resource.dropped_attributes_count: length-delimited where"},
      {len(1, len(1, key + tag(2, 0) + varint(5))), 7, "resource.attributes[0].value: varint"},
      {len(2, key + len(2, tag(1, 0) + varint(5))), 7, "attributes[0].value: varint where"},
      {len(2, key + len(2, tag(2, 5) + "1234")), 7, "attributes[0].value: 32-bit where varint"},
      {len(2, key + len(2, len(3, "5"))), 7, "attributes[0].value: length-delimited where varint"},
      {len(2, key + len(2, tag(4, 5) + "1234")), 7, "attributes[0].value: 32-bit where 64-bit"},
      {len(2, key + len(2, tag(7, 0) + "\x01")), 7, "attributes[0].value: varint where length"},
      {len(2, key + len(2, len(5, tag(1, 0) + "\x01"))), 9, "attributes[0].value.array[0]: varint"},
      {len(2, key + len(2, len(6, tag(1, 0) + "\x01"))), 9,
       "attributes[0].value.kvlist[0]: varint"},
      {len(2, key + len(2, len(8, "x"))), 7, "attributes[0].value: length-delimited where varint"},
      {len(2, key + len(3, "x")), 5, "attributes[0].key_strindex: length-delimited where"},
      {len(1, len(3, tag(2, 0) + "\x01")), 4, "resource.entity_refs[0].type: varint where"},
      {len(1, std::string("\x0a\x05")) + kContext, 2, "resource: a length of 5 goes beyond"},
      {len(1, len(1, std::string("\x0a\x09"
                                 "abc"))),
       4, "resource.attributes[0]: a length of 9"},
      {len(1, kResource + std::string(1, '\0')), 2 + kResource.size(), "resource: a field with"},
      {len(1, kResource + "\x7c"), 2 + kResource.size(), "resource: field 15 has wire type 4"},
      {len(1, kResource + tag(15, 3)), 2 + kResource.size(), "resource: the message ends within"},
      {len(2, key + len(2, tag(3, 0) + std::string(10, '\x80') + "\x01")), 7,
       "attributes[0].value: a varint is too long"},
      {len(2, key + len(2, tag(3, 0) + std::string(9, '\xff') + "\x02")), 7,
       "attributes[0].value: a varint is too long"},
  };
  for (const auto& c : cases) {
    const Payload p = analyse(c.bytes);
    EXPECT_EQ(p.problem, PayloadProblem::kNotTyped) << c.detail << " got " << p.detail;
    EXPECT_EQ(p.problem_offset, c.offset) << c.detail;
    EXPECT_TRUE(p.detail.starts_with(c.detail)) << p.detail << " want " << c.detail;
    EXPECT_TRUE(p.resource.empty() && p.attributes.empty());
  }
  EXPECT_EQ(problem_of(len(1, kResource + std::string(1, '\0')) + std::string(1, '\0')),
            PayloadProblem::kNotTyped)
      << "the bytes before the end do not fit either";
}

TEST(Payload, ThatIsSomethingElseIsNotTyped) {
  for (const std::string& bytes :
       {std::string("just some text, nothing more"), std::string(64, '\0'), std::string(64, '\xff'),
        std::string("{\"service.name\":\"cart\"}"),
        std::string("\x7f"
                    "ELF\x02\x01\x01\x00\x00",
                    9),
        std::string("hello")}) {
    const Payload p = analyse(bytes);
    EXPECT_EQ(p.problem, PayloadProblem::kNotTyped) << bytes << " " << p.detail;
    EXPECT_EQ(p.format, PayloadFormat::kUnknown);
    EXPECT_FALSE(p.detail.empty());
  }
}

TEST(Payload, NestsAsDeepAsProtobufDecodes) {
  // Resource, pair and value are messages 1 to 3; an array adds two.
  const auto nested = [](int arrays, const std::string& inner) {
    std::string v = inner;
    for (int i = 0; i < arrays; ++i) v = array({v});
    return len(1, attribute("a", v));
  };
  const auto parses = [](const std::string& bytes) {
    return ProcessContext().ParseFromString(bytes);
  };
  EXPECT_EQ(problem_of(nested(48, integer(1))), PayloadProblem::kNone);  // 99
  EXPECT_TRUE(parses(nested(48, integer(1))));
  EXPECT_EQ(problem_of(nested(48, len(5, ""))), PayloadProblem::kNone);  // 100
  EXPECT_TRUE(parses(nested(48, len(5, ""))));
  EXPECT_FALSE(parses(nested(49, "")));
  for (const auto& deep : {nested(49, ""), nested(49, integer(1)), nested(5000, integer(1))}) {
    const Payload p = analyse(deep);
    EXPECT_EQ(p.problem, PayloadProblem::kNotTyped);
    EXPECT_NE(p.detail.find("deeper than 100"), std::string::npos) << p.detail;
  }
  const auto groups = [](int n) {
    std::string open;
    std::string close;
    for (int i = 0; i < n; ++i) open += tag(9, 3), close += tag(9, 4);
    return open + close;
  };
  EXPECT_EQ(problem_of(kContext + groups(100)), PayloadProblem::kNone);
  EXPECT_TRUE(parses(kContext + groups(100)));
  EXPECT_EQ(problem_of(kContext + groups(101)), PayloadProblem::kNotTyped);
  EXPECT_FALSE(parses(kContext + groups(101)));
  EXPECT_EQ(problem_of(len(1, kResource + groups(99))), PayloadProblem::kNone);
  EXPECT_EQ(problem_of(len(1, kResource + groups(100))), PayloadProblem::kNotTyped);
  EXPECT_FALSE(parses(len(1, kResource + groups(100))));
}

// --- findings in good payloads

TEST(Payload, ListsRepeatedKeysOfTheMergedResource) {
  const std::string first = attribute("service.name", str("a"));
  const std::string bytes = len(1, first + attribute("x", integer(1))) +
                            len(1, attribute("service.name", str("b"))) +
                            len(1, attribute("x", "") + attribute("x", array({str("q")})));
  const Payload p = analyse(bytes);
  EXPECT_EQ(p.problem, PayloadProblem::kNone);
  ASSERT_EQ(p.resource_key_repeats.size(), 2U);
  const auto& name = p.resource_key_repeats[0];
  EXPECT_EQ(name.key, "service.name");
  EXPECT_EQ(name.path, "resource.attributes[2]");
  EXPECT_EQ(name.what, "occurs twice: \"a\" at offset 2, \"b\" at offset 34");
  EXPECT_EQ(name.offset, 34U);
  EXPECT_EQ(p.resource_key_repeats[1].key, "x");
  EXPECT_TRUE(p.resource_key_repeats[1].what.starts_with("occurs 3 times: 1 at offset"))
      << p.resource_key_repeats[1].what;
  EXPECT_TRUE(p.attribute_key_repeats.empty());
  EXPECT_TRUE(p.keys_in_both.empty());
}

TEST(Payload, PutsRepeatedThreadlocalKeysFirst) {
  std::string bytes = len(1, kResource) + len(2, pair("a", str("1"))) + len(2, pair("a", str("2")));
  for (int i = 0; i < 6; ++i) bytes += len(2, pair("threadlocal.schema_version", str("v")));
  bytes += len(2, pair("service.name", str("other")));
  const Payload p = analyse(bytes);
  ASSERT_EQ(p.attribute_key_repeats.size(), 2U);
  EXPECT_EQ(p.attribute_key_repeats[0].key, "threadlocal.schema_version");
  EXPECT_TRUE(p.attribute_key_repeats[0].what.starts_with("occurs 6 times: "));
  EXPECT_TRUE(p.attribute_key_repeats[0].what.ends_with(", ..."));
  EXPECT_EQ(p.attribute_key_repeats[1].key, "a");
  EXPECT_EQ(p.attribute_key_repeats[1].path, "attributes[1]");
  EXPECT_EQ(p.keys_in_both, (Texts{"service.name"}));
  EXPECT_TRUE(p.resource_key_repeats.empty()) << "a key in both lists is not a repeat";
}

TEST(Payload, ListsRepeatedKeysInListsAtAnyDepth) {
  const std::string twice = kvlist({pair("a", str("1")), pair("b", str("1")), pair("a", str("2"))});
  const Payload p = analyse(len(1, attribute("x", array({integer(1), twice}))) +
                            len(2, pair("y", kvlist({pair("a", twice)}))));
  ASSERT_EQ(p.nested_key_repeats.size(), 2U);
  EXPECT_EQ(p.nested_key_repeats[0].path, "resource.attributes[0].value.array[1].kvlist[2]");
  EXPECT_EQ(p.nested_key_repeats[0].key, "a");
  EXPECT_TRUE(p.nested_key_repeats[0].what.starts_with("occurs twice: \"1\" at offset "));
  EXPECT_EQ(p.nested_key_repeats[1].path, "attributes[0].value.kvlist[0].value.kvlist[2]");
  EXPECT_TRUE(p.resource_key_repeats.empty());
  // A list that arrives in two parts is one list.
  const std::string part = kvlist({pair("a", str("1"))});
  EXPECT_EQ(analyse(len(2, pair("y", part + part))).nested_key_repeats.size(), 1U);
  EXPECT_TRUE(analyse(len(2, pair("y", part + integer(1) + part))).nested_key_repeats.empty());
}

TEST(Payload, ReportsBadStringsAndStaysSilent) {
  testing::internal::CaptureStderr();
  const std::string cut = std::string(100, 'x') + "\xe2\x82";
  const Payload p =
      analyse(len(1, attribute("good", str("\xe2\x82\xac")) + attribute("long", str(cut)) +
                         attribute("bad\xff", str("v")) + attribute("bad\xfe", str("w")) +
                         len(3, len(2, "\xc0\x80"))) +
              len(2, len(2, array({kvlist({pair("k", str("\xed\xa0\x80"))})})) + len(1, "late")) +
              len(2, pair("bytes", len(7, "\xff\xfe"))));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(p.problem, PayloadProblem::kNone) << p.detail;
  ASSERT_EQ(p.bad_utf8.size(), 5U);
  EXPECT_EQ(p.bad_utf8[0].path, "resource.attributes[1].value");
  EXPECT_EQ(p.bad_utf8[0].key, "long");
  EXPECT_EQ(p.bad_utf8[0].what, "not UTF-8 at byte 100 of 102: e2 82");
  EXPECT_EQ(p.bad_utf8[1].path, "resource.attributes[2].key");
  EXPECT_EQ(p.bad_utf8[1].key, "bad\\xff");
  EXPECT_EQ(p.bad_utf8[3].path, "resource.entity_refs[0].type");
  EXPECT_EQ(p.bad_utf8[3].what, "not UTF-8 at byte 0 of 2: c0");
  EXPECT_EQ(p.bad_utf8[4].path, "attributes[0].value.array[0].kvlist[0].value");
  EXPECT_EQ(p.bad_utf8[4].key, "k");
  EXPECT_EQ(p.bad_utf8[4].what, "not UTF-8 at byte 0 of 3: ed");
  EXPECT_TRUE(p.resource_key_repeats.empty()) << "two bad keys are not the same key";
  ASSERT_EQ(p.resource.size(), 4U);
  EXPECT_EQ(p.resource[0].value, "\xe2\x82\xac");
  EXPECT_EQ(p.resource[1].value, std::string(100, 'x') + "??");
  EXPECT_EQ(p.resource[2].key, "bad?");
  EXPECT_EQ(p.attributes[0].key, "late");
  EXPECT_EQ(p.attributes[1].value, "fffe");
}

TEST(Payload, SaysWhereTheBadByteIs) {
  const std::string bytes = len(2, pair("k", str("ab\x80")));
  const Payload p = analyse(bytes);
  ASSERT_EQ(p.bad_utf8.size(), 1U);
  EXPECT_EQ(p.bad_utf8[0].offset, bytes.find('\x80'));
}

TEST(Payload, FindsIndexesIntoADictionary) {
  const std::string by_index = tag(3, 0) + varint(7);
  const Payload p =
      analyse(len(1, len(1, by_index + len(2, str("v"))) + len(1, by_index + len(2, str("v")))) +
              len(2, pair("a", array({tag(8, 0) + varint(9)}))));
  EXPECT_EQ(p.problem, PayloadProblem::kNone);
  ASSERT_EQ(p.dictionary_uses.size(), 3U);
  EXPECT_EQ(p.dictionary_uses[0].path, "resource.attributes[0].key_strindex");
  EXPECT_EQ(p.dictionary_uses[0].what, "index 7");
  EXPECT_EQ(p.dictionary_uses[0].offset, 4U);
  EXPECT_EQ(p.dictionary_uses[2].path, "attributes[0].value.array[0].string_value_strindex");
  EXPECT_EQ(p.dictionary_uses[2].key, "a");
  EXPECT_TRUE(p.resource_key_repeats.empty()) << "keys that are not there do not repeat";
  EXPECT_EQ(p.attributes[0].value, "[{\"string_value_strindex\":9}]");
}

TEST(Payload, CutsWhatItQuotes) {
  const std::string key(1000, 'k');
  const std::string value(70000, 'v');
  const Payload p = analyse(len(1, attribute(key, str(value)) + attribute(key, str("\x1b[2J"))));
  ASSERT_EQ(p.resource_key_repeats.size(), 1U);
  EXPECT_LE(p.resource_key_repeats[0].key.size(), 70U);
  EXPECT_LE(p.resource_key_repeats[0].what.size(), 200U);
  EXPECT_NE(p.resource_key_repeats[0].what.find("(70000 bytes)"), std::string::npos);
  EXPECT_NE(p.resource_key_repeats[0].what.find("\\x1b[2J"), std::string::npos);
  EXPECT_EQ(p.resource[0].value, value) << "the value itself is whole";
}

TEST(Payload, BoundsItsLists) {
  std::string many;
  for (int i = 0; i < 3000; ++i) many += len(2, pair("\xff", str("v")));
  const Payload p = analyse(many);
  EXPECT_EQ(p.problem, PayloadProblem::kNone);
  EXPECT_EQ(p.attributes.size(), 3000U);
  EXPECT_EQ(p.bad_utf8.size(), kMaxPayloadListed);
  EXPECT_EQ(p.top_level.size(), kMaxPayloadListed);
  EXPECT_FALSE(p.incomplete.empty());

  std::string tiny;
  for (std::size_t i = 0; i <= kMaxPayloadItems; ++i) tiny += std::string("\x12\x00", 2);
  const Payload huge = analyse(tiny);
  EXPECT_EQ(huge.problem, PayloadProblem::kNone);
  EXPECT_TRUE(huge.attributes.empty());
  EXPECT_NE(huge.incomplete.find("not decoded"), std::string::npos);
}

TEST(Payload, IsDescribedInLines) {
  const std::string bytes = kContext + len(9, "?") + len(2, pair("esc\x1b", str("\xff")));
  const auto lines = describe(analyse(bytes));
  EXPECT_EQ(lines,
            (Texts{
                "a ProcessContext",
                "@0 field 1, length-delimited, 50 bytes",
                "@52 field 2, length-delimited, 46 bytes",
                "@100 field 9, length-delimited, 1 bytes, unknown",
                "@103 field 2, length-delimited, 11 bytes",
                "@2 resource service.name = \"cart\"",
                "@26 resource service.version = \"1.0\"",
                "@52 attribute threadlocal.schema_version = \"tlsdesc_v1_dev\"",
                "@103 attribute esc\\x1b = \"?\"",
                "@115 bad string: attributes[1].value (esc\\x1b): not UTF-8 at byte 0 of 1: ff",
            }));
  EXPECT_EQ(describe(analyse(kResource))[0],
            "not a ProcessContext, but an older format, P3: bare Resource, December 2025 to mid "
            "February 2026 (offset 4)");
  EXPECT_TRUE(
      describe(analyse(kContext + '\0'))[0].starts_with("a ProcessContext, but its size is wrong"));
}

// --- text

TEST(Utf8, IsCheckedStrictly) {
  for (const std::string_view good :
       {"", "abc", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_FALSE(first_bad_utf8(good)) << good;
  }
  struct Case {
    std::string_view text;
    std::size_t at, count;
  };
  for (const auto& [text, at, count] : std::initializer_list<Case>{{"a\x80", 1, 1},
                                                                   {"\xc0\x80", 0, 1},
                                                                   {"\xc1\xbf", 0, 1},
                                                                   {"\xe0\x9f\xbf", 0, 1},
                                                                   {"\xed\xa0\x80", 0, 1},
                                                                   {"\xf0\x8f\xbf\xbf", 0, 1},
                                                                   {"\xf4\x90\x80\x80", 0, 1},
                                                                   {"\xf5\x80\x80\x80", 0, 1},
                                                                   {"\xff", 0, 1},
                                                                   {"ab\xe2\x82", 2, 2},
                                                                   {"\xe2\x82"
                                                                    "a",
                                                                    0, 2},
                                                                   {"\xf0\x9f\x98", 0, 3},
                                                                   {"\xc3", 0, 1}}) {
    const auto bad = first_bad_utf8(text);
    ASSERT_TRUE(bad) << text;
    EXPECT_EQ(bad->at, at) << text;
    EXPECT_EQ(bad->count, count) << text;
  }
}

TEST(Printable, EscapesControlsAndBadBytesAndCutsBetweenCharacters) {
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(printable("a\nb\tc\x1b\x7f\xff"), "a\\nb\\tc\\x1b\\x7f\\xff");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b") << "a C1 control";
  EXPECT_EQ(printable("ab\xc3\xbc", 3), "ab...");
  EXPECT_EQ(quoted("a\"\\"), "\"a\\\"\\\\\"");
  EXPECT_EQ(quoted("abcdef", 3), "\"abc...\" (6 bytes)");
}

// --- against protobuf's own parser

// Known numbers among the unknown fields: protobuf skips what has another wire type.
bool has_mistyped_fields(const google::protobuf::Message& m) {
  const auto* reflection = m.GetReflection();
  const auto& unknown = reflection->GetUnknownFields(m);
  for (int i = 0; i < unknown.field_count(); ++i) {
    if (m.GetDescriptor()->FindFieldByNumber(unknown.field(i).number()) != nullptr) return true;
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(m, &fields);
  for (const auto* f : fields) {
    if (f->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!f->is_repeated()) {
      if (has_mistyped_fields(reflection->GetMessage(m, f))) return true;
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(m, f); ++i) {
      if (has_mistyped_fields(reflection->GetRepeatedMessage(m, f, i))) return true;
    }
  }
  return false;
}

std::size_t repeated_keys(const google::protobuf::RepeatedPtrField<KeyValue>& pairs) {
  std::map<std::string, int> counts;
  for (const auto& p : pairs) ++counts[p.key()];
  return static_cast<std::size_t>(
      std::ranges::count_if(counts, [](const auto& c) { return c.second > 1; }));
}

std::size_t repeats_within(const AnyValue& value) {
  std::size_t n = repeated_keys(value.kvlist_value().values());
  for (const auto& p : value.kvlist_value().values()) n += repeats_within(p.value());
  for (const auto& v : value.array_value().values()) n += repeats_within(v);
  return n;
}

void check_fault(const PayloadFault& f, std::size_t size) {
  ASSERT_FALSE(f.path.empty());
  ASSERT_FALSE(first_bad_utf8(f.what + f.path + f.key));
  ASSERT_TRUE(f.offset && *f.offset < size);
}

void check_against_protobuf(const std::string& bytes, const Payload& p) {
  ASSERT_LE(p.problem_offset, bytes.size());
  for (const auto* list : {&p.top_level, &p.unknown}) {
    for (const auto& f : *list) {
      ASSERT_NE(f.number, 0U);
      ASSERT_LT(f.offset, f.value_offset);
      ASSERT_LE(f.value_offset, bytes.size());
      ASSERT_LE(f.value_size, bytes.size() - f.value_offset);
    }
  }
  for (const auto* list : {&p.resource_key_repeats, &p.attribute_key_repeats, &p.nested_key_repeats,
                           &p.bad_utf8, &p.dictionary_uses}) {
    for (const auto& f : *list) check_fault(f, bytes.size());
  }
  for (const auto* list : {&p.resource, &p.attributes}) {
    for (const auto& a : *list) {
      ASSERT_LT(a.offset, bytes.size());
      ASSERT_FALSE(first_bad_utf8(a.key + a.value));
    }
  }
  for (const auto& line : describe(p)) ASSERT_TRUE(is_plain_text(line)) << line;
  ASSERT_EQ(p.detail.empty(), p.problem == PayloadProblem::kNone);

  ProcessContext context;
  const bool parses = context.ParseFromString(bytes);
  const bool good = parses && !has_mistyped_fields(context);
  if (p.problem == PayloadProblem::kNone) {
    ASSERT_EQ(p.format, PayloadFormat::kP4);
    if (!p.bad_utf8.empty()) {
      ASSERT_FALSE(parses);
      return;
    }
    ASSERT_TRUE(good);
    ASSERT_EQ(p.resource.size(), static_cast<std::size_t>(context.resource().attributes_size()));
    ASSERT_EQ(p.attributes.size(), static_cast<std::size_t>(context.attributes_size()));
    for (std::size_t i = 0; i < p.resource.size(); ++i) {
      const auto& kv = context.resource().attributes(static_cast<int>(i));
      ASSERT_EQ(p.resource[i].key, kv.key());
      if (kv.value().has_string_value()) {
        ASSERT_EQ(p.resource[i].value, kv.value().string_value());
      }
    }
    if (p.dictionary_uses.empty()) {
      ASSERT_EQ(p.resource_key_repeats.size(), repeated_keys(context.resource().attributes()));
      ASSERT_EQ(p.attribute_key_repeats.size(), repeated_keys(context.attributes()));
      std::size_t nested = 0;
      for (const auto& kv : context.resource().attributes()) nested += repeats_within(kv.value());
      for (const auto& kv : context.attributes()) nested += repeats_within(kv.value());
      ASSERT_EQ(p.nested_key_repeats.size(), nested);
    }
  } else if (good) {
    // Legal to the letter: other formats by their look, numbers that protobuf silently truncates, a
    // wrong part that a later member of a oneof replaced.
    const bool by_looks =
        p.problem == PayloadProblem::kOlderFormat || p.problem == PayloadProblem::kFieldsMisplaced;
    const bool cut_off = p.detail.find("too large") != std::string::npos;
    ASSERT_TRUE(by_looks || cut_off || p.problem == PayloadProblem::kNotTyped);
    if (!by_looks && !cut_off) {
      ASSERT_NE(p.detail.find(".value"), std::string::npos);
    }
  }
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::size_t below(std::size_t n) { return engine_() % n; }
  char byte() { return static_cast<char>(engine_()); }

 private:
  std::mt19937 engine_;
};

std::string random_any(Random& random, int depth) {
  switch (random.below(depth > 3 ? 6 : 10)) {
    case 0:
      return "";
    case 1:
      return str(random.below(8) == 0 ? "\xc3" : "v\xc3\xbc");
    case 2:
      return integer(random.below(1000));
    case 3:
      return tag(2, 0) + varint(random.below(2));
    case 4:
      return tag(4, 1) + "12345678";
    case 5:
      return len(7, "\xff\x01");
    case 6:
      return array({random_any(random, depth + 1), random_any(random, depth + 1)});
    case 7:
      return array({random_any(random, depth + 1)}) + random_any(random, depth + 1);
    case 8: {
      const std::string key(1, static_cast<char>('a' + random.below(3)));
      return kvlist(
          {pair("a", random_any(random, depth + 1)), pair(key, random_any(random, depth + 1))});
    }
    default:
      return random_any(random, depth + 1) + random_any(random, depth + 1);
  }
}

std::string random_pair(Random& random) {
  const std::string key = random.below(4) == 0
                              ? "service.name"
                              : std::string(1, static_cast<char>('a' + random.below(4)));
  std::string out = len(1, key) + len(2, random_any(random, 0));
  if (random.below(6) == 0) out += len(2, random_any(random, 0));
  if (random.below(20) == 0) out += tag(3, 0) + varint(random.below(300));
  return out;
}

std::string random_context(Random& random) {
  std::string out;
  for (std::size_t parts = random.below(4); parts > 0; --parts) {
    if (random.below(2) == 0) {
      out += len(2, random_pair(random));
      continue;
    }
    std::string resource;
    for (std::size_t n = random.below(4); n > 0; --n) resource += len(1, random_pair(random));
    if (random.below(5) == 0) resource += tag(2, 0) + varint(3);
    if (random.below(8) == 0) resource += len(3, len(3, "a") + len(1, "u"));
    out += len(1, resource);
  }
  if (random.below(5) == 0) out += len(static_cast<unsigned>(3 + random.below(20)), "some\x01");
  return out;
}

void mutate(std::string& bytes, Random& random) {
  for (std::size_t n = 1 + random.below(3); n > 0; --n) {
    const std::size_t at = random.below(bytes.size() + 1);
    switch (random.below(6)) {
      case 0:
        if (at < bytes.size()) bytes[at] = random.byte();
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
        break;
      case 2:
        bytes.insert(at, 1, random.byte());
        break;
      case 3:
        if (at < bytes.size()) bytes.erase(at, 1 + random.below(4));
        break;
      case 4:
        bytes.resize(at);
        break;
      default:
        bytes.insert(at, bytes.substr(random.below(bytes.size() + 1), random.below(20)));
        break;
    }
  }
}

// protobuf prints complaints about bad strings, which would flood the output.
class SilentProtobuf {
 public:
  SilentProtobuf() : old_(google::protobuf::SetLogHandler(nullptr)) {}
  SilentProtobuf(const SilentProtobuf&) = delete;
  SilentProtobuf& operator=(const SilentProtobuf&) = delete;
  ~SilentProtobuf() { google::protobuf::SetLogHandler(old_); }

 private:
  google::protobuf::LogHandler* old_;
};

// Debug builds with sanitizers are thirty times slower.
#ifdef __OPTIMIZE__
constexpr int kMutations = 200'000;
#else
constexpr int kMutations = 15'000;
#endif

// Counts each problem.
class PayloadAgainstProtobuf : public testing::Test {
 protected:
  void check(const std::string& bytes) {
    const Payload p = analyse(bytes);
    ++seen_[static_cast<std::size_t>(p.problem)];
    check_against_protobuf(bytes, p);
    if (HasFatalFailure()) ADD_FAILURE() << testing::PrintToString(bytes) << "\n" << p.detail;
  }
  int seen(PayloadProblem p) const { return seen_[static_cast<std::size_t>(p)]; }

 private:
  SilentProtobuf silent_;
  std::array<int, 5> seen_{};
};

TEST_F(PayloadAgainstProtobuf, AgreesOnValidMessages) {
  Random random(4719);
  for (int i = 0; i < kMutations / 10 && !HasFailure(); ++i) check(random_context(random));
  EXPECT_EQ(seen(PayloadProblem::kNone), kMutations / 10);
}

TEST_F(PayloadAgainstProtobuf, AgreesOnMutations) {
  Random random(4947);
  for (int i = 0; i < kMutations && !HasFailure(); ++i) {
    std::string bytes = random_context(random);
    mutate(bytes, random);
    check(bytes);
  }
  // Random mutations do not produce older formats.
  EXPECT_GT(seen(PayloadProblem::kNone), kMutations / 20);
  EXPECT_GT(seen(PayloadProblem::kNotWalkable), kMutations / 20);
  EXPECT_GT(seen(PayloadProblem::kNotTyped), kMutations / 20);
  EXPECT_GT(seen(PayloadProblem::kFieldsMisplaced), kMutations / 2000);
}

TEST_F(PayloadAgainstProtobuf, AgreesOnNoise) {
  Random random(1);
  for (int i = 0; i < kMutations / 4 && !HasFailure(); ++i) {
    std::string bytes;
    const bool text = random.below(2) == 0;
    for (std::size_t n = random.below(40); n > 0; --n) {
      bytes += text ? static_cast<char>(' ' + random.below(95)) : random.byte();
    }
    check(bytes);
  }
  EXPECT_GT(seen(PayloadProblem::kNotTyped), kMutations / 5);
}

TEST(Payload, IsNotReadBeyondItsEnd) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* at = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  auto* base = static_cast<std::byte*>(at);
  ASSERT_EQ(mprotect(base + page, page, PROT_NONE), 0);
  const std::vector<std::string> payloads = {
      kContext, kResource, len(2, "cart") + len(3, "1.0"),
      "\x81\xacservice.name\xa4"
      "cart",
      len(2, kResource) + len(1, pair("a", str("\xe2\x82\xac")))};
  for (const auto& bytes : payloads) {
    for (std::size_t n = 0; n <= bytes.size(); ++n) {
      std::byte* begin = base + page - n;
      if (n > 0) std::memcpy(begin, bytes.data(), n);
      const Payload p = analyse_payload({begin, n});
      EXPECT_LE(p.problem_offset, n);
    }
  }
  munmap(at, 2 * page);
}

}  // namespace
}  // namespace ctxconf::conformance
