// Requirements that need a program to be driven, OTEP 4719: what its children and the next image
// of its process have of its context.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <vector>

#include "conformance/payload/payload_walk.h"
#include "conformance/rules/expected_resource.h"
#include "conformance/rules/publications.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

constexpr const char* kFork =
    "an adapter that declares process.fork, or whose process ctxconf can fork where it steps";

// A child, or grandchild, that an operation made, and what it was to do.
struct Child {
  std::int64_t pid = 0;
  Json asked;  // `child` of the request: of the last one where it forked again
  Json reply;
  bool is(std::string_view what) const { return says(asked, "do", what); }
  bool publishes() const {
    return (is("publish") || is("update") || is("drop")) && asked.contains("resource");
  }
  // Whether what it publishes, or its update, has this key.
  bool is_given(std::string_view key) const {
    const auto is_in = [&](const Json& request) {
      return find_key(resource_of(request), key) != nullptr ||
             (request.is_object() && request.contains("attributes") &&
              find_key(attributes_of(request["attributes"]), key) != nullptr);
    };
    return is_in(asked) || (asked.contains("update") && is_in(asked["update"]));
  }
  // What it is to have when it is done.
  std::vector<Attribute> expected() const {
    const bool updates = is("update") && asked.contains("update") && asked["update"].is_object() &&
                         asked["update"].contains("resource");
    return taken_of(resource_of(updates ? asked["update"] : asked), reply);
  }
};

void add_children(const Json& request, const Json& reply, std::vector<Child>& out) {
  if (!says(request, "op", "process.fork") || !request.contains("child") ||
      !request["child"].is_object() || request.contains("namespace"))
    return;
  const Json& child = request["child"];
  const auto pid = pid_member(reply, "child_pid");
  if (pid == 0) return;
  if (!says(child, "do", "fork")) {
    out.push_back({pid, child, reply});
    return;
  }
  // Between the two forks it does nothing.
  out.push_back({pid, Json{{"do", "idle"}}, Json()});
  const auto grandchild = pid_member(reply, "grandchild_pid");
  if (grandchild != 0 && child.contains("child"))
    out.push_back({grandchild, child["child"], reply});
}

std::vector<Child> children_of(const DrivenOperation& d) {
  std::vector<Child> out;
  for (const RequestPart& part : parts_of(d)) add_children(part.request, part.reply, out);
  return out;
}

std::vector<const Context*> active_in(const Published& p, const ImageView& view) {
  std::vector<const Context*> out;
  for (const Context& c : p.image->contexts[*view.snapshot]) {
    if (c.candidate->named && c.usable()) out.push_back(&c);
  }
  return out;
}

// Does a context say the same as one that its parent has had?
bool is_of_parent(const Context& c, const ImageEvidence& parent) {
  if (c.payload_block == nullptr || c.payload_block->readable < c.payload_block->wanted) {
    return false;
  }
  for (const Context* p : parent.first_sights) {
    if (p->payload_block == nullptr || p->header.payload_size == 0) continue;
    // A publication of its own has a timestamp of its own, whatever it says.
    if (p->header.monotonic_published_at_ns == c.header.monotonic_published_at_ns &&
        p->payload_block->wanted == c.payload_block->wanted &&
        p->payload_block->hash == c.payload_block->hash) {
      return true;
    }
  }
  return false;
}

// What children would have had, that had been forked at each step of publications and updates.
// A finding, or nothing; `judged` is how many.
std::optional<Finding> inherited_at_a_step(const ImageEvidence& e, std::size_t& judged) {
  if (e.image->forks.empty()) return std::nullopt;
  for (const Publication& p : publications_of(e)) {
    for (const ForkProbe& fork : e.image->forks) {
      if (fork_time(e, p, fork) != ForkTime::kAfterMark) continue;
      ++judged;
      const auto header = inherited_header(p, fork);
      if (header.empty()) continue;
      Finding f = failed(
          fmt::format("a child that thread {} forks {} has its parent's header", fork.tid, fork.at),
          "a child with its parent's context");
      f.evidence = {maps_line(*p.context)};
      Hexdump dump;
      dump.title = "the child's header at " + hex_text(p.start);
      dump.address = p.start;
      for (const std::byte b : header) dump.bytes.push_back(std::to_integer<std::uint8_t>(b));
      f.hexdumps = {std::move(dump)};
      return f;
    }
  }
  return std::nullopt;
}

