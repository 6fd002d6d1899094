#include "reader_ref/thread_context.h"

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <span>

namespace ctxconf::reader {
namespace {

using sys::MemoryReader;
using sys::RemoteAddr;
using sys::RemotePtr;
using sys::Result;

// The value at an address, or nothing if it cannot be read.
template <sys::Plain T>
Result<std::optional<T>> read_if_mapped(const MemoryReader& memory, RemoteAddr at) {
  const auto value = memory.read(RemotePtr<T>{at});
  if (value) return std::optional<T>(*value);
  if (value.error().err == EFAULT) return std::optional<T>();
  return std::unexpected(value.error());
}

std::optional<TraceLink> link_of(const abi::ThreadRecordHead& head, ThreadContext& context) {
  const bool trace = abi::has_trace_id(head);
  const bool span = abi::has_span_id(head);
  if (trace && span) return TraceLink{head.trace_id, head.span_id, head.trace_flags};
  if (trace) context.notes.emplace_back("a trace id without a span id");
  if (span) context.notes.emplace_back("a span id without a trace id");
  return std::nullopt;
}

std::string text_of(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const std::byte b : bytes) out += static_cast<char>(b);
  return out;
}

// A key map that repeats a name has two indexes for it; there too the later entry counts.
void set(std::vector<NamedValue>& attributes, const std::string& key, std::string value) {
  const auto at = std::ranges::find(attributes, key, &NamedValue::key);
  if (at != attributes.end()) {
    at->value = std::move(value);
  } else {
    attributes.push_back({key, std::move(value)});
  }
}

}  // namespace

std::string_view describe(RecordState state) {
  switch (state) {
    case RecordState::kNoBlock:
      return "the thread has never touched the variable";
    case RecordState::kSlotUnreadable:
      return "the slot cannot be read";
    case RecordState::kNull:
      return "the slot is null";
    case RecordState::kOddAddress:
      return "the slot points to an odd address";
    case RecordState::kUnreadable:
      return "the slot points to memory that cannot be read";
    case RecordState::kNotValid:
      return "the record is not valid";
    case RecordState::kValid:
      return "the record is valid";
  }
  return "";
}

Result<RecordCopy> copy_record(const MemoryReader& memory, RemoteAddr slot, Attributes attributes) {
  RecordCopy copy;
  copy.slot = slot;
  copy.state = RecordState::kSlotUnreadable;
  CTX_ASSIGN_OR_RETURN(pointer, read_if_mapped<std::uint64_t>(memory, slot));
  if (!pointer) return copy;
  copy.record = RemoteAddr(*pointer);
  copy.state = RecordState::kNull;
  if (*pointer == 0) return copy;
  copy.state = RecordState::kOddAddress;
  if (*pointer % alignof(abi::ThreadRecordHead) != 0) return copy;
  copy.state = RecordState::kUnreadable;
  CTX_ASSIGN_OR_RETURN(head, read_if_mapped<abi::ThreadRecordHead>(memory, copy.record));
  if (!head) return copy;
  copy.head = *head;
  copy.state = RecordState::kNotValid;
  if (head->valid != abi::kRecordValid) return copy;
  copy.state = RecordState::kValid;
  const auto area = copy.record.plus(sizeof(abi::ThreadRecordHead));
  if (attributes == Attributes::kSkip || head->attrs_data_size == 0 || !area) return copy;
  copy.area.resize(head->attrs_data_size);
  CTX_ASSIGN_OR_RETURN(copied, memory.read_some(*area, copy.area));
  copy.area_cut = copied < copy.area.size();
  copy.area.resize(copied);
  return copy;
}

ThreadContext parse_record(const RecordCopy& copy, const KeyMap& keys) {
  ThreadContext context;
  context.link = link_of(copy.head, context);
  std::bitset<abi::kMaxKeys> done;
  abi::AttributeCursor cursor(copy.area);
  while (const auto entry = cursor.next()) {
    if (entry->key >= keys.size()) {
      if (!done[entry->key]) context.unknown.push_back(entry->key);
      done.set(entry->key);
    } else if (!keys[entry->key].empty()) {
      set(context.attributes, keys[entry->key], text_of(entry->value));
    }
  }
  if (copy.area_cut) {
    context.notes.push_back("only " + std::to_string(copy.area.size()) + " of " +
                            std::to_string(copy.head.attrs_data_size) +
                            " attribute bytes can be read");
  } else if (cursor.left() != 0) {
    context.notes.push_back("the attributes end in a fragment of " + std::to_string(cursor.left()) +
                            " bytes");
  }
  return context;
}

}  // namespace ctxconf::reader
