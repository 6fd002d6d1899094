// Requirements that need a program to be driven, OTEP 4947: which context a thread shows after it
// was attached, ended, moved or forked.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>

#include "conformance/payload/payload_walk.h"
#include "conformance/rules/churned_contexts.h"
#include "conformance/rules/driven_attributes.h"
#include "conformance/rules/driven_threads.h"
#include "conformance/rules/slot_step_rules.h"
#include "conformance/rules/thread_rules.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMostLines = 12;

std::string ids_of(const Record& r) {
  return fmt::format("trace id {}, span id {}", trace_id_of(r), span_id_of(r));
}
std::string ids_of(const ExpectedContext& c) {
  return c.has_ids() ? fmt::format("trace id {}, span id {}", c.trace_id, c.span_id)
                     : std::string("no ids");
}

std::string seen_on(const DrivenSample& sample) {
  switch (sample.slot.state) {
    case SlotState::kRecord:
      return ids_of(*sample.slot.record);
    case SlotState::kUnreadable:
      return "a record that cannot be read";
    case SlotState::kNone:
      return sample.slot.record == nullptr ? "a null slot" : "a record that is not valid";
    case SlotState::kUnknown:
      break;
  }
  return "nothing known";
}

Finding against(const DrivenSample& sample, std::string saw, std::string signature) {
  Finding f = failed(std::move(saw), std::move(signature));
  f.evidence = {"after " + request_line(*sample.driven)};
  if (sample.slot.record != nullptr) {
    for (auto& line : record_lines(*sample.slot.record)) f.evidence.push_back(std::move(line));
    f.hexdumps = {record_dump(*sample.slot.record, {})};
  }
  return f;
}

// The slot leads to a record, valid or not.
std::optional<std::uint64_t> address_of(const DrivenSample& sample) {
  if (sample.slot.record == nullptr) return std::nullopt;
  return sample.slot.record->sample->value;
}

bool is_of(const DrivenSample& sample, std::string_view op) {
  return sample.driven->ok && sample.driven->op == op &&
         sample.driven->of_thread(sample.thread.name);
}

// ---- attach

// Another thread's slot leads to the same record, which tctx.tls.per-thread speaks of.
bool is_shared(const std::vector<DrivenSample>& samples, const DrivenSample& sample) {
  const auto address = address_of(sample);
  return address && std::ranges::any_of(samples, [&](const DrivenSample& other) {
           return other.operation == sample.operation && other.thread.tid != sample.thread.tid &&
                  address_of(other) == address;
         });
}

bool ends_what_is_published(const DrivenOperation& d) {
  return std::ranges::any_of(parts_of(d), [](const RequestPart& part) {
    const std::string op = text_member(part.request, "op");
    return op == "process.drop" || op == "process.publish";
  });
}

// Which attached contexts a thread may hide until it shows them again.
class HiddenContexts {
 public:
  explicit HiddenContexts(const SessionEvidence& session) : session_(&session) {}

  // Call it for samples in their order.
  bool may_be_hidden(const std::vector<DrivenSample>& samples, const DrivenSample& sample) {
    for (; heard_ <= sample.operation; ++heard_) {
      if (ends_what_is_published(session_->operations[heard_])) ended_ = heard_;
    }
    const auto& stack = sample.thread.stack;
    for (std::size_t i = 0; i + 1 < stack.size(); ++i) state_of(*stack[i], sample).covered = true;
    const ExpectedContext& c = *sample.context();
    State& state = state_of(c, sample);
    // tctx.attach.restores-outer speaks of one that was around another.
    if (sample.thread.ended != nullptr) state.covered = true;
    if (sample.shows_record()) {
      state = {.thread = sample.thread.name, .shown = sample.operation};
      return false;
    }
    state.shared = state.shared || is_shared(samples, sample);
    const bool ended = ended_ && (state.shown ? *ended_ > *state.shown : *ended_ >= c.attached_by);
    return state.covered || state.shared || ended;
  }
  bool has_shown(const DrivenSample& sample) {
    return state_of(*sample.context(), sample).shown.has_value();
  }

