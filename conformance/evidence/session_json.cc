#include "conformance/evidence/session_json.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "conformance/text/json_limits.h"
#include "conformance/text/json_members.h"
#include "conformance/text/words.h"

namespace ctxconf::conformance {
namespace {

using OrderedJson = JsonReader::Json;

constexpr std::array<Word<CheckEnding>, 5> kEndings = {{
    {CheckEnding::kDone, "done"},
    {CheckEnding::kRefused, "refused"},
    {CheckEnding::kCrash, "crash"},
    {CheckEnding::kTimeout, "timeout"},
    {CheckEnding::kNotRun, "not-run"},
}};

void read_ending(const JsonReader& in, const char* name, CheckEnding& ending) {
  const auto known = value_of(kEndings, in.string(name));
  if (!known) return in.complain(name, "is not a known ending of a check");
  ending = *known;
}

using How = AdapterEnding::How;

constexpr std::array<Word<How>, 6> kAdapterEndings = {{
    {How::kUnknown, "unknown"},
    {How::kExitedZero, "exited-zero"},
    {How::kExited, "exited"},
    {How::kKilled, "killed"},
    {How::kKilledByUs, "killed-by-us"},
    {How::kRunaway, "runaway"},
}};

std::string_view how_word(How how) { return word_of(kAdapterEndings, how); }

void read_how(const JsonReader& in, const char* name, How& how) {
  const auto known = value_of(kAdapterEndings, in.string(name));
  if (!known) return in.complain(name, "is not a known ending");
  how = *known;
}

// Recordings of earlier versions have only the text.
How how_by_text(std::string_view text) {
  if (text == "exited 0") return How::kExitedZero;
  if (text.starts_with("exited ")) return How::kExited;
  if (text.starts_with("ended as a runaway")) return How::kRunaway;
  if (!text.starts_with("killed by")) return How::kUnknown;
  return text.ends_with(')') ? How::kKilledByUs : How::kKilled;
}

void read_missing_how(const JsonReader& in, AdapterEnding& ending) {
  if (in.absent_or_null("ended")) ending.how = how_by_text(ending.text);
}

// Recordings of earlier versions have it as text before the capability.
void read_old_capability(SkippedCheck& s) {
  constexpr std::string_view kNot = "not ";
  if (!s.capability.starts_with(kNot)) return;
  s.capability.erase(0, kNot.size());
  s.must_be_absent = true;
}

// Text that is parsed once more when it is judged.
void json_text(auto& m, const char* name, auto& text) {
  m.text(name, text);
  m.check(name, "is longer than a line of the testee protocol",
          [&] { return text.size() <= kLongestKeptLine; });
}

}  // namespace

std::string_view to_string(CheckEnding ending) { return word_of(kEndings, ending); }

// ---- one list of members for each type

void members(auto& m, Is<ThreadView> auto& t) {
  m.number("tid", t.tid, 1);
  m.number("module", t.module);
  m.flag("null", t.null);
  m.number_or_null("sample", t.sample);
}

void members(auto& m, Is<ImageView> auto& v) {
  m.number("pid", v.image.pid, 0);
  m.number("image", v.image.image);
  m.number("order", v.order);
  m.number_or_null("snapshot", v.snapshot);
  m.list("threads", v.threads);
  m.numbers("unseen", v.unseen);
}

void members(auto& m, Is<MemoryRange> auto& r) {
  m.address("at", r.at);
  m.number("size", r.size);
}

void members(auto& m, Is<ReaderCall> auto& c) {
  m.number("tid", c.tid, 1);
  m.text("name", c.name);
  m.text("detail", c.detail);
  m.number("target", c.target, 0);
  m.list("ranges", c.ranges);
  m.number_or_null("result", c.result);
  m.number("entered_ns", c.entered_ns);
  if (m.has("state", !c.state.empty())) {
    m.text("state", c.state);
    m.number("ran_before", c.ran_before);
    m.number("ran_after", c.ran_after);
  }
  if (m.has("held", !c.held.empty())) m.text("held", c.held);
}

void members(auto& m, Is<ShownMemory> auto& s) {
  m.text("name", s.name);
  m.address("at", s.at);
  m.number("size", s.size);
  m.bytes("bytes", s.bytes);
}

void members(auto& m, Is<AllowedAnswer> auto& a) {
  m.text("result", a.result);
  json_text(m, "content", a.content);
}

void members(auto& m, Is<AnswerClaim> auto& c) {
  m.text("requirement", c.requirement);
  m.list("allowed", c.allowed);
  m.texts("never", c.never);
  m.text("otherwise", c.otherwise);
  if (m.has("info", c.info)) m.flag("info", c.info);
  if (m.has("warning", c.warning)) m.flag("warning", c.warning);
}

void members(auto& m, Is<ReaderQuestion> auto& q) {
  m.list("claims", q.claims);
  m.number("process", q.process, 0);
  m.number("thread", q.thread, 0);
  m.list("shown", q.shown);
  m.list("calls", q.calls);
  m.check("calls", "are more than a question can have",
          [&] { return q.calls.size() <= kMaxReaderCalls; });
  m.number("calls_dropped", q.calls_dropped);
  if (m.has("counted", q.counted)) m.flag("counted", q.counted);
  if (m.has("repeated", q.repeated)) m.flag("repeated", q.repeated);
  m.texts("missed", q.missed);
  m.number("processor_ns", q.processor_ns);
  m.number("peak_bytes", q.peak_bytes);
  m.number("before_bytes", q.before_bytes);
}

void members(auto& m, Is<Operation> auto& o) {
  m.number("check", o.check);
  json_text(m, "request", o.request);
  json_text(m, "reply", o.reply);
  m.number("sent_ns", o.sent_ns);
  m.number("answered_ns", o.answered_ns);
  m.list("after", o.after);
  m.object_if_there("question", o.question);
}

void members(auto& m, Is<CheckRun> auto& c) {
  m.text("name", c.name);
  m.texts("requirements", c.requirements);
  m.as("ending", c.ending, [](CheckEnding e) { return to_string(e); }, read_ending);
  m.text("text", c.text);
  m.texts("details", c.details);
  if (m.has("script", !c.script.empty())) m.text("script", c.script);
  if (m.has("unshown", !c.unshown.empty())) {
    m.text("unshown", c.unshown);
    m.text("remedy", c.remedy);
  }
  if (m.has("harm", !c.harm.empty())) m.text("harm", c.harm);
}

void members(auto& m, Is<Session> auto& s) {
  m.text("group", s.group);
  m.number("number", s.root.session);
  m.number("repeat", s.repeat);
  m.number("pid", s.root.pid, 0);
  m.number("image", s.root.image);
  json_text(m, "hello", s.hello);
  m.list("checks", s.checks);
  m.list("operations", s.operations);
  m.text("ending", s.ending.text);
  if (m.has("ended", true)) m.as("ended", s.ending.how, how_word, read_how);
  if constexpr (std::remove_cvref_t<decltype(m)>::kReads) read_missing_how(m.in(), s.ending);
  m.number("noise_lines", s.noise_lines);
  m.text("noise", s.noise);
  m.texts("left_behind", s.left_behind);
  m.texts("faults", s.faults);
}

void members(auto& m, Is<SkippedCheck> auto& s) {
  m.text("name", s.name);
  m.texts("requirements", s.requirements);
  m.text("missing", s.capability);
  if (m.has("must_be_absent", s.must_be_absent)) m.flag("must_be_absent", s.must_be_absent);
  if constexpr (std::remove_cvref_t<decltype(m)>::kReads) read_old_capability(s);
}

OrderedJson json_of(const Session& s) { return json_by_members(s); }

OrderedJson json_of(const SkippedCheck& s) { return json_by_members(s); }

Session session_from(const JsonReader& in) {
  auto s = value_by_members<Session>(in);
  for (auto& o : s.operations) {
    if (o.check >= s.checks.size()) in.complain("operations", "name a check that is not listed");
    for (auto& v : o.after) v.image.session = s.root.session;
  }
  return s;
}

SkippedCheck skipped_check_from(const JsonReader& in) { return value_by_members<SkippedCheck>(in); }

}  // namespace ctxconf::conformance
