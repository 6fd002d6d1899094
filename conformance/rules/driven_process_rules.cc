// Requirements that need a program to be driven, OTEP 4719: what was asked of it, and what a
// reader sees after the answer.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <vector>

#include "conformance/payload/payload_walk.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/ending.h"
#include "conformance/rules/expected_resource.h"
#include "conformance/rules/header_mapping.h"
#include "conformance/rules/publications.h"
#include "conformance/rules/rule.h"
#include "conformance/rules/store_evidence.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

constexpr const char* kUpdatingAdapter = "an adapter that declares process.update";

bool is_idle(const DrivenOperation& d) { return d.operation->request.empty(); }

// ---- updates

// One that comes in the background may show after a wait.
Published shown_at_last(const SessionEvidence& session, std::size_t index) {
  Published out = published_at(session, session.operations[index]);
  for (std::size_t i = index + 1; i < session.operations.size(); ++i) {
    if (!is_idle(session.operations[i])) break;
    const Published later = published_at(session, session.operations[i]);
    if (later.image == out.image) out = later;
  }
  return out;
}

struct HeaderBytes {
  abi::ProcessHeader before{};
  abi::ProcessHeader after{};
};
std::optional<HeaderBytes> header_stored(const Image& image, const Store& s) {
  auto before = abi::decode_process_header(s.before);
  auto after = abi::decode_process_header(s.after);
  if (!before || !after) return std::nullopt;
  if (image.little_endian != (std::endian::native == std::endian::little)) {
    before = abi::byte_swapped(*before);
    after = abi::byte_swapped(*after);
  }
  return HeaderBytes{*before, *after};
}

// The stores to this header between two looks, in order.
std::vector<const Store*> stores_between(const Image& image, const ImageView& before,
                                         const ImageView& after, const Context& header) {
  std::vector<const Store*> out;
  for (const Store& s : image.stores) {
    const bool between = s.order > before.order && s.order <= after.order;
    if (between && s.header == header.start()) out.push_back(&s);
  }
  return out;
}

// Whether a timestamp was stored to this header between the looks before and after an operation.
bool shows_between(const SessionEvidence& session, std::size_t index, const Context& header) {
  const auto& operations = session.operations;
  const ImageView* view = operations[index].view;
  const ImageView* before = index == 0 ? nullptr : operations[index - 1].view;
  const ImageEvidence* e = view == nullptr ? nullptr : session.image(view->image);
  if (e == nullptr || before == nullptr || before->image != view->image) return false;
  const auto stores = stores_between(*e->image, *before, *view, header);
  return std::ranges::any_of(stores, [&](const Store* s) {
    const auto h = header_stored(*e->image, *s);
    return h && h->before.monotonic_published_at_ns == 0 && h->after.monotonic_published_at_ns != 0;
  });
}

// The look after this operation was in the middle of an update of its own: without a request it is
// done a little later.
bool shows_later(const SessionEvidence& session, std::size_t index) {
  const auto& operations = session.operations;
  const ImageView* view = operations[index].view;
  const ImageEvidence* e = view == nullptr ? nullptr : session.image(view->image);
  if (e == nullptr) return false;
  auto next = operations.begin() + static_cast<std::ptrdiff_t>(index) + 1;
  while (next != operations.end() && (is_idle(*next) || next->op == "bye")) {
    if (published_at(session, *next++).context != nullptr) return true;
  }
  const auto until = next == operations.end() ? UINT64_MAX : next->operation->sent_ns;
  return std::ranges::any_of(e->image->stores, [&](const Store& s) {
    if (s.order <= view->order || s.at_ns >= until) return false;
    const auto h = header_stored(*e->image, s);
    return h && h->after.monotonic_published_at_ns != 0;
  });
}

// The last store to the header between two looks left its timestamp at zero, and another thread
// than those made it.
bool is_at_work(const Image& image, const ImageView& before, const ImageView& after,
                const Context& header, const std::set<std::int32_t>& threads) {
  const auto stores = stores_between(image, before, after, header);
  if (stores.empty() || stores.back()->tid == 0 || threads.contains(stores.back()->tid))
    return false;
  const auto h = header_stored(image, *stores.back());
  return h && h->after.monotonic_published_at_ns == 0;
}

bool is_of_first_sdk(const DrivenOperation& d) {
  return !d.request.contains("sdk") || d.request["sdk"] == 1;
}

bool is_unchanged(const Context& was, const Context& now) {
  const auto* then = was.payload_block;
  const auto* block = now.payload_block;
  return now.start() == was.start() && now.header == was.header && then != nullptr &&
         block != nullptr && then->hash == block->hash;
}

// The Resource of the only process update in a parallel request that otherwise gives attributes to
// threads. Nothing: it is another request, or a part of it was not answered with ok.
std::optional<std::vector<Attribute>> update_next_to_threads(const DrivenOperation& d) {
  if (d.op != "parallel" || !d.ok) return std::nullopt;
  std::optional<std::vector<Attribute>> out;
  for (const auto& [request, reply, ok] : parts_of(d)) {
    if (!ok) return std::nullopt;
    if (says(request, "op", "process.update") && request.contains("resource") && !out) {
      out = taken_of(resource_of(request), reply);
    } else if (!says(request, "op", "thread.attach") && !says(request, "op", "thread.append")) {
      return std::nullopt;
    }
  }
  return out;
}

