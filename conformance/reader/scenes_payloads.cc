// Where payloads are, and payloads that do not decode.
#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <utility>

#include "conformance/puppet/rng.h"
#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Bytes;
using puppet::Value;

// Stores another pointer and size, under a zero timestamp.
Published moved(puppet::Builder& b, Published p, const Value& payload, std::uint64_t size) {
  update(b, p, payload, size);
  p.payload = payload;
  p.size = size;
  return p;
}

Scene placed(const std::string& name, const std::string& about,
             const std::function<Value(puppet::Builder& b, const Bytes& message)>& where) {
  const Message message = service("ctxconf-" + name);
  SceneBuilder s("payload-" + name, about);
  s.rests_only_on({Premise::kInline});
  auto& b = s.script();
  Published p = publish(b, message.encoded(), {.leave_zero = true});
  p = moved(b, p, where(b, message.encoded()), message.encoded().size());
  s.ask(about_process(p, {claim("pctx.reader.follows-pointer", {accept(message.content())},
                                "a payload is not read from where the pointer says")}));
  return std::move(s).scene();
}

Value read_only(puppet::Builder& b, const Bytes& message) {
  const Value at = place(b, message);
  b.protect(at, kPage, PROT_READ);
  return at;
}

// The first bytes in one mapping, the rest in another.
Value across_mappings(puppet::Builder& b, const Bytes& message) {
  const Value at = b.map_anonymous(2 * kPage, kReadWrite, MAP_PRIVATE);
  const Value payload = at + kPage - 5;
  b.write(payload, message);
  b.protect(at + kPage, kPage, PROT_READ);
  return payload;
}

Value at_the_end(puppet::Builder& b, const Bytes& message) {
  const Value at = b.map_anonymous(2 * kPage, kReadWrite, MAP_PRIVATE);
  const Value payload = at + kPage - message.size();
  b.write(payload, message);
  b.unmap(at + kPage, kPage);
  return payload;
}

Scene large() {
  Message message = service("ctxconf-large");
  for (int i = 0; i < 200; ++i) {
    message.resource.emplace_back("ctxconf.key" + std::to_string(i), std::string(100, 'x'));
  }
  SceneBuilder s("payload-of-25-kib", "a payload of several pages");
  s.rests_only_on({Premise::kInline});
  const Published p = publish(s.script(), message.encoded());
  s.ask(about_process(p, {claim("pctx.reader.follows-pointer", {accept(message.content())},
                                "a payload of several pages is not read as a whole")}));
  return std::move(s).scene();
}

// Changes, cuts or repeats bytes.
Bytes mutated(Bytes bytes, puppet::Rng& rng) {
  const auto changes = 1 + rng.below(4);
  for (std::uint64_t i = 0; i < changes && !bytes.empty(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(rng.below(bytes.size()));
    switch (rng.below(4)) {
      case 0:
        bytes[static_cast<std::size_t>(at)] = static_cast<std::byte>(rng.below(256));
        break;
      case 1:
        bytes[static_cast<std::size_t>(at)] ^= std::byte{1} << rng.below(8);
        break;
      case 2:
        bytes.erase(bytes.begin() + at, bytes.end());
        break;
      default:
        bytes.insert(bytes.begin() + at, std::byte{0xff});
    }
  }
  return bytes;
}

Scene mutations() {
  constexpr const char* kSurvives = "pctx.reader.survives-bad-payload";
  constexpr int kMutations = 300;
  Message message = service("ctxconf-mutated");
  message.attributes = {{"ctxconf.one", "1"}, {"ctxconf.two", "2"}};
  message.schema = "tlsdesc_v1_dev";
  message.key_map = {"http_route", "http_method"};
  const Bytes good = message.encoded();
  SceneBuilder s("payload-mutations",
                 std::to_string(kMutations) + " mutations of a good payload, one after the other");
  s.needs("reader.process");
  auto& b = s.script();
  Published p = publish(b, good);
  const Value room = b.map_anonymous(2 * kPage, kReadWrite, MAP_PRIVATE);
  puppet::Rng rng(4719);
  for (int i = 0; i < kMutations; ++i) {
    const Bytes bytes = mutated(good, rng);
    b.store(p.header + 16, 8, 0);
    if (!bytes.empty()) b.write(room, bytes);
    b.store(p.header + 24, 8, room);
    b.store(p.header + 12, 4, bytes.size());
    b.store(p.header + 16, 8, b.clock());
    Question q;
    q.records_calls = false;
    q.shown = {{"header", p.whole()}, {"payload", {room, bytes.size()}}};
    s.ask(std::move(q));
  }
  s.ask_witness({kSurvives});
  return std::move(s).scene();
}

Scene nested() {
  constexpr const char* kSurvives = "pctx.reader.survives-bad-payload";
  SceneBuilder s("payload-nested", "a value that nests two thousand arrays");
  // AnyValue { array_value { values ... } }: each level adds the tags of both.
  std::string value;
  const auto block = [](char tag, const std::string& bytes) {
    std::string out(1, tag);
    for (std::size_t size = bytes.size();; size >>= 7U) {
      out += static_cast<char>((size & 0x7fU) | (size > 0x7f ? 0x80U : 0U));
      if (size <= 0x7f) break;
    }
    return out + bytes;
  };
  for (int i = 0; i < 2000; ++i) value = block('\x2a', block('\x0a', value));
  const std::string pair = block('\x0a', "deep") + block('\x12', value);
  const std::string payload = block('\x0a', block('\x0a', pair));
  const Published p = publish(s.script(), puppet::bytes_of(payload));
  auto any = not_used();
  any.push_back(accept());
  s.ask(about_process(
      p,
      {claim(kSurvives, any, "the reader gives no valid answer for a payload that nests deeply")}));
  s.ask_witness({kSurvives});
  return std::move(s).scene();
}

}  // namespace

SceneGroup payload_scenes() {
  SceneGroup out;
  out.name = "payloads";
  out.scenes.push_back(placed("read-only", "a payload in memory that may only be read", read_only));
  out.scenes.push_back(
      placed("across-mappings", "a payload that lies in two mappings", across_mappings));
  out.scenes.push_back(placed("at-the-end", "nothing is mapped after the payload", at_the_end));
  out.scenes.push_back(large());
  out.scenes.push_back(mutations());
  out.scenes.push_back(nested());
  return out;
}

}  // namespace ctxconf::conformance::reader
