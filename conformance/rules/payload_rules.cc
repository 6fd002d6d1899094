#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "conformance/rules/conventions.h"
#include "conformance/rules/ending.h"
#include "conformance/rules/expected_resource.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

Finding nothing_to_judge(const ImageEvidence& e) {
  for (const Context* c : e.first_sights) {
    if (c->payload != nullptr && c->payload->problem != PayloadProblem::kNone) {
      return unobservable("the payload is not a ProcessContext; another requirement reports that",
                          "a payload that decodes");
    }
    const MemoryBlock* b = c->payload_block;
    if (b == nullptr || b->wanted <= c->payload_bytes.size() ||
        b->readable <= c->payload_bytes.size()) {
      continue;
    }
    constexpr std::uint64_t kMebibytes = kMostPayload >> 20U;
    if (b->wanted > kMostPayload) {
      return unobservable(
          fmt::format("the payload of {} bytes is larger than the {} MiB that are decoded: its "
                      "content was not judged",
                      b->wanted, kMebibytes),
          fmt::format("a payload of at most {} MiB", kMebibytes));
    }
    return unobservable(
        fmt::format("the payload of {} bytes was not kept: large payloads have {} MiB together",
                    b->wanted, kMebibytes),
        "fewer large payloads in one run");
  }
  if (e.has_usable) {
    return unobservable("no payload could be copied as a whole", "a payload that can be read");
  }
  return unobservable("no valid header was seen, so no payload was read",
                      "a header with signature, version 2 and a non-zero timestamp");
}

std::string location(const PayloadFault& f) {
  std::string out = f.path;
  if (!f.key.empty()) out += " (" + f.key + ")";
  out += ": " + f.what;
  if (f.offset) out += fmt::format(", offset {}", *f.offset);
  return out;
}

// The requirements that list faults of a decoded payload differ only in which list it is.
Finding list_faults(const ImageEvidence& e, std::vector<PayloadFault> Payload::* member,
                    const char* what, const char* signature) {
  const auto contexts = decoded_contexts(e);
  for (const Context* c : contexts) {
    const auto& faults = c->payload.get()->*member;
    if (faults.empty()) continue;
    Finding f = failed(fmt::format("{}: {}", what, location(faults.front())), signature);
    f.evidence = {maps_line(*c)};
    for (std::size_t i = 1; i < std::min(faults.size(), kMaxListed); ++i) {
      f.evidence.push_back("also " + location(faults[i]));
    }
    if (faults.size() > kMaxListed) {
      f.evidence.push_back(fmt::format("and {} more", faults.size() - kMaxListed));
    }
    if (faults.front().offset) {
      f.hexdumps = {payload_dump(*c, *faults.front().offset, 1, what)};
    }
    return f;
  }
  return contexts.empty() ? nothing_to_judge(e) : passed();
}

Finding process_context_message(const ImageEvidence& e) {
  for (const Context* c : e.first_sights) {
    if (c->payload == nullptr) continue;
    const auto problem = c->payload->problem;
    if (problem != PayloadProblem::kOlderFormat && problem != PayloadProblem::kNotTyped) continue;
    const bool older = problem == PayloadProblem::kOlderFormat;
    Finding f = failed(
        older ? fmt::format("the payload is {} ({}), not a ProcessContext",
                            abi::describe(c->payload->format), abi::to_string(c->payload->format))
              : fmt::format("not a ProcessContext: {} (offset {})", c->payload->detail,
                            c->payload->problem_offset),
        older ? fmt::format("payload format {}", abi::to_string(c->payload->format))
              : "payload does not decode");
    f.evidence = {maps_line(*c)};
    if (older && !c->payload->detail.empty()) f.evidence.push_back(c->payload->detail);
    f.hexdumps = {payload_dump(*c, c->payload->problem_offset, 1, "decoding stopped here")};
    return f;
  }
  return decoded_contexts(e).empty() ? nothing_to_judge(e) : passed();
}

Finding field_numbers(const ImageEvidence& e) {
  for (const Context* c : e.first_sights) {
    if (c->payload == nullptr || c->payload->problem != PayloadProblem::kFieldsMisplaced) continue;
    Finding f = failed(c->payload->detail, "fields misplaced");
    f.evidence = {maps_line(*c)};
    for (const auto& t : c->payload->top_level) {
      if (f.evidence.size() > kMaxListed) break;
      f.evidence.push_back(fmt::format("offset {}: field {}, wire type {}, {} bytes", t.offset,
                                       t.number, t.wire_type, t.value_size));
    }
    f.hexdumps = {payload_dump(*c, c->payload->problem_offset, 1, "this tag")};
    return f;
  }
  const auto contexts = decoded_contexts(e);
  if (contexts.empty()) return nothing_to_judge(e);
  const Payload& last = *contexts.back()->payload;
  if (!last.unknown.empty()) {
    return info(fmt::format("unknown field {} at offset {}, which readers skip",
                            last.unknown.front().number, last.unknown.front().offset),
                "unknown fields");
  }
  return passed();
}

