#include "conformance/session_json.h"

#include <array>
#include <string_view>
#include <utility>

namespace ctxconf::conformance {
namespace {

using OrderedJson = JsonReader::Json;

constexpr std::array<std::pair<CheckEnding, std::string_view>, 5> kEndings = {{
    {CheckEnding::kDone, "done"},
    {CheckEnding::kRefused, "refused"},
    {CheckEnding::kCrash, "crash"},
    {CheckEnding::kTimeout, "timeout"},
    {CheckEnding::kNotRun, "not-run"},
}};

template <class T>
OrderedJson or_null(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson json_of(const ThreadView& t) {
  return {{"tid", t.tid}, {"module", t.module}, {"null", t.null}, {"sample", or_null(t.sample)}};
}

OrderedJson json_of(const ImageView& v) {
  OrderedJson out = {{"pid", v.image.pid},
                     {"image", v.image.image},
                     {"order", v.order},
                     {"snapshot", or_null(v.snapshot)},
                     {"threads", OrderedJson::array()},
                     {"unseen", v.unseen}};
  for (const auto& t : v.threads) out["threads"].push_back(json_of(t));
  return out;
}

OrderedJson json_of(const Operation& o) {
  OrderedJson out = {
      {"check", o.check},     {"request", text(o.request)},   {"reply", text(o.reply)},
      {"sent_ns", o.sent_ns}, {"answered_ns", o.answered_ns}, {"after", OrderedJson::array()}};
  for (const auto& v : o.after) out["after"].push_back(json_of(v));
  return out;
}

OrderedJson json_of(const CheckRun& c) {
  return {{"name", c.name},
          {"requirements", texts(c.requirements)},
          {"ending", to_string(c.ending)},
          {"text", text(c.text)},
          {"details", texts(c.details)}};
}

ThreadView thread_view(const JsonReader& in) {
  ThreadView t;
  t.tid = in.number<std::int32_t>("tid", 1);
  t.module = in.number<std::uint32_t>("module");
  t.null = in.boolean("null");
  t.sample = in.optional_number<std::uint64_t>("sample");
  return t;
}

ImageKey image_key(const JsonReader& in) {
  return {.pid = in.number<std::int32_t>("pid", 0), .image = in.number<std::uint32_t>("image")};
}

ImageView image_view(const JsonReader& in) {
  ImageView v;
  v.image = image_key(in);
  v.order = in.number<std::uint64_t>("order");
  v.snapshot = in.optional_number<std::uint64_t>("snapshot");
  v.threads = in.list<ThreadView>("threads", thread_view);
  v.unseen = in.numbers<std::int32_t>("unseen");
  return v;
}

Operation operation(const JsonReader& in) {
  Operation o;
  o.check = in.number<std::uint32_t>("check");
  o.request = in.string("request");
  o.reply = in.string("reply");
  o.sent_ns = in.number<std::uint64_t>("sent_ns");
  o.answered_ns = in.number<std::uint64_t>("answered_ns");
  o.after = in.list<ImageView>("after", image_view);
  return o;
}

CheckRun check_run(const JsonReader& in) {
  CheckRun c;
  c.name = in.string("name");
  c.requirements = in.strings("requirements");
  const std::string ending = in.string("ending");
  bool known = false;
  for (const auto& [value, word] : kEndings) {
    if (word != ending) continue;
    c.ending = value;
    known = true;
  }
  if (!known) in.complain("ending", "is no known ending of a check");
  c.text = in.string("text");
  c.details = in.strings("details");
  return c;
}

}  // namespace

std::string_view to_string(CheckEnding ending) {
  for (const auto& [value, word] : kEndings) {
    if (value == ending) return word;
  }
  return "done";
}

OrderedJson json_of(const Session& s) {
  OrderedJson out = {{"group", s.group},
                     {"number", s.root.session},
                     {"repeat", s.repeat},
                     {"pid", s.root.pid},
                     {"image", s.root.image},
                     {"hello", text(s.hello)},
                     {"checks", OrderedJson::array()},
                     {"operations", OrderedJson::array()},
                     {"ending", text(s.ending)},
                     {"noise_lines", s.noise_lines},
                     {"noise", text(s.noise)},
                     {"left_behind", texts(s.left_behind)},
                     {"faults", texts(s.faults)}};
  for (const auto& c : s.checks) out["checks"].push_back(json_of(c));
  for (const auto& o : s.operations) out["operations"].push_back(json_of(o));
  return out;
}

OrderedJson json_of(const SkippedCheck& s) {
  return {{"name", s.name}, {"requirements", texts(s.requirements)}, {"missing", text(s.missing)}};
}

Session session_from(const JsonReader& in) {
  Session s;
  s.group = in.string("group");
  s.repeat = in.number<std::uint32_t>("repeat");
  s.root = image_key(in);
  s.root.session = in.number<std::uint32_t>("number");
  s.hello = in.string("hello");
  s.checks = in.list<CheckRun>("checks", check_run);
  s.operations = in.list<Operation>("operations", operation);
  for (auto& o : s.operations) {
    if (o.check >= s.checks.size()) in.complain("operations", "name a check that is not listed");
    for (auto& v : o.after) v.image.session = s.root.session;
  }
  s.ending = in.string("ending");
  s.noise_lines = in.number<std::uint64_t>("noise_lines");
  s.noise = in.string("noise");
  s.left_behind = in.strings("left_behind");
  s.faults = in.strings("faults");
  return s;
}

SkippedCheck skipped_check_from(const JsonReader& in) {
  return {in.string("name"), in.strings("requirements"), in.string("missing")};
}

}  // namespace ctxconf::conformance