 private:
  struct State {
    std::string thread;
    bool covered = false;                             // by another, and not shown since
    bool shared = false;                              // the record, and not shown since
    std::optional<std::size_t> shown = std::nullopt;  // last, there
  };

  // One that moves is covered by none.
  State& state_of(const ExpectedContext& c, const DrivenSample& sample) {
    State& state = states_[{c.name, c.attached_by}];
    if (state.thread != sample.thread.name) state = {.thread = sample.thread.name};
    return state;
  }

  const SessionEvidence* session_;
  std::size_t heard_ = 0;             // operations
  std::optional<std::size_t> ended_;  // the process context, by this operation
  std::map<std::pair<std::string, std::size_t>, State> states_;
};

Finding attach_visible(const ImageEvidence& e) {
  const auto samples = driven_samples(e);
  HiddenContexts hidden(*e.session);
  std::set<std::pair<std::string, std::size_t>> shown;
  for (const auto& sample : samples) {
    const ExpectedContext* c = sample.context();
    if (c == nullptr) continue;
    const bool has_shown = hidden.has_shown(sample);
    const bool may_be_hidden = hidden.may_be_hidden(samples, sample);
    if (!has_to_show(e, sample)) continue;
    if (sample.shows_record()) shown.emplace(c->name, c->attached_by);
    if (sample.shows_record() || may_be_hidden) continue;
    const bool by_attach = c->attached_by == sample.operation;
    const bool by_move = !by_attach && sample.driven->op == "thread.move" && !has_shown;
    Finding f = against(sample,
                        fmt::format("{} thread {} shows {}",
                                    by_attach ? "after an attach"
                                    : by_move ? "a context has moved, and"
                                              : "a context is still attached, and",
                                    sample.thread.tid, seen_on(sample)),
                        has_shown ? "an attached context is no longer visible"
                                  : "an attached context does not show");
    if (!by_attach) {
      f.evidence.push_back("attached by " + request_line(e.session->operations[c->attached_by]));
    }
    return f;
  }
  if (shown.empty()) {
    return unobservable("no thread was sampled after an attach",
                        "an adapter that declares thread.attach");
  }
  return passed(fmt::format("{} contexts, each visible on its thread", shown.size()));
}

Finding against(const DrivenSample& sample, AttributeFault fault) {
  Finding f = against(sample, std::move(fault.saw), std::move(fault.signature));
  if (fault.entry) f.hexdumps = {record_dump(*sample.slot.record, fault.marks())};
  for (const auto& [name, value] : attributes_of(*sample.slot.record)) {
    if (f.evidence.size() > kMostLines) break;
    f.evidence.push_back(fmt::format("{} = {}", conformance::quoted(name),
                                     conformance::quoted(value, kShownValueBytes)));
  }
  return f;
}

Finding matches_context(const ImageEvidence& e) {
  const auto samples = driven_samples(e);
  std::set<std::string> traces;
  std::set<std::string> spans;
  for (const auto& sample : samples) {
    for (const auto& c : sample.thread.stack) {
      traces.insert(c->trace_id);
      spans.insert(c->span_id);
    }
  }
  AttributeJudge attributes(e);
  std::set<const ExpectedContext*> judged;
  for (const auto& sample : samples) {
    const ExpectedContext* c = sample.context();
    if (!sample.shows_record() || c == nullptr) continue;
    if (is_of_another_thread(samples, sample)) continue;
    const Record& r = *sample.slot.record;
    const std::string trace = trace_id_of(r);
    const std::string span = span_id_of(r);
    const bool other_trace = trace != c->trace_id && traces.contains(trace);
    const bool other_span = span != c->span_id && spans.contains(span);
    if (c->has_ids() && (has_no_ids(r) || other_trace || other_span)) {
      Finding f = against(
          sample,
          has_no_ids(r) ? fmt::format("no ids are shown, and {} are attached", ids_of(*c))
                        : fmt::format("{} are shown, and {} are attached", ids_of(r), ids_of(*c)),
          has_no_ids(r) ? "ids missing" : "ids of another context");
      f.hexdumps = {record_dump(r, {{0, 24, "given: " + c->trace_id + " " + c->span_id}})};
      return f;
    }
    // tctx.record.trace-id, span-id and ids-zero-when-none speak of other ids.
    if (c->has_ids() ? !shows_ids_of(r, *c) : !has_no_ids(r)) continue;
    if (c->has_ids()) judged.insert(c);
    if (auto fault = attributes.fault_of(sample)) return against(sample, std::move(*fault));
  }
  ChurnedContexts churned = churned_contexts(e, samples);
  if (churned.fault) return *std::move(churned.fault);
  if (judged.empty() && churned.judged == 0) {
    return unobservable("no thread showed a record with ids that were attached to it",
                        "an adapter that declares thread.attach");
  }
  if (attributes.compared() == 0 && attributes.lacked_names()) {
    return unobservable("there was no key map to compare attributes with",
                        "an adapter whose process context has a key map");
  }
  return passed(fmt::format("{} contexts and {} attributes, each as it was attached",
                            judged.size() + churned.judged, attributes.compared()));
}