Finding resource_keys_unique(const ImageEvidence& e) {
  Finding f = list_faults(e, &Payload::resource_key_repeats, "a Resource key occurs twice",
                          "repeated Resource key");
  if (f.outcome != Outcome::kPass) return f;
  for (const Context* c : decoded_contexts(e)) {
    if (c->payload->keys_in_both.empty()) continue;
    return info(fmt::format("the key {} is both in the Resource and in field 2",
                            c->payload->keys_in_both.front()),
                "key in both lists");
  }
  return f;
}

Finding attribute_keys_unique(const ImageEvidence& e) {
  return list_faults(e, &Payload::attribute_key_repeats, "a key of field 2 occurs twice",
                     "repeated key in field 2");
}

Finding nested_keys_unique(const ImageEvidence& e) {
  return list_faults(e, &Payload::nested_key_repeats, "a key of a nested list occurs twice",
                     "repeated nested key");
}

Finding strings_are_utf8(const ImageEvidence& e) {
  return list_faults(e, &Payload::bad_utf8, "not valid UTF-8", "invalid UTF-8");
}

Finding no_dictionary_references(const ImageEvidence& e) {
  return list_faults(e, &Payload::dictionary_uses, "an index into a dictionary that does not exist",
                     "dictionary reference");
}

// Requirements about entity references say nothing of a Resource that has none.
Finding list_entities(const ImageEvidence& e, std::vector<PayloadFault> Payload::* member,
                      const char* what, const char* signature) {
  const auto contexts = decoded_contexts(e);
  const bool any =
      std::ranges::any_of(contexts, [](const Context* c) { return c->payload->entities > 0; });
  if (contexts.empty() || any) return list_faults(e, member, what, signature);
  return not_applicable(NaReason::kCapability, "the Resource refers to no entity");
}

Finding entity_keys_exist(const ImageEvidence& e) {
  return list_entities(e, &Payload::entity_key_misses, "an entity names a key that is not there",
                       "entity key without attribute");
}

Finding entity_type(const ImageEvidence& e) {
  return list_entities(e, &Payload::entities_without_type, "an entity without a type",
                       "entity without type");
}

Finding entity_id(const ImageEvidence& e) {
  return list_entities(e, &Payload::entities_without_id, "no key identifies an entity",
                       "entity without id_keys");
}

Finding semantic_conventions(const ImageEvidence& e) {
  const auto contexts = decoded_contexts(e);
  std::optional<Finding> slip;  // perhaps a name of the user's own
  for (const Context* c : contexts) {
    for (const auto* list : {&c->payload->resource, &c->payload->attributes}) {
      for (const auto& a : *list) {
        const auto better = conventional_name_near(a.key);
        if (better.empty()) continue;
        const std::string saw = fmt::format("the key {} is nearly {}", a.key, better);
        constexpr const char* kSignature = "near miss of a conventional name";
        const bool same = is_same_name(a.key, better);
        Finding f = same ? failed(saw, kSignature) : info(saw, kSignature);
        f.evidence = {maps_line(*c)};
        if (same) return f;
        if (!slip) slip = std::move(f);
      }
    }
  }
  if (slip) return *slip;
  return contexts.empty() ? nothing_to_judge(e) : passed();
}

// The contexts that the image showed last. The SDK may have had another configuration when earlier
// ones were published.
std::vector<const Context*> published_last(const ImageEvidence& e) {
  std::vector<const Context*> out;
  std::uint64_t last = 0;
  for (const auto& list : e.contexts) {
    for (const Context& c : list) {
      if (!c.candidate->named || !c.usable() || c.payload == nullptr ||
          c.payload->problem != PayloadProblem::kNone || c.snapshot->last_seen_ns < last) {
        continue;
      }
      if (c.snapshot->last_seen_ns > last) out.clear();
      last = c.snapshot->last_seen_ns;
      out.push_back(&c);
    }
  }
  return out;
}

Finding resource_matches_sdk(const ImageEvidence& e) {
  const auto& expected = e.timeline->expected_resource;
  if (expected.empty() && e.session != nullptr) return resource_as_given(e);
  if (expected.empty()) {
    return unobservable("the harness was not told what the SDK is configured with",
                        "--expect-resource KEY=VALUE");
  }
  const auto contexts = published_last(e);
  if (contexts.empty()) return nothing_to_judge(e);
  Finding f = passed();
  for (const auto& pair : expected) {
    const auto key = pair.substr(0, pair.find('='));
    const auto value = pair.substr(std::min(pair.size(), key.size() + 1));
    bool found = false;
    std::string other = "no such attribute";
    for (const Context* c : contexts) {
      for (const auto& a : c->payload->attributes) {
        if (a.key == key) other = "in field 2, and not in the Resource";
      }
      for (const auto& a : c->payload->resource) {
        if (a.key != key) continue;
        if (a.value == value) found = true;
        other = fmt::format("{} bytes, not the {} that were expected: \"{}\"", a.value.size(),
                            value.size(), a.value.substr(0, 80));
      }
    }
    if (found) continue;
    if (f.outcome == Outcome::kPass) {
      f = failed(fmt::format("{}: {}", key, other), "expected attribute missing or changed");
      f.evidence = {maps_line(*contexts.back())};
    } else if (f.evidence.size() < kMaxListed) {
      f.evidence.push_back(fmt::format("also {}: {}", key, other));
    }
  }
  return f;
}