bool all_answered(const DrivenOperation& d) {
  return std::ranges::all_of(parts_of(d), &RequestPart::ok);
}

// Removes those that showed otherwise before this update, or were missing and still are:
// pctx.payload.resource-matches-sdk speaks of them.
ExpectedResource without_changed(ExpectedResource expected, const ExpectedResource& before,
                                 const Published& was, const Published& now) {
  if (was.payload == nullptr) return expected;
  const auto is_changed = [&](const Attribute& a) {
    return std::ranges::any_of(std::array{&before.resource, &before.attributes}, [&](auto* list) {
      const Attribute* then = *list ? find_key(**list, a.key) : nullptr;
      const auto find_in = [&](const Published& p) {
        return list == &before.resource ? p.find_in_resource(a.key) : p.find(a.key);
      };
      const Attribute* there = find_in(was);
      if (then == nullptr) return false;
      return there == nullptr ? find_in(now) == nullptr : !is_same(*then, *there);
    });
  };
  for (auto* list : {&expected.resource, &expected.attributes}) {
    if (*list) std::erase_if(**list, is_changed);
  }
  return expected;
}

// A record may bring names, for which the program publishes its context anew.
bool may_publish_names(const DrivenOperation& d) {
  return d.ok && (d.op == "thread.attach" || d.op == "thread.append");
}

// What was given and was published before the operation, and is not any more.
std::optional<Finding> lost_with_names(const DrivenOperation& d, const ExpectedResource& given,
                                       const Published& was, const Published& now) {
  if (was.payload == nullptr || was.contexts != 1 || was.image != now.image) return std::nullopt;
  if (now.payload == nullptr || is_unchanged(*was.context, *now.context)) return std::nullopt;
  const ExpectedResource there = without_changed(given, given, was, now);
  const Attribute* lost = first_missing(there, now);
  if (lost == nullptr) return std::nullopt;
  Finding f = failed(fmt::format("after {} the context shows {}, but {} was given", d.op,
                                 shown(now.find(lost->key)), shown(lost)),
                     "an attribute was lost when new names were published");
  f.evidence = {request_line(d), "before: " + shown(was.find(lost->key)), maps_line(*now.context)};
  return f;
}

constexpr const char* kNotVisible = "an accepted change is not visible";

// What is published in the place of `lost`, as the end of a sentence.
std::string shown_instead(const Attribute& lost, const Published& now) {
  const Attribute* instead = now.find(lost.key);
  if (instead == nullptr) return fmt::format("{} is not there", conformance::quoted(lost.key));
  if (now.find_in_resource(lost.key) == nullptr && is_same(*instead, lost)) {
    return shown(instead) + " is in field 2, and not in the Resource";
  }
  return fmt::format("the context shows {}, but {} was given", shown(instead), shown(&lost));
}

// Reports a context that can be read after a withdrawal that was accepted.
std::optional<Finding> still_there(const DrivenOperation& d, const Published& was,
                                   const Published& now, bool second_sdk) {
  if (now.context == nullptr) return std::nullopt;
  const bool unchanged = is_unchanged(*was.context, *now.context);
  // A header over a payload that is gone is for pctx.drop.no-dead-payload.
  if (!unchanged && (second_sdk || !now.context->is_decoded())) return std::nullopt;
  Finding f = failed(unchanged ? "after the withdrawal the context is still there, unchanged"
                               : "after the withdrawal there is a context",
                     kNotVisible);
  f.evidence = {request_line(d), "before: " + maps_line(*was.context), maps_line(*now.context)};
  return f;
}

// Updates that a parallel request made, all accepted: one of them shows, or two are mixed, which is
// for pctx.update.one-writer-at-a-time. Counts them in `updates`.
std::optional<Finding> none_of_parallel(const DrivenOperation& d, const ExpectedResource& given,
                                        const Published& was, const Published& now,
                                        std::size_t& updates) {
  const auto resources = resources_at_once(d, "process.update");
  if (resources.empty() || !all_answered(d)) return std::nullopt;
  if (was.contexts != 1 || now.contexts != 1 || was.image != now.image || now.payload == nullptr) {
    return std::nullopt;
  }
  std::optional<Attribute> lost;
  for (const auto& resource : resources) {
    ExpectedResource one;
    one.resource = resource;
    one = without_changed(std::move(one), given, was, now);
    const Attribute* missing = first_missing(one, now);
    if (missing == nullptr) {
      if (!one.resource->empty()) updates += resources.size();
      return std::nullopt;
    }
    if (!lost) lost = *missing;
  }
  if (is_mixture(resources, now)) return std::nullopt;
  Finding f = failed("after parallel updates " + shown_instead(*lost, now), kNotVisible);
  f.evidence = {request_line(d), "before: " + shown(was.find(lost->key)), maps_line(*now.context)};
  return f;
}