Finding fixed_record_pointer(const ImageEvidence& e) {
  struct Slots {
    std::uint64_t address = 0;
    std::size_t attached = 0;
    std::set<std::uint64_t> shown;  // addresses of records that were valid
    std::vector<std::string> changes;
  };
  std::map<std::int32_t, Slots> slots;
  bool hides = false;  // by its valid byte
  for (const auto& sample : driven_samples(e)) {
    Slots& s = slots[sample.thread.tid];
    if (is_of(sample, "thread.attach")) ++s.attached;
    const auto address = address_of(sample);
    if (!address) continue;
    // One that never was valid may stand for none, in the place of null.
    if (sample.slot.record->valid()) {
      s.shown.insert(*address);
    } else {
      hides = hides || s.shown.contains(*address);
    }
    if (s.address != 0 && s.address != *address) {
      s.changes.push_back(fmt::format("thread {}: {:#x}, then {:#x} after {}", sample.thread.tid,
                                      s.address, *address, sample.driven->op));
    }
    s.address = *address;
  }
  const auto& thread = e.session->capabilities.value("thread", nlohmann::json::object());
  const auto style = thread.is_object() ? thread.value("style", nlohmann::json()) : nullptr;
  if (!hides) {
    if (style == "pointer") {
      return not_applicable(NaReason::kCapability,
                            "this writer shows a context by the pointer, not by the valid byte");
    }
    return unobservable("no slot was seen that points to an invalidated record",
                        "an adapter that declares thread.detach and hides by the valid byte");
  }
  std::size_t most = 0;
  for (const auto& [tid, s] : slots) {
    most = std::max(most, s.attached);
    if (s.changes.empty()) continue;
    const std::string saw = fmt::format("{} changes of the pointer over {} contexts of thread {}",
                                        s.changes.size(), s.attached, tid);
    Finding f = style == "mixed" ? info(saw, "two switches, as declared")
                                 : failed(saw, "pointer changes together with the valid byte");
    f.evidence.assign(s.changes.begin(), s.changes.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                 kMostLines, s.changes.size())));
    return f;
  }
  if (most < 2) {
    return unobservable("no thread had two contexts one after the other",
                        "an adapter that declares thread.attach and thread.detach");
  }
  return passed(fmt::format("one pointer over {} contexts", most));
}

// ---- detach

// The last look at a context while it was the innermost one of its thread.
const DrivenSample* last_sample_at(const std::vector<DrivenSample>& samples,
                                   const ExpectedContext& c, const DrivenSample& before) {
  const DrivenSample* out = nullptr;
  for (const auto& sample : samples) {
    if (&sample == &before) break;
    const ExpectedContext* shown = sample.context();
    if (sample.thread.name == before.thread.name && shown != nullptr && shown->name == c.name &&
        shown->attached_by == c.attached_by) {
      out = &sample;
    }
  }
  return out;
}

// The innermost context of this thread has just ended here.
bool has_ended(const DrivenSample& sample) {
  const DrivenOperation& d = *sample.driven;
  const bool moved = d.ok && d.op == "thread.move" && sample.thread.moved &&
                     text_member(d.request, "from") == sample.thread.name;
  return sample.thread.ended != nullptr && (moved || is_of(sample, "thread.detach"));
}

