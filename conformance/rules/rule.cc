#include "conformance/rules/rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace ctxconf::conformance {
namespace {

Finding finding(Outcome outcome, std::string saw, std::string signature) {
  Finding f;
  f.outcome = outcome;
  f.saw = std::move(saw);
  f.signature = std::move(signature);
  f.level = "snapshot";
  return f;
}

std::vector<std::uint8_t> octets(std::span<const std::byte> bytes) {
  std::vector<std::uint8_t> out;
  out.reserve(bytes.size());
  for (const std::byte b : bytes) out.push_back(std::to_integer<std::uint8_t>(b));
  return out;
}

}  // namespace

std::span<const RequirementRule> all_rules() {
  static const std::vector<RequirementRule> rules = [] {
    std::vector<RequirementRule> out;
    for (const auto group :
         {header_rules(), payload_rules(), publish_rules(), update_rules(), call_rules(),
          store_rules(), step_rules(), fault_rules(), tls_rules(), reference_data_rules(),
          record_rules(), driven_resource_rules(), driven_process_rules(), driven_fork_rules(),
          driven_thread_rules(), driven_record_rules(), driven_key_map_rules(),
          record_store_rules(), slot_step_rules()}) {
      out.insert(out.end(), group.begin(), group.end());
    }
    return out;
  }();
  return rules;
}

const RequirementRule& rule_of_refused_contexts() {
  return *std::ranges::find_if(all_rules(), &RequirementRule::reports_refused_contexts);
}

const RequirementRule* rule_of(std::string_view id) {
  const auto rules = all_rules();
  const auto it = std::ranges::find(rules, id, &RequirementRule::id);
  return it == rules.end() ? nullptr : &*it;
}

Finding passed(std::string saw) { return finding(Outcome::kPass, std::move(saw), {}); }

Finding failed(std::string saw, std::string signature) {
  return finding(Outcome::kFail, std::move(saw), std::move(signature));
}

Finding warned(std::string saw, std::string signature) {
  return finding(Outcome::kWarn, std::move(saw), std::move(signature));
}

Finding unnoticed(Finding failure) {
  failure.unnoticed = true;
  return failure;
}

Finding info(std::string saw, std::string signature) {
  return finding(Outcome::kInfo, std::move(saw), std::move(signature));
}

Finding unobservable(std::string why, std::string remedy) {
  Finding f = finding(Outcome::kUnobservable, std::move(why), {});
  f.level.clear();  // it rests on nothing
  f.remedy = std::move(remedy);
  return f;
}

Finding no_valid_header() {
  return unobservable("no valid header was seen",
                      "a header with signature, version 2 and a non-zero timestamp");
}

Finding not_applicable(NaReason reason, std::string why) {
  Finding f = finding(Outcome::kNa, std::move(why), {});
  f.level.clear();
  f.na_reason = reason;
  return f;
}

std::string hex_text(std::uint64_t value) { return fmt::format("{:#x}", value); }

std::string maps_line(const Context& context) {
  return "maps: " + to_maps_line(context.candidate->entries.front());
}

Hexdump header_dump(const Context& context, std::vector<Hexdump::Mark> marks) {
  Hexdump dump;
  dump.title = "header at " + hex_text(context.start());
  dump.address = context.start();
  if (context.head != nullptr) dump.bytes = octets(context.head->bytes);
  dump.marks = std::move(marks);
  return dump;
}

Hexdump payload_dump(const Context& context, std::uint64_t offset, std::uint64_t length,
                     std::string label) {
  constexpr std::uint64_t kShown = 64;
  Hexdump dump;
  dump.title = "payload at " + hex_text(context.address());
  if (context.payload_block == nullptr) return dump;
  const auto bytes = context.payload_bytes;
  offset = std::min<std::uint64_t>(offset, bytes.size());
  const std::uint64_t from = (offset > kShown / 2 ? offset - kShown / 2 : 0) / 16 * 16;
  const std::uint64_t shown = std::min<std::uint64_t>(kShown, bytes.size() - from);
  dump.address = context.address() + from;
  dump.bytes = octets(bytes.subspan(from, shown));
  const std::uint64_t at = offset - from;
  dump.marks.push_back({at, std::min(length, shown - std::min(shown, at)), std::move(label)});
  return dump;
}

}  // namespace ctxconf::conformance
