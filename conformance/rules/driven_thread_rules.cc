// Requirements that need a program to be driven, OTEP 4947: what was attached, and what a reader
// sees on the thread after the answer.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& object, const char* name) {
  return object.contains(name) && object[name].is_string() ? object[name].get<std::string>() : "";
}

Finding attach_visible(const ImageEvidence& e) {
  std::size_t attached = 0;
  const auto& operations = e.session->operations;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    if (d.op != "thread.attach" || !d.ok || d.view == nullptr) continue;
    const ImageEvidence* image = e.session->image(d.view->image);
    const auto tid = e.session->thread(text_of(d.request, "thread"), i);
    if (image == nullptr || !tid) continue;
    const Slot slot = slot_at(*image, *d.view, *tid);
    if (slot.state == SlotState::kUnknown) continue;
    ++attached;
    if (slot.state == SlotState::kRecord) continue;
    Finding f = contradicted(
        fmt::format("after an attach thread {} shows {}", *tid,
                    slot.state == SlotState::kUnreadable ? "a record that cannot be read"
                    : slot.record == nullptr             ? "a null slot"
                                                         : "a record that is not valid"),
        "an attached context does not show");
    f.evidence = {request_line(d)};
    return f;
  }
  if (attached == 0) {
    return unobservable("no thread was looked at after an attach",
                        "an adapter that declares thread.attach");
  }
  return passed(fmt::format("{} contexts, each visible on its thread", attached));
}

constexpr auto kRules = std::to_array<NamedRule>({
    {"tctx.attach.visible", attach_visible},
});

}  // namespace

std::span<const NamedRule> driven_thread_rules() { return kRules; }

}  // namespace ctxconf::conformance