Finding restores_outer(const ImageEvidence& e) {
  const auto samples = driven_samples(e);
  std::size_t judged = 0;
  for (const auto& sample : samples) {
    const ExpectedContext* outer = sample.context();
    if (!has_ended(sample) || outer == nullptr) continue;
    const ExpectedContext& inner = *sample.thread.ended;
    if (!outer->has_ids()) continue;
    const DrivenSample* first = last_sample_at(samples, *outer, sample);
    const DrivenSample* second = last_sample_at(samples, inner, sample);
    if (first == nullptr || second == nullptr) continue;
    if (!first->shows_record() || !second->shows_record()) continue;
    if (std::ranges::any_of(std::array{first, second, &sample},
                            [&](const auto* l) { return is_of_another_thread(samples, *l); })) {
      continue;
    }
    const Record& was = *first->slot.record;
    const Record& inside = *second->slot.record;
    // The same for both: nothing tells which it is.
    if (ids_of(was) == ids_of(inside)) continue;
    ++judged;
    std::string saw;
    if (!sample.shows_record() || ids_of(*sample.slot.record) != ids_of(was)) {
      saw = "it shows " + seen_on(sample);
    } else {
      for (const auto& a : inner.attributes) {
        if (!outer->texts_of(a.key).empty() || entry_named(was, a.key)) continue;
        if (entry_named(inside, a.key) && entry_named(*sample.slot.record, a.key)) {
          saw = fmt::format("it still shows {}", conformance::quoted(a.key));
        }
      }
    }
    if (saw.empty()) continue;
    Finding f =
        against(sample,
                fmt::format("a nested context of thread {} {}, and {}", sample.thread.tid,
                            sample.thread.moved ? "went on in another thread" : "ended", saw),
                "the enclosing context does not show");
    f.evidence.push_back("outer attached: " + seen_on(*first));
    f.evidence.push_back("inner attached: " + seen_on(*second));
    f.evidence.push_back("inner ended: " + seen_on(sample));
    return f;
  }
  if (judged == 0) {
    return unobservable("no context ended inside another that had shown",
                        "an adapter that declares thread.attach and thread.detach");
  }
  return passed(fmt::format("{} nested contexts ended, the enclosing one showing", judged));
}

// The attributes of all contexts so far, as names and values.
class AcceptedAttributes {
 public:
  explicit AcceptedAttributes(const SessionEvidence& session) : session_(&session) {}

  // Name and value of an entry that some context had, if there is one. For samples in their order.
  std::optional<std::pair<std::string, std::string>> find(const DrivenSample& sample) {
    for (; heard_ <= sample.operation; ++heard_) {
      for (auto& a : accepted_attributes(session_->operations[heard_])) {
        if (a.text) accepted_.emplace(std::move(a.key), std::move(*a.text));
      }
    }
    for (auto& pair : attributes_of(*sample.slot.record)) {
      if (accepted_.contains(pair)) return pair;
    }
    return std::nullopt;
  }

 private:
  const SessionEvidence* session_;
  std::size_t heard_ = 0;  // operations
  std::set<std::pair<std::string, std::string>> accepted_;
};

Finding detach_hidden(const ImageEvidence& e) {
  const auto samples = driven_samples(e);
  AcceptedAttributes accepted(*e.session);
  std::size_t judged = 0;
  const DrivenSample* other = nullptr;
  for (const auto& sample : samples) {
    if (sample.thread.ended == nullptr || !sample.thread.stack.empty()) continue;
    const ExpectedContext& ended = *sample.thread.ended;
    ++judged;
    if (sample.slot.state == SlotState::kNone) continue;
    const char* what = sample.thread.moved ? "its context went on in another thread" : "a detach";
    if (sample.slot.state == SlotState::kUnreadable) {
      return against(sample,
                     fmt::format("after {} the slot of thread {} leads to memory that cannot be "
                                 "read",
                                 what, sample.thread.tid),
                     "a slot that leads nowhere");
    }
    const Record& r = *sample.slot.record;
    const bool remains = std::ranges::any_of(ended.attributes, [&](const ExpectedAttribute& a) {
      const auto entry = entry_named(r, a.key);
      return entry && a.text && a.text->starts_with(text_of(*entry));
    });
    const auto earlier = accepted.find(sample);
    if (has_no_ids(r) && !remains && !earlier) {
      other = &sample;
      continue;
    }
    std::string shown = ids_of(r);
    if (earlier) {
      shown += fmt::format(", and {} = {} of a context that has ended",
                           conformance::quoted(earlier->first),
                           conformance::quoted(earlier->second, kShownValueBytes));
    }
    return against(sample,
                   fmt::format("after {} thread {} shows {}", what, sample.thread.tid, shown),
                   "a context that has ended shows");
  }
  if (judged == 0) {
    return unobservable("no thread was sampled after its only context had ended",
                        "an adapter that declares thread.detach");
  }
  if (other != nullptr) {
    Finding f = info("after a detach there is a valid record with nothing of the context",
                     "another record after a detach");
    f.evidence = record_lines(*other->slot.record);
    return f;
  }
  return passed(fmt::format("{} threads have no context, and none shows one", judged));
}