// Many updates, all accepted, and the name that shows is not the last one.
std::optional<Finding> not_churned(const DrivenOperation& d, const Published& was,
                                   const Published& now) {
  if (d.op != "process.churn" || !d.ok) return std::nullopt;
  const auto iterations = d.request.find("iterations");
  if (iterations == d.request.end() || !iterations->is_number_unsigned() || *iterations == 0) {
    return std::nullopt;
  }
  if (was.contexts != 1 || now.contexts != 1 || was.image != now.image) return std::nullopt;
  const Attribute* name = now.find_in_resource("service.name");
  if (was.payload == nullptr || name == nullptr) return std::nullopt;
  const auto end = fmt::format("-{:010}", iterations->get<std::uint64_t>());
  if (name->value.ends_with(end)) return std::nullopt;
  const bool unchanged = was.context->payload_block->hash == now.context->payload_block->hash;
  Finding f = failed(
      unchanged ? "after many updates the context has the payload that it had before"
                : fmt::format("after many updates the context shows {}; the value should end in {}",
                              shown(name), conformance::quoted(end)),
      kNotVisible);
  f.evidence = {request_line(d), "before: " + maps_line(*was.context), maps_line(*now.context)};
  return f;
}

bool has_name(const ExpectedResource& given, const Published& was) {
  if (was.payload == nullptr || !given.resource) return false;
  const Attribute* name = find_key(*given.resource, "service.name");
  const Attribute* there = was.find_in_resource("service.name");
  return name != nullptr && there != nullptr && is_same(*name, *there);
}

Finding nothing_left(const DrivenOperation& at_once, const Published& now) {
  Finding f = failed("concurrent first publications left nothing published", kNotVisible);
  f.evidence = {request_line(at_once), "after another publication: " + maps_line(*now.context)};
  return f;
}

// Follows a session, and judges the context after each change that was accepted.
class VisibleChanges {
 public:
  explicit VisibleChanges(const SessionEvidence& session) : session_(session) {}

  // Call it for each operation of the session, in order. Returns what is wrong after it.
  std::optional<Finding> judge(std::size_t index) {
    const DrivenOperation& d = session_.operations[index];
    was_ = std::exchange(now_, published_at(session_, d));
    was_given_ = expected_;
    shown_before_.add(was_given_, was_);
    expected_.apply(d);
    if (d.op == "hello") {
      begun_ = false;
      at_once_ = nullptr;
    }
    if (!begun_ && !publications_at_once(d).empty()) at_once_ = &d;
    second_ = second_ || d.op == "sdk.load";
    had_begun_ = std::exchange(begun_, begun_ || now_.context != nullptr);
    if (auto resource = update_next_to_threads(d); resource && was_.context != nullptr) {
      expected_.resource = std::move(resource);
      expected_.nothing_taken = expected_.resource->empty();
      return lost_next_to_threads(d);
    }
    if (auto lost = none_of_parallel(d, was_given_, was_, now_, updates_)) return lost;
    takes_name_ = takes_name_ || has_name(was_given_, was_);
    if (takes_name_) {
      if (auto lost = not_churned(d, was_, now_)) return lost;
    }
    if (may_publish_names(d)) return lost_with_names(d, expected_, was_, now_);
    return lost_after_change(index);
  }

  Finding all_visible() const {
    if (updates_ == 0 && nothing_taken_) return nothing_was_taken();
    if (updates_ == 0) {
      return unobservable("no update was answered while a context was there", kUpdatingAdapter);
    }
    return passed(fmt::format("{} updates, each visible when it was answered", updates_));
  }

 private:
  std::optional<Finding> lost_next_to_threads(const DrivenOperation& d) {
    if (now_.payload == nullptr || now_.contexts > 1 || expected_.nothing_taken) {
      return std::nullopt;
    }
    ++updates_;
    const Attribute* lost = first_missing(expected_, now_);
    if (lost == nullptr) return std::nullopt;
    Finding f =
        failed("after the update while threads worked " + shown_instead(*lost, now_), kNotVisible);
    f.evidence = {request_line(d), maps_line(*now_.context)};
    return f;
  }