Finding child_has_none(const ImageEvidence& e) {
  std::size_t judged = 0;
  const DrivenOperation* last = nullptr;
  for (const DrivenOperation& d : e.session->operations) {
    const DrivenOperation* before = std::exchange(last, &d);
    if (before == nullptr) continue;
    // The parent's context may also have come at the same time.
    Published of_parent = published_at(*e.session, *before);
    if (of_parent.context == nullptr) of_parent = published_at(*e.session, d);
    if (of_parent.context == nullptr) continue;
    for (const Child& child : children_of(d)) {
      const ImageView* view = view_of(d, child.pid);
      if (!child.is("idle") || view == nullptr) continue;
      const Published now = published_at(*e.session, view);
      if (now.image == nullptr) continue;
      ++judged;
      for (const Context* c : active_in(now, *view)) {
        // One with other content is its own: an SDK may set itself up again in a child.
        if (!is_of_parent(*c, *of_parent.image)) continue;
        Finding f =
            failed(fmt::format("child {}, which did nothing, has its parent's context", child.pid),
                   "a child with its parent's context");
        f.evidence = {request_line(d), maps_line(*c)};
        f.hexdumps = {header_dump(*c, {{16, 8, "timestamp: not zero"}})};
        return f;
      }
    }
  }
  std::size_t steps = 0;
  if (auto f = inherited_at_a_step(e, steps)) return *std::move(f);
  if (steps > 0) {
    return passed(fmt::format(
        "{} children, and one at each of {} steps of publications and updates, none with a context",
        judged, steps));
  }
  if (judged > 0) return passed(fmt::format("{} children, none with a context", judged));
  // The process may have become the publisher by an exec.
  const auto unseen = std::ranges::find_if(e.process->images,
                                           [](const Image& i) { return !i.forks_unseen.empty(); });
  if (unseen == e.process->images.end()) {
    return unobservable("no idle child was seen while its parent had a context", kFork);
  }
  if (!e.session->can("process.fork")) {
    return not_applicable(
        NaReason::kCapability,
        "the adapter does not declare process.fork, and no child could be made at any step: " +
            unseen->forks_unseen);
  }
  return unobservable("no child was seen while its parent had a context: " + unseen->forks_unseen,
                      kFork);
}

// Null: it is not in the recording.
const Process* process_of(const ImageEvidence& e, std::int64_t pid) {
  const auto process = std::ranges::find_if(e.timeline->processes, [&](const Process& p) {
    return p.session == e.process->session && p.pid == pid;
  });
  return process == e.timeline->processes.end() ? nullptr : &*process;
}

// The signal that ended it, if that was not ours.
std::optional<int> killed_by(const Process* process) {
  return process == nullptr || process->ended_by_us ? std::nullopt : process->killed_by;
}

std::string ending_of(const Process* process) {
  if (const auto signal = killed_by(process)) return fmt::format("killed by signal {}", *signal);
  if (process == nullptr || !process->exit_code) return "";
  return exit_text(*process->exit_code);
}

// A child that was to publish: what it shows instead; nothing: what it was given, which is counted,
// or it is not known. `parents`: what its parent was given.
std::optional<Finding> wrong_publication(const ImageEvidence& e, const DrivenOperation& d,
                                         const Child& child, const ExpectedResource& parents,
                                         std::size_t& judged) {
  const auto wrong = [&](std::string saw, std::string signature) {
    Finding f = failed(std::move(saw), std::move(signature));
    f.evidence = {request_line(d)};
    if (const auto ending = ending_of(process_of(e, child.pid)); !ending.empty()) {
      f.evidence.push_back(fmt::format("child {} {}", child.pid, ending));
    }
    return f;
  };
  const ImageView* view = view_of(d, child.pid);
  if (view == nullptr || !view->snapshot) {
    const Process* process = process_of(e, child.pid);
    const auto signal = killed_by(process);
    // What could not be observed may have been killed with its parent, later.
    const bool later = view != nullptr && signal == SIGKILL;
    if (!signal || later) return std::nullopt;
    return wrong(fmt::format("child {} was {} when it published", child.pid, ending_of(process)),
                 "the child died");
  }
  const Published now = published_at(*e.session, view);
  if (now.image == nullptr) return std::nullopt;
  const auto active = active_in(now, *view);
  if (child.is("drop")) {
    ++judged;
    // A header that is left over a payload that is gone is for pctx.drop.no-dead-payload.
    const auto left =
        std::ranges::find_if(active, [](const Context* c) { return c->is_decoded(); });
    if (left == active.end()) return std::nullopt;
    Finding f = wrong(fmt::format("child {} published, withdrew and has a context", child.pid),
                      "a child with the context that it withdrew");
    f.evidence.push_back(maps_line(**left));
    return f;
  }
  if (active.empty()) {
    if (now.has_mappings) return std::nullopt;  // what is wrong with it is for other requirements
    return wrong(fmt::format("child {} published and has no context", child.pid),
                 "a child without a context");
  }
  if (active.size() > 1) {
    Finding f = wrong(fmt::format("child {} has {} contexts", child.pid, active.size()),
                      "a child with several contexts");
    for (const Context* c : active) {
      if (f.evidence.size() < kMaxListed) f.evidence.push_back(maps_line(*c));
    }
    return f;
  }
  if (now.payload == nullptr) return std::nullopt;
  ++judged;
  for (const auto* list : {&parents.resource, &parents.attributes}) {
    for (const Attribute& g : list->value_or(std::vector<Attribute>())) {
      const Attribute* there = now.find(g.key);
      if (child.is_given(g.key) || there == nullptr || !is_same(*there, g)) continue;
      Finding f = wrong(fmt::format("child {} shows {}, which only its parent was given", child.pid,
                                    shown(there)),
                        "the attributes of the parent");
      f.evidence.push_back(maps_line(*active.front()));
      return f;
    }
  }
  for (const Attribute& g : child.expected()) {
    const Attribute* there = now.find_in_resource(g.key);
    if (there != nullptr && is_same(*there, g)) continue;
    const bool misplaced = there == nullptr && now.find(g.key) != nullptr;
    Finding f =
        wrong(fmt::format("child {} shows {}{}, but was given {}", child.pid,
                          shown(now.find(g.key)), misplaced ? " in field 2" : "", shown(&g)),
              "not the attributes of the child");
    f.evidence.push_back(maps_line(*active.front()));
    return f;
  }
  return std::nullopt;
}