// ---- one thread and another

std::span<const std::byte> content_of(const Record& r) {
  return r.bytes.first(
      std::min(r.bytes.size(), sizeof(abi::ThreadRecordHead) + r.attributes.size()));
}

// A later look at the record, on whatever thread, that shows another content while this thread
// still has it: its owner goes on with it. Null: there is none.
const DrivenSample* changed_since(const std::vector<DrivenSample>& samples,
                                  const DrivenSample& first) {
  std::set<std::size_t> held;  // operations
  for (const auto& sample : samples) {
    if (sample.thread.name == first.thread.name && sample.thread.tid == first.thread.tid &&
        !sample.thread.used && address_of(sample) == address_of(first)) {
      held.insert(sample.operation);
    }
  }
  for (const auto& sample : samples) {
    if (sample.operation <= first.operation || address_of(sample) != address_of(first)) continue;
    if (!held.contains(sample.operation)) continue;
    if (!std::ranges::equal(content_of(*sample.slot.record), content_of(*first.slot.record))) {
      return &sample;
    }
  }
  return nullptr;
}

// A thread that was just started shows the ids of a context that ended before, with its thread or
// by a detach; nothing: it does not.
const ExpectedContext* shows_what_has_ended(const std::vector<DrivenSample>& samples,
                                            const SessionEvidence& session,
                                            const DrivenSample& fresh) {
  const bool started = fresh.driven->ok && fresh.driven->op == "thread.spawn" &&
                       fresh.driven->of_thread(fresh.thread.name);
  if (!started || !fresh.shows_record()) return nullptr;
  const ExpectedContext* out = nullptr;
  const DrivenSample* last = nullptr;  // that had it
  for (const auto& sample : samples) {
    if (sample.operation > fresh.operation) break;
    for (const auto& c : sample.thread.stack) {
      if (!c->has_ids() || !shows_ids_of(*fresh.slot.record, *c)) continue;
      if (sample.operation == fresh.operation) return nullptr;  // attached now
      out = c.get();
      last = &sample;
    }
  }
  if (out == nullptr) return nullptr;
  // Where nothing is known of the thread, it may still have the context.
  const auto ends = [&](const DrivenOperation& d) {
    return d.ok && (d.op == "thread.exit" || d.op == "thread.detach") &&
           d.of_thread(last->thread.name);
  };
  return ends(session.operations[last->operation + 1]) ? out : nullptr;
}