  std::optional<Finding> lost_after_change(std::size_t index) {
    const DrivenOperation& d = session_.operations[index];
    const bool updates_it = d.op == "process.update";
    const bool publishes_first = d.op == "process.publish" && !had_begun_ && at_once_ != nullptr;
    const bool publishes = d.op == "process.publish" && had_begun_ && is_of_first_sdk(d);
    const bool drops = d.op == "process.drop" && was_.context != nullptr;
    const bool is_judged = updates_it || publishes || publishes_first || drops;
    if (!is_judged || !d.ok || now_.image == nullptr) return std::nullopt;
    if (was_.contexts > 1 || (second_ && was_.context == nullptr)) return std::nullopt;
    const Published now = updates_it ? now_ : shown_at_last(session_, index);
    if (publishes_first && now.context != nullptr && !was_.has_mappings) {
      return nothing_left(*at_once_, now);
    }
    if (drops) return still_there(d, was_, now, second_);
    if (!expected_.resource && !expected_.attributes) return std::nullopt;
    const std::string after = updates_it ? "after the update" : "after another publication";
    // Both samples may have met an update that a thread of the SDK makes by itself.
    const bool still_zero = publishes && was_.zeroed != nullptr && now.zeroed != nullptr &&
                            now.context == nullptr && was_.context == nullptr &&
                            !shows_between(session_, index, *now.zeroed) &&
                            !shows_later(session_, index);
    if (still_zero || ((was_.context != nullptr || publishes) && !now.has_mappings)) {
      Finding f = failed(after + (still_zero                ? " the timestamp is still zero"
                                  : was_.context == nullptr ? " nothing is published"
                                                            : " the context is gone"),
                         kNotVisible);
      f.evidence = {request_line(d)};
      if (was_.context != nullptr) f.evidence.push_back("before: " + maps_line(*was_.context));
      return f;
    }
    const bool is_first = (publishes || publishes_first) && was_.context == nullptr;
    if (now.payload == nullptr || is_first) return std::nullopt;
    return lost_attribute(d, now, after);
  }

  std::optional<Finding> lost_attribute(const DrivenOperation& d, const Published& now,
                                        const std::string& after) {
    if (expected_.nothing_taken && (!expected_.attributes || expected_.attributes->empty())) {
      nothing_taken_ = true;
      return std::nullopt;
    }
    const ExpectedResource asked = without_changed(expected_, was_given_, was_, now);
    if ((!asked.resource || asked.resource->empty()) &&
        (!asked.attributes || asked.attributes->empty())) {
      return std::nullopt;
    }
    ++updates_;
    const Attribute* lost = first_missing(asked, now, /*every=*/false, &shown_before_);
    if (lost == nullptr) return std::nullopt;
    Finding f = failed(after + " " + shown_instead(*lost, now), kNotVisible);
    const Attribute* old = was_.find(lost->key);
    f.evidence = {request_line(d), "before: " + shown(old), maps_line(*now.context)};
    return f;
  }

  const SessionEvidence& session_;
  ExpectedResource expected_;
  ExpectedResource was_given_;  // before the operation
  Published now_;
  Published was_;
  std::size_t updates_ = 0;
  bool begun_ = false;  // a context was there since the process began
  bool had_begun_ = false;
  bool second_ = false;  // a second SDK was loaded
  bool nothing_taken_ = false;
  bool takes_name_ = false;                   // a service.name that was given showed
  const DrivenOperation* at_once_ = nullptr;  // first publications, all accepted
  ShownBefore shown_before_;
};

Finding update_visible(const ImageEvidence& e) {
  VisibleChanges changes(*e.session);
  for (std::size_t i = 0; i < e.session->operations.size(); ++i) {
    if (auto wrong = changes.judge(i)) return *std::move(wrong);
  }
  return changes.all_visible();
}

bool says_keys(const Json& capabilities) {
  const auto publish = capabilities.find("process.publish");
  return publish != capabilities.end() && publish->is_object() && publish->contains("keys");
}

// The SDK does not take whatever key is given.
bool has_few_keys(const SessionEvidence& session) {
  if (says_keys(session.capabilities)) return true;
  return std::ranges::any_of(session.operations, [](const DrivenOperation& d) {
    return d.ok && (d.op == "process.publish" || d.op == "process.update") &&
           (!list_member(d.reply, "left_out").empty() || d.reply.contains("taken"));
  });
}

Finding update_complete_state(const ImageEvidence& e) {
  ExpectedResource expected;
  Published before;
  std::size_t removals = 0;
  std::set<std::uint64_t> sizes;
  for (std::size_t i = 0; i < e.session->operations.size(); ++i) {
    const DrivenOperation& d = e.session->operations[i];
    const auto was = before;
    before = published_at(*e.session, d);
    expected.apply(d);
    const bool replaces = d.op == "process.publish" && is_of_first_sdk(d) && was.contexts == 1 &&
                          was.image != nullptr;
    if ((d.op != "process.update" && !replaces) || !d.ok) continue;
    const Published now = replaces ? shown_at_last(*e.session, i) : before;
    if (now.context == nullptr || now.image != was.image || !expected.is_known()) continue;
    const Context& c = *now.context;
    const auto size_line = [&] {
      return fmt::format("payload_size {}, before {}", c.header.payload_size,
                         was.context == nullptr ? 0 : was.context->header.payload_size);
    };
    const bool broken = c.payload != nullptr && c.payload->problem != PayloadProblem::kNone;
    if (broken && !replaces && was.payload != nullptr) {
      Finding f = failed("after an update the message does not decode: " + c.payload->detail,
                         "the state after an update does not decode");
      f.evidence = {request_line(d), size_line(), maps_line(c)};
      f.hexdumps = {header_dump(c, {{12, 4, "payload_size"}})};
      return f;
    }
    // Whether it shows at all is pctx.update.visible.
    if (now.payload == nullptr || first_missing(expected, now, /*every=*/true) != nullptr) continue;
    if (!replaces) sizes.insert(c.header.payload_size);
    for (const Attribute& gone : expected.removed) {
      if (!replaces) ++removals;
      const Attribute* still = now.find(gone.key);
      // The SDK may have a value of its own for what is not given.
      const bool is_ours = gone.key.starts_with("ctxconf.");
      if (still == nullptr || (!is_ours && !is_same(*still, gone))) continue;
      Finding f = failed(fmt::format("{} was {} and {} is still published", shown(&gone),
                                     replaces ? "not given again" : "removed", shown(still)),
                         "a removed attribute is still published");
      f.evidence = {request_line(d), size_line(), maps_line(c)};
      f.hexdumps = {payload_dump(c, still->offset, 1, "the removed attribute")};
      return f;
    }
  }
  if (removals == 0 && has_few_keys(*e.session)) {
    if (sizes.size() > 1) {
      return passed(fmt::format("{} sizes; no key that the SDK lets a program set was removed",
                                sizes.size()));
    }
    return not_applicable(NaReason::kCapability,
                          "no key was changed that the SDK lets a program set");
  }
  if (removals == 0 || sizes.size() < 2) {
    return unobservable(
        "there was no update that removed an attribute, or none that changed the size",
        kUpdatingAdapter);
  }
  return passed(fmt::format("{} sizes; removed attributes are gone", sizes.size()));
}