Finding child_publishes_own(const ImageEvidence& e) {
  std::size_t judged = 0;
  ExpectedResource parents;
  for (const DrivenOperation& d : e.session->operations) {
    parents.apply(d);
    for (const Child& child : children_of(d)) {
      if (!child.publishes()) continue;
      if (auto f = wrong_publication(e, d, child, parents, judged)) return *std::move(f);
    }
  }
  if (judged > 0) return passed(fmt::format("{} children, each with a context of its own", judged));
  return unobservable("no child published",
                      "an adapter that declares process.fork with the child `publish`");
}

// Children of the process that carry its own number, in other namespaces.
std::vector<const Process*> namesakes_of(const ImageEvidence& e) {
  std::vector<const Process*> out;
  for (const Process& p : e.timeline->processes) {
    if (e.process->own_pid != 0 && p.own_pid == e.process->own_pid && p.pid != e.process->pid &&
        p.session == e.process->session && p.parent == e.process->pid) {
      out.push_back(&p);
    }
  }
  return out;
}

// What a reply calls a child is its number in a namespace, and no evidence.
Finding same_pid_namespace(const ImageEvidence& e) {
  std::size_t judged = 0;
  const auto namesakes = namesakes_of(e);
  for (const DrivenOperation& d : e.session->operations) {
    if (!says(d.request, "op", "process.fork") || !says(d.request, "namespace", "pid") ||
        !d.request.contains("child") || !d.request["child"].is_object()) {
      continue;
    }
    for (const Process* p : namesakes) {
      const Child child{p->pid, d.request["child"], d.reply};
      if (!child.publishes()) continue;
      auto f = wrong_publication(e, d, child, {}, judged);
      if (!f) continue;
      f->evidence.push_back(fmt::format("parent {} and child {} are both process {} of a namespace",
                                        e.process->pid, p->pid, p->own_pid));
      return *std::move(f);
    }
  }
  if (judged > 0) return passed("the child published a context of its own");
  return unobservable("no child with its parent's process number published",
                      "an adapter that declares process.fork_namespace, on a host where this user "
                      "may make pid namespaces (pid-namespaces in `ctxconf doctor`)");
}

// Children that published, and are the cause of what changes now.
struct Publisher {
  std::int64_t pid = 0;
  std::vector<Attribute> expected;
  bool withdrew = false;
};

