// The requests to a program under test and what it showed after each answer, prepared for rules.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/evidence/session.h"
#include "conformance/rules/evidence.h"

namespace ctxconf::conformance {

// Trace flags (W3C Trace Context, level 2).
inline constexpr unsigned kSampled = 1;
inline constexpr unsigned kRandom = 2;

struct DrivenOperation {
  const Operation* operation = nullptr;
  const CheckRun* check = nullptr;
  std::string op;          // "process.update"; empty: none, the program was left alone
  nlohmann::json request;  // an object
  nlohmann::json reply;    // null: none came, or it was cut
  // What the request gives in its members `resource` and `attributes`, if it is one for a process.
  std::vector<Attribute> resource;
  std::vector<Attribute> attributes;
  bool ok = false;         // answered with ok:true
  std::string error_kind;  // of a reply with ok:false: "rejected"
  // The process that hello named; null: no snapshot was taken of it any more.
  const ImageView* view = nullptr;

  bool of_thread(std::string_view name) const;  // its member `thread` is `name`
};

struct SessionEvidence {
  const Session* session = nullptr;
  nlohmann::json capabilities;  // an object
  nlohmann::json limits;        // an object: the member of hello
  std::vector<DrivenOperation> operations;
  std::map<ImageKey, const ImageEvidence*> images;  // of the whole recording

  bool can(std::string_view capability) const { return capabilities.contains(capability); }
  const ImageEvidence* image(ImageKey key) const;
  // The thread that has this name right after operation `index`; nothing: none has.
  std::optional<std::int32_t> thread(std::string_view name, std::size_t index) const;
};

// The context that a reader would have found at that moment: named, valid, settled; null: none.
const Context* context_at(const ImageEvidence& image, const ImageView& view);

// What a thread showed at that moment.
enum class SlotState {
  kUnknown,  // the thread, or its variable, was not sampled
  kNone,     // null, or a record that is not valid
  kRecord,   // a valid record; `record` is set
  kUnreadable,
};
struct Slot {
  SlotState state = SlotState::kUnknown;
  const Record* record = nullptr;  // also of one that is not valid
};
Slot slot_at(const ImageEvidence& image, const ImageView& view, std::int32_t tid);

// Index of the operation during which an event of the image came; the number of operations: nothing
// was observed after it.
std::size_t operation_of(const ImageEvidence& image, std::uint64_t order);

// The requests of an operation: one, or those of a `parallel`.
struct RequestPart {
  nlohmann::json request;
  nlohmann::json reply;  // null: none came
  bool ok = false;       // answered with ok:true
};
std::vector<RequestPart> parts_of(const DrivenOperation& operation);

// A member that is a list; empty if it is missing or not a list.
std::vector<nlohmann::json> list_member(const nlohmann::json& object, const char* name);
// A member that is text; empty: there is none.
std::string text_member(const nlohmann::json& object, const char* name);

// The attributes of a record by name, the last entry of a key winning; a key without a name in the
// map as "#7". Values are any bytes.
std::map<std::string, std::string> attributes_of(const Record& record);

// Key and AnyValue of a list of KeyValue as requests have it, in the form of Attribute::value;
// values that are not an AnyValue are left out.
std::vector<Attribute> attributes_of(const nlohmann::json& key_values);
// The attributes of a request's, or a child's, member `resource`; none where it has none.
std::vector<Attribute> resource_of(const nlohmann::json& request);

// "process.update {\"resource\":...}", cut; for a finding's evidence.
std::string request_line(const DrivenOperation& operation);

// Whether the check, one of the session's, ended because a context was answered with "rejected".
bool ends_with_refused_context(const Session& session, const CheckRun& check);
// Whether a context was attached in the session, by itself or in parallel.
bool has_attached(const Session& session);

// Fills ImageEvidence::session of the images that hello named, and of all in their process.
void add_sessions(const Timeline& timeline, std::vector<ImageEvidence>& evidence);

}  // namespace ctxconf::conformance