// ---- publication

Finding existing_becomes_update(const ImageEvidence& e) {
  std::size_t judged = 0;
  std::size_t refused = 0;
  const DrivenOperation* last = nullptr;
  for (const DrivenOperation& d : e.session->operations) {
    const DrivenOperation* before = std::exchange(last, &d);
    if (before == nullptr || before->view == nullptr || d.view == nullptr) continue;
    if (d.op != "process.publish" || before->view->image != d.view->image) continue;
    if (d.request.contains("sdk") && d.request["sdk"] != 1) continue;
    const Published was = published_at(*e.session, *before);
    const Published now = published_at(*e.session, d);
    // With several of them it is not known which one is to change.
    if (was.contexts != 1 || now.image == nullptr) continue;
    if (!d.ok && d.reply.is_null()) continue;
    // Accepted, and nothing was done.
    const bool ignored =
        d.ok && now.context != nullptr && now.context->header == was.context->header;
    if (!ignored) ++(d.ok ? judged : refused);
    auto remade = made_anew("a second publication", *before, d, was, now);
    if (!remade) continue;
    if (!d.ok) remade->saw += ", although it was refused";
    remade->signature = "published anew instead of updated";
    return *std::move(remade);
  }
  if (judged + refused == 0) {
    return unobservable(
        "no second publication was seen that changed a context or was refused",
        "an adapter that declares process.publish, and changes the context or refuses the request");
  }
  if (!e.image->calls_unseen.empty()) {
    return unobservable(e.image->calls_unseen, "a host where ctxconf can stop system calls");
  }
  Finding f = passed(judged == 0 ? "a second publication was refused and left the first as it was"
                                 : fmt::format("{} second publications kept the mapping", judged));
  f.level = "syscalls";
  return f;
}

// The first look of [from, until) that showed a context; 0: none.
std::uint64_t first_context_ns(const ImageEvidence& image, std::uint64_t from,
                               std::uint64_t until) {
  for (const auto& list : image.contexts) {
    for (const Context& c : list) {
      if (!c.candidate->named || !c.usable()) continue;
      const auto seen = std::max(c.snapshot->first_seen_ns, from);
      if (c.snapshot->last_seen_ns >= from && seen < until) return seen;
    }
  }
  return 0;
}

Finding publish_on_init(const ImageEvidence& e) {
  constexpr std::uint64_t kShortly = 2'700'000'000;
  const auto& operations = e.session->operations;
  const auto first = std::ranges::find_if(
      operations, [](const DrivenOperation& d) { return d.op == "process.publish"; });
  const auto silent = [](std::string why) {
    return unobservable(std::move(why), "an adapter that declares process.publish");
  };
  if (first == operations.end() || !first->ok) return silent("the SDK was not initialised");
  const Published now = published_at(*e.session, *first);
  if (now.image == nullptr) return silent("no snapshot was taken after the initialisation");
  if (now.context != nullptr) return passed("a context was there when the SDK was initialised");
  auto next = first + 1;
  while (next != operations.end() && is_idle(*next)) ++next;
  const std::uint64_t from = first->operation->answered_ns;
  const std::uint64_t until =
      next != operations.end() ? next->operation->sent_ns : (next - 1)->operation->answered_ns;
  const auto seen = first_context_ns(*now.image, from, until);
  if (seen != 0) {
    return passed(fmt::format("a context was there {:.0f} ms after the SDK was initialised",
                              static_cast<double>(seen - from) / 1e6));
  }
  if (now.has_mappings)
    return silent("what was published is not valid: another requirement reports it");
  if (until < from + kShortly) {
    return silent("no context was seen after the initialisation, and ctxconf did not wait for it");
  }
  const auto later = first_context_ns(*now.image, until, UINT64_MAX);
  Finding f = failed(fmt::format("no context for {:.1f} s after the SDK was initialised{}",
                                 static_cast<double>(until - from) / 1e9,
                                 later == 0 ? "" : fmt::format("; one came with {}", next->op)),
                     "no context after the initialisation");
  f.evidence = {request_line(*first)};
  return f;
}