Finding fresh_thread_null(const ImageEvidence& e) {
  const auto samples = driven_samples(e);
  std::set<std::int32_t> judged;
  const DrivenSample* handed_on = nullptr;
  for (const auto& sample : samples) {
    if (sample.thread.used || sample.thread.name == "main") continue;
    if (sample.slot.state == SlotState::kNone) {
      judged.insert(sample.thread.tid);
      continue;
    }
    if (const auto* ended = shows_what_has_ended(samples, *e.session, sample)) {
      return against(sample,
                     fmt::format("nothing was attached on thread {}, and it shows a context that "
                                 "has ended: {}",
                                 sample.thread.tid, ids_of(*ended)),
                     "a fresh thread shows a context that has ended");
    }
    const std::uint64_t value = sample.shows_record() ? *address_of(sample) : 0;
    const auto same = std::ranges::find_if(samples, [&](const DrivenSample& o) {
      return o.operation <= sample.operation && o.thread.name != sample.thread.name && value != 0 &&
             address_of(o) == value;
    });
    // The record is the thread's own, or never changes: nothing of another thread will show here.
    const bool own = sample.shows_record() && same == samples.end();
    const DrivenSample* changed =
        sample.shows_record() && !own ? changed_since(samples, sample) : nullptr;
    if (sample.shows_record() && changed == nullptr) {
      if (handed_on == nullptr || own) handed_on = &sample;
      continue;
    }
    Finding f =
        against(sample,
                fmt::format("nothing was attached on thread {}, and it shows {}", sample.thread.tid,
                            sample.shows_record() ? fmt::format("the record of thread {}: {}",
                                                                same->thread.tid, seen_on(sample))
                                                  : seen_on(sample)),
                "a fresh thread shows a context");
    for (const auto& o : samples) {
      if (o.operation == sample.operation && f.evidence.size() < kMostLines) {
        f.evidence.push_back(fmt::format("thread {} {}: {}", o.thread.tid,
                                         conformance::quoted(o.thread.name), seen_on(o)));
      }
    }
    if (changed != nullptr) {
      f.evidence.push_back(fmt::format("after {} the same record has {}",
                                       request_line(*changed->driven), seen_on(*changed)));
      f.hexdumps.push_back(record_dump(*changed->slot.record, {}));
    }
    return f;
  }
  if (handed_on != nullptr) {
    Finding f = info(fmt::format("nothing was attached on thread {}, and it has a record that no "
                                 "other thread changes: {}",
                                 handed_on->thread.tid, seen_on(*handed_on)),
                     "a context is handed on to a new thread");
    f.evidence = record_lines(*handed_on->slot.record);
    return f;
  }
  if (judged.empty()) {
    return unobservable("every started thread had something attached to it",
                        "an adapter that declares thread");
  }
  return passed(fmt::format("{} threads have no context, and none shows one", judged.size()));
}

Finding per_thread(const ImageEvidence& e) {
  const auto samples = driven_samples(e);
  std::size_t most = 0;
  for (std::size_t from = 0; from < samples.size();) {
    std::size_t to = from;
    while (to < samples.size() && samples[to].operation == samples[from].operation) ++to;
    std::vector<const DrivenSample*> attached;
    std::set<std::string> distinct;
    for (std::size_t i = from; i < to; ++i) {
      const ExpectedContext* c = samples[i].context();
      if (c == nullptr || !c->has_ids() || !samples[i].shows_record()) continue;
      attached.push_back(&samples[i]);
      distinct.insert(ids_of(*c));
    }
    from = to;
    for (const DrivenSample* a : attached) {
      for (const DrivenSample* b : attached) {
        if (a == b || ids_of(*a->context()) == ids_of(*b->context())) continue;
        const bool shared = address_of(*a) == address_of(*b);
        if (!shared && !shows_ids_of(*a->slot.record, *b->context())) continue;
        Finding f = against(*a,
                            shared ? fmt::format("threads {} and {} have the same record",
                                                 a->thread.tid, b->thread.tid)
                                   : fmt::format("thread {} shows what was attached on thread {}",
                                                 a->thread.tid, b->thread.tid),
                            "a context of another thread");
        for (const DrivenSample* each : attached) {
          if (f.evidence.size() >= kMostLines) break;
          f.evidence.push_back(fmt::format("thread {}, record {:#x}: {}; attached: {}",
                                           each->thread.tid, *address_of(*each), seen_on(*each),
                                           ids_of(*each->context())));
        }
        return f;
      }
    }
    most = std::max(most, distinct.size());
  }
  if (most < 2) {
    return unobservable("no two threads showed records of different contexts at once",
                        "an adapter that declares thread and thread.attach");
  }
  return passed(fmt::format("{} threads, each with its own context", most));
}

// ---- exit

std::optional<abi::ThreadRecordHead> head_of(const ThreadSample& s) {
  return s.record ? abi::decode_thread_record(s.record->bytes) : std::nullopt;
}