Finding readable(const ImageEvidence& e) {
  bool judged = false;
  std::uint64_t too_large = 0;
  for (const Context* c : e.first_sights) {
    const auto* b = c->payload_block;
    if (b == nullptr || c->payload_mapping() == nullptr) continue;
    if (c->payload_mapped() < b->wanted && b->readable < b->wanted) continue;  // payload-size
    if (b->readable < b->wanted && b->readable >= kMostPayload) {
      too_large = b->wanted;
      continue;
    }
    judged = true;
    if (b->readable == b->wanted) continue;
    const std::uint64_t bad = c->address() + b->readable;
    Finding f = failed(
        fmt::format("process_vm_readv copies {} of {} bytes: {:#x} is mapped and cannot be read",
                    b->readable, b->wanted, bad),
        "payload cannot be copied");
    for (const auto& n : c->candidate->neighbours) {
      if (n.range.contains(sys::RemoteAddr(bad))) f.evidence.push_back("maps: " + to_maps_line(n));
    }
    f.hexdumps = {header_dump(*c, {{24, 8, "payload"}})};
    return f;
  }
  if (too_large > 0) {
    return unobservable(
        fmt::format("the first {} of {} bytes can be copied, and the rest was not tried",
                    kMostPayload, too_large),
        fmt::format("a payload of at most {} MiB", kMostPayload >> 20U));
  }
  return judged ? passed() : nothing_to_judge(e);
}

Finding stays_alive(const ImageEvidence& e) {
  bool judged = false;
  std::optional<Finding> at_exit;
  for (const Context* first : e.first_sights) {
    if (!first->is_decoded()) continue;
    for (const auto& list : e.contexts) {
      for (const Context& c : list) {
        if (!c.usable() || !c.candidate->named || c.start() != first->start() ||
            c.header != first->header ||
            c.snapshot->last_seen_ns < first->snapshot->first_seen_ns) {
          continue;
        }
        judged = judged || c.snapshot != first->snapshot || c.snapshot->times > 1;
        const auto* b = c.payload_block;
        const bool gone = b == nullptr || b->readable < b->wanted;
        const bool garbage = c.payload != nullptr && c.payload->problem != PayloadProblem::kNone;
        if (!gone && !garbage) continue;
        const auto at = fmt::format(
            "{:.1f} s after it was first seen",
            static_cast<double>(c.snapshot->first_seen_ns - first->snapshot->first_seen_ns) / 1e9);
        // The memory of a process that is about to end goes in some order.
        if (begins_at_exit(*c.snapshot)) {
          at_exit = info("the payload was released while the process ended, under a valid header",
                         "payload released at exit");
          continue;
        }
        Finding f = failed(
            gone ? fmt::format("the announced payload can no longer be copied ({} of {} bytes) {}",
                               b == nullptr ? 0 : b->readable, first->payload_block->wanted, at)
                 : fmt::format("the announced payload no longer decodes {}: {}", at,
                               c.payload->detail),
            gone ? "payload gone" : "payload overwritten");
        f.evidence = {maps_line(c),
                      fmt::format("hash {:#x} at first, {:#x} now", first->payload_block->hash,
                                  b == nullptr ? 0 : b->hash)};
        f.hexdumps = {header_dump(c, {{16, 8, "timestamp: unchanged"}}),
                      payload_dump(c, 0, 16, "now")};
        return f;
      }
    }
  }
  if (at_exit) return *at_exit;
  if (judged) return passed();
  if (decoded_contexts(e).empty()) return nothing_to_judge(e);
  return unobservable("the payload was seen only once", "a program that runs for at least 100 ms");
}

constexpr auto kPayloadRules = std::to_array<RequirementRule>({
    {"pctx.payload.process-context-message", process_context_message, AskedOf::kImages,
     RestsOn::kStates, UnderFaults::kJudged},
    {"pctx.payload.field-numbers", field_numbers, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"pctx.payload.resource-keys-unique", resource_keys_unique, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"pctx.payload.attribute-keys-unique", attribute_keys_unique, AskedOf::kImages,
     RestsOn::kStates, UnderFaults::kJudged},
    {"pctx.payload.nested-keys-unique", nested_keys_unique, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"pctx.payload.utf8", strings_are_utf8, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"pctx.payload.no-dictionary-references", no_dictionary_references, AskedOf::kImages,
     RestsOn::kStates, UnderFaults::kJudged},
    {"pctx.payload.entity-keys-exist", entity_keys_exist, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"pctx.payload.entity-type", entity_type, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"pctx.payload.entity-id-keys", entity_id, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"pctx.payload.semantic-conventions", semantic_conventions, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"pctx.payload.resource-matches-sdk", resource_matches_sdk, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"pctx.payload.readable", readable, AskedOf::kImages, RestsOn::kStates, UnderFaults::kJudged},
    {"pctx.payload.stays-alive", stays_alive, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
});

}  // namespace

std::span<const RequirementRule> payload_rules() { return kPayloadRules; }

}  // namespace ctxconf::conformance