Finding available_while_idle(const ImageEvidence& e) {
  ExpectedResource expected;
  std::size_t judged = 0;
  std::uint64_t longest = 0;
  const auto& operations = e.session->operations;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    expected.apply(d);
    if (!is_idle(d) || i == 0) continue;
    const Published was = published_at(*e.session, operations[i - 1]);
    const Published now = published_at(*e.session, d);
    if (was.payload == nullptr || now.image == nullptr || was.image != now.image) continue;
    ++judged;
    const std::uint64_t idle = d.operation->answered_ns - d.operation->sent_ns;
    longest = std::max(longest, idle);
    const auto at = fmt::format("after {} ms without a request", idle / 1'000'000);
    std::string saw;
    if (now.context == nullptr) {
      const bool next_shows = i + 1 < operations.size() &&
                              published_at(*e.session, operations[i + 1]).context != nullptr;
      if (now.has_mappings && (next_shows || shows_later(*e.session, i))) continue;
      saw = at + " no valid context is there";
    } else if (now.payload == nullptr) {
      saw = at + " the payload can no longer be decoded";
    } else if (const Attribute* lost = first_missing(expected, now)) {
      // It may have been missing all along.
      if (first_missing(expected, was) != nullptr) continue;
      saw = fmt::format("{} the context shows {}; before, it showed {}", at,
                        shown(now.find(lost->key)), shown(lost));
    } else {
      continue;
    }
    Finding f = failed(std::move(saw), "the context disappeared while the process was idle");
    f.evidence = {"before: " + maps_line(*was.context),
                  "last request: " + request_line(operations[i - 1])};
    f.hexdumps = {header_dump(*was.context, {})};
    if (now.context != nullptr) f.hexdumps.push_back(header_dump(*now.context, {}));
    return f;
  }
  if (judged == 0) {
    return unobservable("the process was never left idle with a context",
                        "an adapter that declares process.publish");
  }
  return passed(fmt::format("the same after {} ms without a request", longest / 1'000'000));
}

// ---- withdrawal

// What became of the payload `was`, as a later block of the same range shows it; empty: nothing, or
// not known. No more than `limit` bytes of it were read.
std::string harm(const MemoryBlock& was, const MemoryBlock* now, std::uint64_t limit) {
  if (was.wanted > limit) return "";
  if (now == nullptr || now->readable < was.readable) {
    return fmt::format("gone ({} of {} bytes can be read)", now == nullptr ? 0 : now->readable,
                       was.wanted);
  }
  return same_bytes(was, *now) == false ? "overwritten" : "";
}

Finding no_dead_payload(const ImageEvidence& e) {
  constexpr std::size_t kShown = 16;
  constexpr std::uint64_t kReadAtStore = std::uint64_t{64} << 10U;
  constexpr std::uint64_t kReadAtSample = std::uint64_t{64} << 20U;
  std::size_t judged = 0;
  std::size_t contended = 0;
  const DrivenOperation* last = nullptr;
  for (const DrivenOperation& d : e.session->operations) {
    const DrivenOperation* before = std::exchange(last, &d);
    if (d.op != "process.drop" || before == nullptr || before->view == nullptr) continue;
    const Published was = published_at(*e.session, *before);
    if (was.payload == nullptr) continue;
    const Context& c = *was.context;
    const MemoryBlock& payload = *c.payload_block;
    const Image& image = *was.image->image;
    const std::uint64_t from = before->view->order;
    const std::uint64_t to =
        d.view != nullptr && d.view->image == before->view->image ? d.view->order : UINT64_MAX;
    const auto evidence = [&](Finding f) {
      f.level = "stores";
      f.evidence = {request_line(d), "before: " + maps_line(c)};
      for (const Store& s : image.stores) {
        const auto h = header_stored(image, s);
        if (!h || s.header != c.start() || s.order <= from || s.order > to) continue;
        if (f.evidence.size() >= kShown) break;
        f.evidence.push_back(fmt::format(
            "store: monotonic_published_at_ns {} -> {}, payload {:#x} -> {:#x}, thread {}",
            h->before.monotonic_published_at_ns, h->after.monotonic_published_at_ns,
            h->before.payload, h->after.payload, s.tid));
      }
      for (const SystemCall* call : calls_between(image, from, to)) {
        if (f.evidence.size() < kShown) f.evidence.push_back(call_line(*call));
      }
      return f;
    };
    const Published now = published_at(*e.session, d);
    const bool withdrawn = d.ok && (now.context == nullptr || now.context->header != c.header ||
                                    now.context->start() != c.start());
    if (withdrawn) ++judged;
    // When the timestamp went to zero the payload had to be there still.
    for (const Store& s : image.stores) {
      if (s.header != c.start() || s.order <= from || s.order > to) continue;
      const auto h = header_stored(image, s);
      if (!h || h->before != c.header || h->after.monotonic_published_at_ns != 0) continue;
      const bool same_location =
          h->after.payload == c.header.payload && h->after.payload_size == c.header.payload_size;
      if (!same_location) continue;
      const auto what = harm(payload, s.payload ? &*s.payload : nullptr, kReadAtStore);
      if (what.empty()) continue;
      // Another thread may have seen the zero, and acted on it.
      if (s.tid == 0 || s.threads != 1) {
        ++contended;
        continue;
      }
      Finding f = evidence(
          failed("the payload was " + what + " before the timestamp became zero", "dead payload"));
      f.event = {s.header, s.order, {}};
      return f;
    }
    // The payload must stay readable while the header is unchanged.
    for (const auto& list : was.image->contexts) {
      for (const Context& later : list) {
        if (!later.candidate->named || !later.usable() || later.start() != c.start() ||
            later.header != c.header || later.snapshot->last_seen_ns < d.operation->sent_ns) {
          continue;
        }
        // The memory of a process that is about to end goes in some order.
        if (begins_at_exit(*later.snapshot)) continue;
        const auto what = harm(payload, later.payload_block, kReadAtSample);
        if (what.empty()) continue;
        Finding f = evidence(failed(
            "after the withdrawal the header is valid and its payload is " + what, "dead payload"));
        f.hexdumps = {header_dump(later, {{16, 8, "timestamp: not zero"}}),
                      payload_dump(later, 0, 16, "now")};
        return f;
      }
    }
  }
  if (judged == 0) {
    return unobservable("no context was withdrawn", "an adapter that declares process.drop");
  }
  if (contended == judged) {
    return unobservable("another thread may have seen the zero before the payload was read",
                        "an adapter that withdraws while no other thread runs");
  }
  Finding f = passed(fmt::format("{} withdrawals", judged));
  f.level = "stores";
  return f;
}