Finding parent_untouched(const ImageEvidence& e) {
  std::size_t judged = 0;
  std::vector<Publisher> publishers;
  ExpectedResource expected;
  const DrivenOperation* last = nullptr;
  for (const DrivenOperation& d : e.session->operations) {
    const DrivenOperation* before = std::exchange(last, &d);
    expected.apply(d);
    if (d.op == "hello") publishers.clear();
    for (const Child& child : children_of(d)) {
      if (child.publishes()) publishers.push_back({child.pid, child.expected(), child.is("drop")});
    }
    const bool reaped = d.op == "process.reap" && d.ok && d.request.contains("child_pid");
    if ((d.op != "process.fork" && !reaped) || !d.ok || before == nullptr || publishers.empty()) {
      continue;
    }
    const Published was = published_at(*e.session, *before);
    const Published now = published_at(*e.session, d);
    if (was.payload == nullptr || now.image != was.image) continue;
    ++judged;
    const auto changed = [&](std::string saw) {
      Finding f = failed(std::move(saw), "the parent's context changed");
      f.evidence = {request_line(d), "before: " + maps_line(*was.context)};
      f.hexdumps = {header_dump(*was.context, {})};
      if (now.context != nullptr) f.hexdumps.push_back(header_dump(*now.context, {}));
      return f;
    };
    const char* const when = reaped                       ? "its end"
                             : publishers.back().withdrew ? "it withdrew"
                                                          : "it published";
    const auto child = publishers.back().pid;
    if (now.context == nullptr) {
      if (now.has_mappings) continue;
      return changed(fmt::format("child {}: after {} the parent has no context", child, when));
    }
    if (now.context->header == was.context->header) {
      const auto* then = was.context->payload_block;
      const auto* block = now.context->payload_block;
      if (block != nullptr && then->wanted == block->wanted && then->hash == block->hash) continue;
      return changed(
          fmt::format("child {}: after {} the parent's payload is a different one", child, when));
    }
    // The parent's own update is legal; one with what a child was given is not.
    for (const Publisher& p : publishers) {
      for (const Attribute& g : p.expected) {
        const Attribute* there = now.find(g.key);
        const Attribute* old = was.find(g.key);
        if (there == nullptr || !is_same(*there, g) || (old != nullptr && is_same(*old, g))) {
          continue;
        }
        return changed(fmt::format("after {} the parent shows {}, which child {} was given", when,
                                   shown(there), p.pid));
      }
    }
  }
  if (judged > 0) {
    return passed(fmt::format(
        "no child changed the parent's context (looked after {} of their steps)", judged));
  }
  return unobservable("no child published while its parent had a context",
                      "an adapter that declares process.fork with the child `publish`");
}

Finding memfd_not_leaked(const ImageEvidence& e) {
  std::size_t judged = 0;
  const DrivenOperation* last = nullptr;
  for (const DrivenOperation& d : e.session->operations) {
    const DrivenOperation* before = std::exchange(last, &d);
    if (d.op != "process.exec_self" && d.op != "process.exec") continue;
    if (before == nullptr || before->view == nullptr) continue;
    const bool had_context = std::ranges::any_of(e.session->operations, [&](const auto& o) {
      return &o < &d && published_at(*e.session, o).context != nullptr;
    });
    if (!had_context) continue;
    const ImageEvidence* next = e.session->image(
        {before->view->image.pid, before->view->image.image + 1, before->view->image.session});
    if (next == nullptr || next->image->snapshots.empty()) continue;
    // The first look, before it ran.
    const Image& image = *next->image;
    const Snapshot& first = image.snapshots.front();
    if (std::ranges::find(first.moments, Moment::kStart) == first.moments.end()) continue;
    ++judged;
    if (first.descriptors.empty()) continue;
    Finding f = failed(fmt::format("after exec descriptor {} is {}", first.descriptors.front().fd,
                                   conformance::quoted(first.descriptors.front().link)),
                       "memfd leaked through exec");
    f.evidence = {request_line(d)};
    for (const DescriptorLink& l : first.descriptors) {
      if (f.evidence.size() < kMaxListed) {
        f.evidence.push_back(fmt::format("/proc/{}/fd/{} -> {}", image.key.pid, l.fd, l.link));
      }
    }
    return f;
  }
  if (judged > 0) return passed(fmt::format("{} programs, none with a memfd", judged));
  return unobservable("no program was seen that followed a publication",
                      "an adapter that declares process.exec");
}

constexpr auto kDrivenForkRules = std::to_array<RequirementRule>({
    {.id = "pctx.fork.child-has-none",
     .rule = child_has_none,
     .asked_of = AskedOf::kTestee,
     .rests_on = RestsOn::kOperations,
     .rests_on_naming_calls = true},
    {"pctx.fork.child-publishes-own", child_publishes_own, AskedOf::kTestee, RestsOn::kOperations},
    {"pctx.fork.parent-untouched", parent_untouched, AskedOf::kTestee, RestsOn::kOperations},
    {"pctx.fork.same-pid-namespace", same_pid_namespace, AskedOf::kTestee, RestsOn::kOperations},
    {"pctx.exec.memfd-not-leaked", memfd_not_leaked, AskedOf::kTestee, RestsOn::kOperations},
});

}  // namespace

std::span<const RequirementRule> driven_fork_rules() { return kDrivenForkRules; }

}  // namespace ctxconf::conformance
