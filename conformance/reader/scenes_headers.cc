// Headers that are broken, being changed, or of a size that no reader can take.
#include <sys/mman.h>

#include <string>
#include <utility>

#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Value;
using std::chrono::milliseconds;

constexpr const char* kSurvivesHeader = "pctx.reader.survives-bad-header";

// A complete header, but for the pointer and the size.
Published with_pointer(puppet::Builder& b, const Value& pointer, std::uint64_t size) {
  Published p = publish(b, service("ctxconf-pointer").encoded(), {.leave_zero = true});
  b.store(p.header + 24, 8, pointer);
  b.store(p.header + 12, 4, size);
  b.store(p.header + 16, 8, b.clock());
  return p;
}

Scene bad_pointer(const std::string& name, const std::string& about, const Value& pointer,
                  std::uint64_t size = 64) {
  SceneBuilder s("pointer-" + name, about);
  const Published p = with_pointer(s.script(), pointer, size);
  Question q = about_process(p, {claim(kSurvivesHeader, not_used(),
                                       "a context is reported although its payload is not there")});
  q.shown.pop_back();
  s.ask(std::move(q));
  s.ask_witness({kSurvivesHeader});
  return std::move(s).scene();
}

Scene into_a_guard_page() {
  SceneBuilder s("pointer-guard-page", "the payload continues in a page without permissions");
  auto& b = s.script();
  const Value at = b.map_anonymous(2 * kPage, kReadWrite, MAP_PRIVATE);
  b.protect(at + kPage, kPage, PROT_NONE);
  const Published p = with_pointer(b, at + kPage - 16, 64);
  Question q = about_process(
      p, {claim(kSurvivesHeader, not_used(), "a payload is reported that ends early")});
  q.shown.pop_back();
  s.ask(std::move(q));
  s.ask_witness({kSurvivesHeader});
  return std::move(s).scene();
}

Scene beyond_a_file() {
  SceneBuilder s("mapping-without-pages",
                 "a mapping of a file that is shorter than it: no byte can be read");
  auto& b = s.script();
  const Published p = publish(b, service("ctxconf-truncated").encoded());
  const Value fd = b.memfd("OTEL_CTX", 0);
  const Value at = b.map_file(fd, kPage, kReadWrite, MAP_SHARED);
  b.unmap(p.header, kPage);
  Question q;
  q.claims = {
      claim(kSurvivesHeader, not_used(), "a context is reported from memory that cannot be read")};
  q.shown = {{"header", {at, 32}}};
  s.ask(std::move(q));
  s.ask_witness({kSurvivesHeader});
  return std::move(s).scene();
}

Scene huge_size(const std::string& name, std::uint64_t size, bool mapped) {
  constexpr const char* kBounded = "pctx.reader.payload-size-bounded";
  SceneBuilder s("size-" + name + (mapped ? "-mapped" : ""),
                 "a size of " + std::to_string(size) + " bytes" +
                     (mapped ? ", all of them mapped, none of them written" : " over one page"));
  auto& b = s.script();
  const std::uint64_t wanted = mapped ? (size + kPage - 1) / kPage * kPage : kPage;
  Value at;
  if (mapped) {
    at = b.map_anonymous(wanted, PROT_READ, MAP_PRIVATE | MAP_NORESERVE);
  } else {
    at = b.map_anonymous(wanted, kReadWrite, MAP_PRIVATE);
  }
  const Published p = with_pointer(b, at, size);
  Question q = about_process(p, {claim(kBounded, not_used(), "a context of zeros is reported")});
  q.shown.pop_back();
  s.ask(std::move(q));
  s.ask_witness({kBounded});
  return std::move(s).scene();
}

Scene zero_timestamp() {
  const Message message = service("ctxconf-zero");
  SceneBuilder s("timestamp-zero-for-a-while", "a complete context whose timestamp stays zero");
  const Published p = publish(s.script(), message.encoded(), {.leave_zero = true});
  auto c = claim("pctx.reader.zero-timestamp-not-used", not_used(),
                 "a context is used while its timestamp is zero");
  c.never = {"ctxconf-zero"};
  s.ask(about_process(p, {c}));
  s.wait({.duration = milliseconds(50)});
  s.ask(about_process(p, {c}));
  return std::move(s).scene();
}