// ---- several writers

Finding one_writer_at_a_time(const ImageEvidence& e) {
  const auto& operations = e.session->operations;
  std::size_t updates = 0;
  std::size_t seen = 0;
  for (std::size_t i = 1; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    const auto expected = resources_at_once(d, "process.update");
    const ImageView* before = operations[i - 1].view;
    if (expected.size() < 2 || d.view == nullptr || before == nullptr) continue;
    const Published now = published_at(*e.session, d);
    if (now.image == nullptr || before->image != d.view->image) continue;
    updates += expected.size();
    for (const HeaderOperation& op : header_history_of(*now.image).operations) {
      if (op.kind != HeaderOperation::Kind::kUpdate || !op.was_zeroed() || !op.is_announced()) {
        continue;
      }
      const auto order = op.announcing().store->order;
      if (order <= before->order || order > d.view->order) continue;
      ++seen;
      if (const HeaderStore* by = store_of_another_writer(op)) {
        return wrong_store(*now.image->image, op, *by,
                           fmt::format("thread {} stored into the update of thread {}",
                                       by->store->tid, op.stores[op.zero_first].store->tid),
                           "two updates at once");
      }
    }
    if (now.payload == nullptr || !all_answered(d)) continue;
    const bool one_of_them = std::ranges::any_of(expected, [&](const auto& attributes) {
      return std::ranges::all_of(attributes, [&](const Attribute& a) {
        const Attribute* there = now.find_in_resource(a.key);
        return there != nullptr && is_same(*there, a);
      });
    });
    // Other values do not make a mixture; pctx.update.visible speaks of them.
    if (one_of_them || !is_mixture(expected, now)) continue;
    std::vector<std::string> found;
    for (const Attribute& a : expected.front()) found.push_back(shown(now.find(a.key)));
    Finding f =
        failed("after parallel updates the context matches none of them", "two updates at once");
    f.evidence = {request_line(d), maps_line(*now.context)};
    f.evidence.insert(f.evidence.end(), found.begin(), found.end());
    return f;
  }
  constexpr const char* kRemedy = "an adapter that declares process.update and process.parallel";
  if (updates == 0) return unobservable("no parallel updates were requested", kRemedy);
  if (!e.image->stores_unseen.empty()) {
    return unobservable(e.image->stores_unseen, "a host with watchpoints for tracers");
  }
  if (seen == 0) return unobservable("no stores of the parallel updates were seen", kRemedy);
  Finding f =
      passed(fmt::format("{} parallel updates led to {}, each by one thread", updates, seen));
  f.level = "stores";
  return f;
}

// ---- failures

// The calls whose results were injected in the last operation, if there was no reply to it.
std::vector<std::string> injected_at_the_end(const ImageEvidence& e) {
  std::vector<std::string> out;
  const auto& operations = e.session->operations;
  if (operations.size() < 2 || operations.back().op != "process.update") return out;
  const ImageView* before = operations[operations.size() - 2].view;
  if (!operations.back().operation->reply.empty() || before == nullptr) return out;
  for (const SystemCall* c : calls_between(*e.image, before->order, UINT64_MAX)) {
    if (c->injected && c->name == "mmap") out.push_back(call_line(*c));
  }
  return out;
}