// A thread that ended with a context, as it left.
Finding no_dangling(const ImageEvidence& e) {
  if (auto f = released_at_exit(e)) return *std::move(f);
  const auto samples = driven_samples(e);
  const auto& operations = e.session->operations;
  std::size_t judged = 0;
  std::string unknown;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    if (!d.ok || d.op != "thread.exit" || d.view == nullptr) continue;
    const ImageEvidence* image = e.session->image(d.view->image);
    const DrivenSample* last = nullptr;
    std::set<std::string> shown;  // by the thread, while it ran
    for (const auto& sample : samples) {
      if (sample.operation >= i || !d.of_thread(sample.thread.name)) continue;
      if (last != nullptr && last->thread.tid != sample.thread.tid) shown.clear();
      last = &sample;
      if (sample.slot.record != nullptr) shown.insert(ids_of(*sample.slot.record));
    }
    if (image == nullptr || last == nullptr || last->context() == nullptr) continue;
    if (!last->shows_record()) continue;
    const ThreadSample& before = *last->slot.record->sample;
    for (const ThreadSample& s : image->image->exits) {
      // At another place, the thread's own memory may already be gone.
      if (s.tid != before.tid || s.module != before.module || s.slot != before.slot) continue;
      ++judged;
      const auto head = head_of(s);
      const bool freed =
          s.record && is_freed(*s.record) && !(before.record && is_freed(*before.record));
      if (s.value == 0 || (head && head->valid != abi::kRecordValid && !freed)) continue;
      std::string saw;
      Record r;
      if (!head) {
        saw = "memory that cannot be read";
      } else {
        r.head = *head;
        if (freed) saw = fmt::format("memory that was freed: it is filled with {:02x}", kFreedByte);
        if (!freed && (has_no_ids(r) || shown.contains(ids_of(r)))) {
          unknown = why_freed_is_unfilled(*image->image);
          continue;
        }
        if (!freed) saw = "a record that was never attached: " + ids_of(r);
      }
      Finding f = failed(fmt::format("thread {} ended, and its slot led to {}", s.tid, saw),
                         "dangling pointer");
      f.evidence = {request_line(d), "attached: " + seen_on(*last),
                    fmt::format("slot {:#x}, before {:#x}, at its exit {:#x}", s.slot, before.value,
                                s.value)};
      if (s.mapping) f.evidence.push_back("maps: " + to_maps_line(*s.mapping));
      if (head) {
        r.sample = &s;
        r.bytes = s.record->bytes;
        f.hexdumps = {record_dump(r, {{0, 24, "ids: never attached"}})};
      }
      return f;
    }
  }
  if (judged == 0) {
    return unobservable("no thread was seen to end with a context attached",
                        "an adapter that declares thread and thread.attach");
  }
  if (!unknown.empty()) {
    return unobservable("a thread ended with a record, and " + unknown, kLinkedToGlibc);
  }
  return passed(
      fmt::format("{} threads ended with a context, none with a dangling pointer", judged));
}

// ---- fork

const Context* context_of_child(const ImageEvidence& child, const ImageView& view) {
  const Context* c = context_at(child, view);
  return c != nullptr && c->payload != nullptr ? c : nullptr;
}

// An index of the record whose name in the child is not the one that it had; nothing: there is
// none, or the child has no key map.
std::optional<std::string> renamed_index(const std::vector<std::string>& names, const Record& r,
                                         const ThreadlocalEntry* map) {
  if (map == nullptr || map->element_count > map->elements.size()) return std::nullopt;
  abi::AttributeCursor cursor(r.attributes);
  while (const auto entry = cursor.next()) {
    if (entry->key >= names.size()) continue;
    const std::string& was = names[entry->key];
    const bool named = entry->key < map->elements.size();
    if (named && map->elements[entry->key].text == was) continue;
    return fmt::format(
        "index {} is {}, and was {} in the parent", entry->key,
        named ? conformance::quoted(map->elements[entry->key].text) : std::string("without a name"),
        conformance::quoted(was));
  }
  return std::nullopt;
}

