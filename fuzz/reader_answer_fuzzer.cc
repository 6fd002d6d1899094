// What an adapter of a reader answers, next to what it declares and to the answer that would be
// right: {"caps": ..., "reply": ..., "wanted": ...}.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "conformance/evidence/reader_answers.h"
#include "conformance/testee/protocol.h"
#include "fuzz/agree.h"

namespace {

using namespace ctxconf::conformance;
using namespace ctxconf::fuzz;
using Json = nlohmann::json;

constexpr int kDeepestAnswer = 100;
constexpr const char* kNoAnswer = "a text that no answer has";

int depth_of_answer(const Json& value) {
  int deepest = 0;
  if (!value.is_structured()) return 0;
  for (const Json& inner : value) deepest = std::max(deepest, depth_of_answer(inner));
  return deepest + 1;
}

// {KEY: AnyValue} of a list of attributes; nothing if a key is there twice.
std::optional<Json> slow_attributes(const Json& list) {
  Json out = Json::object();
  for (const Json& pair : list) {
    const auto& key = pair.at("key").get_ref<const std::string&>();
    if (out.contains(key)) return std::nullopt;
    out[key] = pair.contains("value") ? pair["value"] : Json::object();
  }
  return out;
}

std::string difference_from(const Json& content, const Json& reply, const ReaderTraits& traits) {
  return difference({reply["result"].get<std::string>(), content.dump()}, reply, traits);
}

// An answer fits itself; with a pair less or another value it does not.
void check_attributes(const std::string& name, const Json& list, bool shown, const Json& reply,
                      const ReaderTraits& traits) {
  const auto own = slow_attributes(list);
  if (!own) return;
  const auto differs = [&](const std::string& member, const Json& wanted) {
    return !difference_from({{member, wanted}}, reply, traits).empty();
  };
  FUZZ_CHECK(!differs(name, *own));
  FUZZ_CHECK(!differs(name + "_has", *own));
  FUZZ_CHECK(!differs(name + "_has", Json::object()));
  if (own->empty()) return;
  const std::string key = own->begin().key();
  Json less = *own;
  less.erase(key);
  FUZZ_CHECK(differs(name, less) == shown);
  FUZZ_CHECK(!differs(name + "_has", less));
  Json changed = *own;
  changed[key] = {{"stringValue", kNoAnswer}};
  FUZZ_CHECK(differs(name, changed) == (shown && traits.shows_kind("string")));
  Json more = *own;
  more[kNoAnswer] = {{"stringValue", kNoAnswer}};
  FUZZ_CHECK(differs(name, more) == (shown && traits.shows_kind("string")));
  FUZZ_CHECK(differs(name + "_has", more) == (shown && traits.shows_kind("string")));
}

void check_reader_context(const Json& reply, const ReaderTraits& traits) {
  const Json& context = reply["context"];
  if (context.contains("resource") && context["resource"].contains("attributes")) {
    check_attributes("resource", context["resource"]["attributes"], traits.shows_resource(), reply,
                     traits);
  }
  if (context.contains("attributes")) {
    check_attributes("attributes", context["attributes"], traits.shows_attributes(), reply, traits);
  }
}

void check_reader_record(const Json& reply, const ReaderTraits& traits) {
  const Json& record = reply["record"];
  Json own = Json::object();
  for (const char* name : {"trace_id", "span_id", "flags"}) {
    if (record.contains(name)) own[name] = record[name];
  }
  if (record.contains("attributes")) own["names"] = record["attributes"];
  FUZZ_CHECK(difference_from(own, reply, traits).empty());
  for (const char* name : {"trace_id", "span_id"}) {
    if (!own.contains(name)) continue;
    Json other = own;
    other[name] = kNoAnswer;
    FUZZ_CHECK(!difference_from(other, reply, traits).empty());
  }
  if (own.contains("names")) {
    Json other = own;
    other["names"][kNoAnswer] = kNoAnswer;
    FUZZ_CHECK(!difference_from(other, reply, traits).empty());
  }
}

void check_answer(const Json& reply, const ReaderTraits& traits, const Json& wanted) {
  const std::string whole =
      reply.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  AnswerClaim claim;
  for (const char* result : {"accept", "absent", "reject", "retry", kRefusedAnswer}) {
    const AllowedAnswer any{result, ""};
    const bool refuses = reply.contains("ok") && reply["ok"] == false;
    const bool fits = refuses ? std::string_view(result) == kRefusedAnswer
                              : reply.contains("result") && reply["result"] == result;
    FUZZ_CHECK(difference(any, reply, traits).empty() == fits);
    // A claim with one more right answer allows no less.
    claim.allowed.push_back({result, wanted.dump()});
    const bool before = problem_with(claim, reply, traits).empty();
    claim.allowed.push_back(any);
    FUZZ_CHECK(!before || problem_with(claim, reply, traits).empty());
    FUZZ_CHECK(!fits || problem_with(claim, reply, traits).empty());
  }
  const bool right = problem_with(claim, reply, traits).empty();
  claim.never = {kNoAnswer};
  FUZZ_CHECK(problem_with(claim, reply, traits).empty() ==
             (right && whole.find(kNoAnswer) == whole.npos));
  FUZZ_CHECK(shown_answer(reply).size() < 400);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Json input = Json::parse(text_of(data, size), nullptr, false);
  if (!input.is_object() || depth_of_answer(input) > kDeepestAnswer) return 0;
  const Json reply = input.value("reply", Json());
  if (!reply.is_object()) return 0;
  const ReaderTraits traits(input.value("caps", Json::object()));
  check_answer(reply, traits, input.value("wanted", Json()));
  // What is asked of a line that follows the schema.
  if (problem_of(reply, Definition::kReaderReply)) return 0;
  if (!reply.contains("result") || reply["ok"] == false) return 0;
  if (reply.dump().find(kNoAnswer) != std::string::npos) return 0;
  if (reply.contains("context")) check_reader_context(reply, traits);
  if (reply.contains("record")) check_reader_record(reply, traits);
  return 0;
}