std::optional<Finding> ended_without_memory(const ImageEvidence& e) {
  auto calls = injected_at_the_end(e);
  if (calls.empty()) return std::nullopt;
  Finding f = info("the process ended (" + e.session->session->ending.text +
                       ") while memory was refused; its runtime may have asked for that memory too",
                   "ended without memory");
  f.level = "syscalls";
  f.evidence = std::move(calls);
  f.evidence.push_back(request_line(e.session->operations.back()));
  return f;
}

Finding failure_recoverable(const ImageEvidence& e) {
  std::size_t refused = 0;
  const auto& operations = e.session->operations;
  for (std::size_t i = 1; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    const ImageView* before = operations[i - 1].view;
    if (d.op != "process.update" || d.view == nullptr || before == nullptr) continue;
    const Published was = published_at(*e.session, operations[i - 1]);
    const Published now = published_at(*e.session, d);
    if (was.context == nullptr || now.image == nullptr || was.image != now.image) continue;
    std::vector<std::string> calls;
    std::set<std::int32_t> callers;
    for (const SystemCall* c : calls_between(*now.image->image, before->order, d.view->order)) {
      if (!c->injected || c->result.value_or(0) >= 0) continue;
      calls.push_back(call_line(*c));
      callers.insert(c->tid);
    }
    if (calls.empty()) continue;
    ++refused;
    const auto wrong = [&](std::string saw, std::string signature) {
      Finding f = failed(std::move(saw), std::move(signature));
      f.level = "syscalls";
      f.evidence = calls;
      f.evidence.push_back(request_line(d));
      f.evidence.push_back("before: " + maps_line(*was.context));
      f.hexdumps = {header_dump(*was.context, {})};
      return f;
    };
    // A thread of the SDK may have been in the middle of another update.
    if (const Context* zero = now.zeroed;
        zero != nullptr && !is_at_work(*now.image->image, *before, *d.view, *zero, callers) &&
        !shows_later(*e.session, i)) {
      Finding f =
          wrong("after an update that failed the timestamp is zero", "timestamp left at zero");
      f.hexdumps.push_back(header_dump(*zero, {{16, 8, "timestamp: zero"}}));
      return f;
    }
    // After a failed update the program must be able to publish again.
    std::size_t next = i + 1;
    bool tried = false;
    bool recovered = false;
    for (; next < operations.size() && !recovered; ++next) {
      const bool again =
          operations[next].op == "process.update" || operations[next].op == "process.publish";
      tried = tried || (again && !operations[next].reply.is_null());
      const Published there = published_at(*e.session, operations[next]);
      const Attribute* name = find_key(operations[next].resource, "service.name");
      const Attribute* seen = there.payload == nullptr ? nullptr : there.find("service.name");
      const bool under_way =
          there.context == nullptr && there.has_mappings &&
          ((there.zeroed != nullptr && shows_between(*e.session, next, *there.zeroed)) ||
           shows_later(*e.session, next));
      const bool shows = there.context != nullptr &&
                         (name == nullptr || (seen != nullptr && is_same(*name, *seen)));
      recovered = operations[next].ok && again && (shows || under_way);
    }
    if (tried && !recovered) {
      return wrong("after a failed update nothing more could be published",
                   "no context after a failed update");
    }
  }
  if (auto ended = ended_without_memory(e)) return *std::move(ended);
  if (refused == 0) {
    return unobservable("no call failed during an update",
                        "an adapter that declares process.update, on a host where ctxconf can "
                        "answer system calls");
  }
  Finding f = passed(fmt::format("{} updates in which a call failed", refused));
  f.level = "syscalls";
  return f;
}

constexpr auto kDrivenProcessRules = std::to_array<RequirementRule>({
    {.id = "pctx.publish.existing-becomes-update",
     .rule = existing_becomes_update,
     .asked_of = AskedOf::kTestee,
     .rests_on = RestsOn::kOperations,
     .rests_on_other_calls = true},
    {"pctx.publish.on-init", publish_on_init, AskedOf::kTestee, RestsOn::kOperations},
    {"pctx.publish.available-while-idle", available_while_idle, AskedOf::kTestee,
     RestsOn::kOperations},
    {"pctx.drop.no-dead-payload", no_dead_payload, AskedOf::kTestee, RestsOn::kOperations},
    {"pctx.update.visible", update_visible, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudgedIfOnlyTimes},
    {"pctx.update.complete-state", update_complete_state, AskedOf::kTestee, RestsOn::kOperations},
    {"pctx.update.failure-recoverable", failure_recoverable, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kItsSubject},
    {"pctx.update.one-writer-at-a-time", one_writer_at_a_time, AskedOf::kTestee,
     RestsOn::kOperations},
});

}  // namespace

std::span<const RequirementRule> driven_process_rules() { return kDrivenProcessRules; }

}  // namespace ctxconf::conformance