Scene after_zero() {
  const Message message = service("ctxconf-after-zero");
  SceneBuilder s("timestamp-after-zero",
                 "a timestamp is zero for 100 ms, and is then stored and the mapping named");
  auto& b = s.script();
  const Published p = publish(b, message.encoded(), {.names = false, .leave_zero = true});
  s.ask(about_process(p, {}));
  s.wait({.duration = milliseconds(100)});
  b.store(p.header + 16, 8, b.clock());
  b.may_fail().name(p.header, kPage, "OTEL_CTX");
  Question q =
      about_process(p, {claim("pctx.reader.retries-after-zero", {accept(message.content())},
                              "a context is not found after its timestamp was zero once")});
  q.attempts = kAttempts;
  s.ask(std::move(q));
  return std::move(s).scene();
}

Scene established() {
  const Message message = service("ctxconf-established");
  SceneBuilder s("mapping-established",
                 "a mapping with a zero timestamp, an invalid one next to it; then only the "
                 "timestamp is stored");
  s.rests_on(Premise::kSkipsInvalid);
  s.rests_on(Premise::kAfterZero);
  auto& b = s.script();
  publish_without_signature(b);
  const Published p = publish(b, message.encoded(), {.leave_zero = true});
  s.ask(about_process(p, {}));
  b.store(p.header + 16, 8, b.clock());
  Question q =
      about_process(p, {claim("pctx.reader.mapping-established", {accept(message.content())},
                              "a mapping whose timestamp was zero is not looked at again")});
  q.attempts = kAttempts;
  s.ask(std::move(q));
  return std::move(s).scene();
}

Scene never_ready() {
  constexpr const char* kBounded = "pctx.reader.bounded-retry";
  SceneBuilder s("timestamp-zero-for-ever",
                 "a timestamp that stays zero, next to a process that publishes");
  const Published p = publish(s.script(), service("ctxconf-never").encoded(), {.leave_zero = true});
  auto any = not_used();
  any.push_back(accept());
  s.ask(about_process(
      p, {claim(kBounded, any,
                "the reader gives no valid answer for a context that is never ready")}));
  s.ask_witness({kBounded});
  return std::move(s).scene();
}

Scene always_changing() {
  constexpr const char* kBounded = "pctx.reader.bounded-retry";
  const Message message = service("ctxconf-busy");
  SceneBuilder s("timestamp-always-changing",
                 "a timestamp that changes all the time, next to a process that publishes");
  auto& b = s.script();
  const Published p = publish(b, message.encoded());
  b.by(b.thread()).later().repeat(UINT64_MAX >> 1U, {p.header + 16, 8, 1'000'000, 1});
  b.by_first();
  auto any = not_used();
  any.push_back(accept(message.content()));
  s.ask(about_process(
      p, {claim(kBounded, any,
                "a context that changes all the time is reported with other content")}));
  s.ask_witness({kBounded});
  return std::move(s).scene();
}

}  // namespace

SceneGroup header_scenes() {
  SceneGroup out;
  out.name = "headers";
  out.scenes.push_back(bad_pointer("one", "the payload is at address 1", 1));
  out.scenes.push_back(bad_pointer("kernel", "the payload is in the kernel's half of the addresses",
                                   0xffffffff81000000));
  out.scenes.push_back(bad_pointer(
      "non-canonical", "the payload is at an address that no process has", 0x0000800000001000));
  out.scenes.push_back(
      bad_pointer("last", "the payload ends after the last address", UINT64_MAX - 7));
  out.scenes.push_back(into_a_guard_page());
  out.scenes.push_back(beyond_a_file());
  out.scenes.push_back(huge_size("of-a-draft", 1'200'000'000, false));
  out.scenes.push_back(huge_size("of-a-draft", 1'200'000'000, true));
  out.scenes.push_back(huge_size("greatest", UINT32_MAX, false));
  out.scenes.push_back(huge_size("greatest", UINT32_MAX, true));
  out.scenes.push_back(zero_timestamp());
  out.scenes.push_back(after_zero());
  out.scenes.push_back(established());
  out.scenes.push_back(never_ready());
  out.scenes.push_back(always_changing());
  return out;
}

}  // namespace ctxconf::conformance::reader
