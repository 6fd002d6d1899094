// The protocol between `ctxconf run` and an adapter (docs/testee-protocol.md): its lines and their
// schema.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace ctxconf::conformance {

// Time limits for a reply, for the reply to hello, and for the end after bye.
inline constexpr std::chrono::milliseconds kReplyWithin{10000};
inline constexpr std::chrono::milliseconds kHelloWithin{30000};
inline constexpr std::chrono::milliseconds kEndWithin{2000};

inline constexpr std::size_t kLongestLine = std::size_t{1} << 20U;
inline constexpr std::size_t kNoiseKept = 200;  // bytes of a line that is not a protocol message

// Cuts a testee's output into lines. A line that is too long is dropped.
class LineBuffer {
 public:
  void add(std::string_view bytes);
  // The next whole line without its newline; empty if it was too long.
  std::optional<std::string> next();
  std::size_t pending() const { return rest_.size(); }  // bytes of a line that has not ended

 private:
  std::deque<std::string> lines_;
  std::string rest_;
  bool too_long_ = false;
};

enum class LineKind { kNoise, kReply, kEvent };
// A reply is an object with an integer `id` and `ok`; an event is an object with `ev`. `out` is the
// object. Readers recurse: one that nests too deeply has null for its lists and objects, and breaks
// the protocol because `ok`, or `pid` of an event, is a text that says so.
LineKind classify_line(const std::string& line, nlohmann::json& out);

// The part of conformance/testee/protocol.schema.json that a line must follow.
enum class Definition {
  kRequest,
  kReply,
  kEvent,
  kHelloReply,
  kSpawnReply,
  kForkReply,
  kReapReply,
  kTlsAddressReply,
  kParallelReply,
  kReaderReply,
};
// The definition that replies to a successful request of this operation must follow.
Definition definition_of_reply(std::string_view op);
// What is wrong with a line, in one line that may quote it (hostile); nothing if it follows the
// schema.
std::optional<std::string> problem_of(const nlohmann::json& line, Definition definition);

// Removes from each Resource in `members` of a request the keys that the adapter cannot set.
void keep_settable_keys(const nlohmann::json& capabilities, nlohmann::json& members);

// Whether a hello's capabilities include this one. "process.fork:publish" is one of the children
// that process.fork lists; of "reader.process|reader.watch" one is enough. "reader.formats:tls_v1"
// is a format that the reader reads, as in ReaderTraits::reads(), and "not reader.formats:H3" one
// that it does not read.
bool is_declared(const nlohmann::json& capabilities, std::string_view capability);

// "not reader.formats:H3": reader.formats:H3 must be absent.
struct Need {
  std::string_view capability;
  bool must_be_absent = false;
};
Need need_from(std::string_view text);

// The capability that allows an operation; empty: always allowed, or unknown.
std::string_view capability_of(std::string_view op);

// An attribute of a request whose value is a string.
nlohmann::json text_attribute(const std::string& key, const std::string& value);

}  // namespace ctxconf::conformance