Finding inherited_record(const ImageEvidence& e) {
  const auto samples = driven_samples(e);
  std::size_t judged = 0;
  std::optional<Finding> goes_on;
  const auto& operations = e.session->operations;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    if (!d.ok || d.op != "process.fork" || d.view == nullptr) continue;
    for (const ImageView& view : d.operation->after) {
      if (view.image.pid == d.view->image.pid) continue;
      const char* member = nullptr;
      for (const char* name : {"child_pid", "grandchild_pid"}) {
        if (d.reply.contains(name) && d.reply[name] == view.image.pid) member = name;
      }
      const ImageEvidence* child = e.session->image(view.image);
      if (member == nullptr || child == nullptr) continue;
      if (context_of_child(*child, view) == nullptr) continue;  // publishes nothing
      const auto forking = std::ranges::find_if(samples, [&](const DrivenSample& sample) {
        return sample.operation == i && sample.thread.name == "main" && sample.shows_record();
      });
      const Slot slot = slot_at(*child, view, view.image.pid);
      if (forking == samples.end() || slot.state == SlotState::kUnknown) continue;
      ++judged;
      if (slot.state != SlotState::kRecord) continue;
      const auto is_shown = [&](const auto& c) {
        return c->has_ids() && shows_ids_of(*slot.record, *c);
      };
      if (!is_inherited(*child, *slot.record) &&
          std::ranges::none_of(forking->thread.stack, is_shown)) {
        continue;
      }
      const auto* map =
          threadlocal_entry(*context_of_child(*child, view), abi::kAttributeKeyMapKey);
      const auto names = key_map_at(e, d).value_or(std::vector<std::string>());
      if (const auto renamed = renamed_index(names, *slot.record, map)) {
        Finding f = failed(fmt::format("process {} shows the record of its parent, and {}",
                                       view.image.pid, *renamed),
                           "an index of an inherited record has another name");
        f.evidence = {"after " + request_line(d), record_line(*slot.record)};
        f.hexdumps = {record_dump(*slot.record, {})};
        return f;
      }
      const ExpectedContext* current = forking->context();
      if (current != nullptr && current->has_ids() && shows_ids_of(*slot.record, *current)) {
        goes_on = info(fmt::format("process {} still shows the span in which it was forked: {}",
                                   view.image.pid, ids_of(*slot.record)),
                       "the child still shows the span of the thread that forked");
        goes_on->evidence = {"after " + request_line(d), record_line(*slot.record)};
        continue;
      }
      Finding f = failed(
          fmt::format("process {} has published its own context, and still shows the record of "
                      "its parent: {}",
                      view.image.pid, ids_of(*slot.record)),
          "the parent's record shows in the child");
      f.evidence = {"after " + request_line(d), record_line(*slot.record)};
      f.evidence.push_back(map == nullptr
                               ? "its process context has no key map"
                               : fmt::format("its key map has {} names", map->element_count));
      f.hexdumps = {record_dump(*slot.record, {})};
      return f;
    }
  }
  if (judged == 0) {
    return unobservable("no child that published was seen while its parent had a record",
                        "an adapter that declares process.fork with a child that publishes");
  }
  if (goes_on) return *goes_on;
  return passed(fmt::format("{} children, none with a record of its parent", judged));
}

constexpr auto kDrivenThreadRules = std::to_array<RequirementRule>({
    {"tctx.tls.fresh-thread-null", fresh_thread_null, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"tctx.tls.per-thread", per_thread, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {.id = "tctx.attach.visible",
     .rule = attach_visible,
     .asked_of = AskedOf::kTestee,
     .rests_on = RestsOn::kOperations,
     .under_faults = UnderFaults::kJudged,
     .reports_refused_contexts = true},
    {"tctx.attach.matches-context", matches_context, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"tctx.attach.fixed-record-pointer", fixed_record_pointer, AskedOf::kTestee,
     RestsOn::kOperations, UnderFaults::kJudged},
    {"tctx.attach.restores-outer", restores_outer, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"tctx.detach.hidden", detach_hidden, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"tctx.exit.no-dangling", no_dangling, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"tctx.fork.inherited-record", inherited_record, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
});

}  // namespace

std::span<const RequirementRule> driven_thread_rules() { return kDrivenThreadRules; }

}  // namespace ctxconf::conformance
