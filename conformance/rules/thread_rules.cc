#include "conformance/rules/thread_rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace ctxconf::conformance {
namespace {

constexpr std::string_view kAttached =
    "a program that keeps a context attached while it is observed";

}  // namespace

std::optional<Finding> no_thread_context(const ImageEvidence& e) {
  if (!e.uses_threads) {
    return not_applicable(NaReason::kCapability,
                          "no module has the slot variable, and no thread a record");
  }
  const bool used = std::ranges::any_of(e.records, &Record::valid);
  if (e.schema && !abi::is_thread_schema(*e.schema) && !used) {
    return not_applicable(NaReason::kCapability,
                          fmt::format("the process announces another schema, {}", *e.schema));
  }
  return std::nullopt;
}

Finding no_record(const ImageEvidence& e) {
  if (!e.records.empty()) {
    return unobservable("no record had byte 24 at 1 when it was seen", std::string(kAttached));
  }
  if (!e.image->threads_unread.empty()) {
    return unobservable("no thread could be sampled: " + e.image->threads_unread,
                        "a host on which ctxconf may stop its threads (`ctxconf doctor`)");
  }
  return unobservable("no thread with a record was seen", std::string(kAttached));
}

std::string record_line(const Record& r) {
  return fmt::format("thread {}, slot {:#x}, record {:#x}, valid {}, flags {:#04x}, size {}",
                     r.sample->tid, r.sample->slot, r.sample->value, r.head.valid,
                     r.head.trace_flags, r.head.attrs_data_size);
}

std::vector<std::string> record_lines(const Record& r) {
  std::vector<std::string> out = {record_line(r)};
  if (r.sample->mapping) out.push_back("maps: " + to_maps_line(*r.sample->mapping));
  return out;
}

Hexdump record_dump(const Record& r, std::vector<Hexdump::Mark> marks) {
  constexpr std::uint64_t kShown = 96;
  Hexdump dump;
  dump.title = "record at " + hex_text(r.sample->value);
  const std::uint64_t wanted = sizeof(abi::ThreadRecordHead) + r.head.attrs_data_size;
  const std::uint64_t first = marks.empty() ? 0 : marks.front().offset;
  const std::uint64_t from = first < kShown - 16 ? 0 : (first - 32) / 16 * 16;
  const std::uint64_t end =
      std::min<std::uint64_t>({r.bytes.size(), from + kShown, std::max(wanted, first + 16)});
  dump.address = r.sample->value + from;
  for (std::uint64_t i = from; i < end; ++i) {
    dump.bytes.push_back(std::to_integer<std::uint8_t>(r.bytes[i]));
  }
  for (auto& m : marks) {
    if (m.offset < from || m.offset - from >= dump.bytes.size()) continue;
    m.offset -= from;
    m.length = std::min<std::uint64_t>(m.length, dump.bytes.size() - m.offset);
    dump.marks.push_back(std::move(m));
  }
  return dump;
}

}  // namespace ctxconf::conformance
