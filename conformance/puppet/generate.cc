#include "conformance/puppet/generate.h"

#include <utility>

namespace ctxconf::conformance::puppet {

namespace {

// Makes everything except the script.
Generated planned(std::uint64_t seed, std::uint64_t index, bool deviant, const Surroundings& host) {
  Rng rng(seed ^ (index * 2 + (deviant ? 1 : 0)) * 0xd1342543de82ef95U);
  Generated out;
  if (deviant) {
    const auto& all = deviations();
    for (auto i = index; out.deviation == nullptr; ++i) {
      const Deviation& next = all[i % all.size()];
      if (!next.needs_names || host.names_anonymous) out.deviation = &next;
    }
  }
  for (;;) {
    out.plan =
        legal_plan(rng, host, out.deviation != nullptr ? out.deviation->threads : Threads::kMaybe);
    if (out.deviation == nullptr) break;
    // What comes after the deviation would not be reached.
    out.plan.cut.reset();
    out.plan.exits = true;
    if (out.deviation->threads == Threads::kAlways) {
      for (Act& act : out.plan.acts) act.other_program = false;
    }
    if (out.deviation->apply(out.plan, rng)) break;
  }
  return out;
}

}  // namespace

Generated generate(std::uint64_t seed, std::uint64_t index, bool deviant,
                   const Surroundings& host) {
  Generated out = planned(seed, index, deviant, host);
  out.script = script_of(out.plan);
  return out;
}

Script generate_whole(std::uint64_t seed, std::uint64_t index, const Surroundings& host,
                      std::vector<Moment>& moments) {
  Plan plan = planned(seed, index, /*deviant=*/false, host).plan;
  plan.cut.reset();
  plan.exits = false;
  return script_of(plan, &moments);
}

namespace {

template <typename T>
bool set(T& to, const T& value) {
  if (to == value) return false;
  to = value;
  return true;
}

using ThreadChange = bool (*)(ThreadAct&);
constexpr ThreadChange kThreadChanges[] = {
    [](ThreadAct& a) { return set(a.in_handler, false); },
    [](ThreadAct& a) { return set(a.by_another, false); },
    [](ThreadAct& a) { return set(a.own_block, false); },
    [](ThreadAct& a) { return set(a.nested, false); },
    [](ThreadAct& a) { return set(a.reused, false); },
    [](ThreadAct& a) { return set(a.null_first, false); },
    [](ThreadAct& a) { return set(a.at_once, false); },
    [](ThreadAct& a) { return set(a.spare, std::uint64_t{0}); },
    [](ThreadAct& a) { return std::exchange(a.fence, std::nullopt).has_value(); },
    [](ThreadAct& a) { return set(a.order, StoreOrder::kPlain); },
    [](ThreadAct& a) { return set(a.memory, Memory::kMapping); },
    [](ThreadAct& a) { return set(a.writing, Writing::kWhole); },
    [](ThreadAct& a) { return set(a.how, CopyHow::kBytes); },
    [](ThreadAct& a) {
      if (a.record.attributes.empty()) return false;
      a.record.attributes.pop_back();
      return true;
    },
};

class Shrinker {
 public:
  Shrinker(Plan plan, const std::function<bool(const Script&)>& still)
      : best_(std::move(plan)), still_(still) {}

  Plan run() {
    for (bool smaller = true; smaller && tries_ < kMostTries;) {
      smaller = drop_acts();
      smaller = simplify() || smaller;
      smaller = cut() || smaller;
    }
    return best_;
  }

 private:
  static constexpr unsigned kMostTries = 400;

  // A second publication withdraws the first, unless that is the deviation.
  static bool is_legal(const Plan& plan) {
    bool published = false;
    for (const Act& act : plan.acts) {
      if (act.kind == Act::Kind::kDrop || act.kind == Act::Kind::kExec) published = false;
      if (act.kind != Act::Kind::kPublish) continue;
      if (published && !act.repeated) return false;
      published = true;
    }
    return true;
  }
  bool holds(const Plan& plan) {
    if (!is_legal(plan)) return false;
    ++tries_;
    Plan copy = plan;
    return still_(script_of(copy));
  }
  // A change that leaves the script as long as it was gains nothing.
  bool take(Plan plan) {
    if (tries_ >= kMostTries) return false;
    Plan before = best_;
    Plan after = plan;
    if (to_json(script_of(before)) == to_json(script_of(after))) return false;
    if (!holds(plan)) return false;
    best_ = std::move(plan);
    return true;
  }

  bool drop_acts() {
    bool smaller = false;
    for (std::size_t i = best_.acts.size(); i-- > 0;) {
      if (best_.acts[i].deviant) continue;
      Plan plan = best_;
      plan.acts.erase(plan.acts.begin() + static_cast<std::ptrdiff_t>(i));
      smaller = take(std::move(plan)) || smaller;
    }
    return smaller;
  }

  // Sets one property after the other to its most common value.
  template <typename Member>
  bool reset(Member member, bool harmless) {
    bool smaller = false;
    for (std::size_t i = 0; i < best_.acts.size(); ++i) {
      // It may be the deviation.
      if (best_.acts[i].deviant && !harmless) continue;
      Plan plan = best_;
      if (!member(plan.acts[i])) continue;
      smaller = take(std::move(plan)) || smaller;
    }
    return smaller;
  }

  bool simplify() {
    bool smaller = false;
    if (best_.threads > 0) {
      Plan plan = best_;
      plan.threads = 0;
      smaller = take(std::move(plan));
    }
    const auto free = [&](auto change) { smaller = reset(change, true) || smaller; };
    const auto knob = [&](auto change) { smaller = reset(change, false) || smaller; };
    free([&](Act& a) { return set(a.publication.noise, 0U); });
    free([&](Act& a) { return set(a.publication.threads, 0U); });
    free([&](Act& a) { return set(a.update.noise, 0U); });
    free([&](Act& a) { return set(a.update.threads, 0U); });
    knob([&](Act& a) { return set(a.publication.refused_first, false); });
    knob([&](Act& a) { return set(a.publication.sizing, Sizing::kTruncate); });
    knob([&](Act& a) { return set(a.publication.asked, std::uint64_t{0}); });
    free([&](Act& a) { return set(a.publication.more_advice, std::uint64_t{0}); });
    knob([&](Act& a) { return set(a.publication.advice_by_page, false); });
    free([&](Act& a) { return set(a.other_program, false); });
    free([&](Act& a) { return set(a.by_thread, false); });
    free([&](Act& a) { return set(a.publication.spare, std::uint64_t{0}); });
    free([&](Act& a) { return set(a.publication.zero_first, false); });
    knob([&](Act& a) {
      return a.publication.map_flags > 2 && set(a.publication.map_flags, std::uint64_t{2});
    });
    knob([&](Act& a) { return set(a.publication.style, Style::kFields); });
    knob([&](Act& a) { return set(a.update.style, Style::kFields); });
    knob([&](Act& a) { return set(a.update.same_signature, false); });
    knob([&](Act& a) { return set(a.update.release, Release::kKept); });
    free([&](Act& a) { return set(a.publication.how, CopyHow::kBytes); });
    for (const bool updates : {false, true}) {
      knob([&](Act& a) {
        auto& stamp = updates ? a.update.stamp : a.publication.stamp;
        const bool fence = std::exchange(stamp.fence, std::nullopt).has_value();
        return set(stamp.order, StoreOrder::kPlain) || fence;
      });
      knob([&](Act& a) {
        auto& late = updates ? a.update.late : a.publication.late;
        if (late.size() < 2) return false;
        late.resize(1);
        return true;
      });
      knob([&](Act& a) {
        auto& early = updates ? a.update.early : a.publication.early;
        auto& late = updates ? a.update.late : a.publication.late;
        if (early.empty() || late.empty()) return false;
        early.clear();
        return true;
      });
      knob([&](Act& a) {
        auto& content = updates ? a.update.content : a.publication.content;
        if (!content.raw.empty()) return false;
        Content simple;
        simple.reference = content.reference;
        simple.resource.push_back({"service.name", string_value("a"), {}});
        if (encode(content) == encode(simple)) return false;
        content = simple;
        return true;
      });
      knob([&](Act& a) {
        auto& content = updates ? a.update.content : a.publication.content;
        if (content.attributes.size() + content.resource.size() < 2) return false;
        (content.resource.size() > 1 ? content.resource : content.attributes).pop_back();
        return true;
      });
    }
    knob([&](Act& a) {
      if (a.publication.location == Location::kInline ||
          a.publication.location == Location::kAnonymous) {
        return false;
      }
      a.publication.location = Location::kAnonymous;
      return true;
    });
    knob([&](Act& a) {
      const auto pages = a.publication.pages;
      a.publication.pages = 1;
      make_room(a.publication);
      return a.publication.pages != pages;
    });
    for (const auto change : kThreadChanges) {
      knob([change](Act& a) { return a.kind == Act::Kind::kThread && change(a.thread); });
    }
    return smaller;
  }

  // Every prefix of a legal program is legal.
  bool cut() {
    bool any_deviant = false;
    for (const auto& act : best_.acts) any_deviant = any_deviant || act.deviant;
    if (any_deviant) return false;
    bool smaller = false;
    std::uint64_t low = 0;
    std::uint64_t high = best_.cut.value_or(1000);
    while (high - low > 10 && tries_ < kMostTries) {
      Plan plan = best_;
      plan.cut = low + (high - low) / 2;
      plan.killed = false;
      const auto at = *plan.cut;
      if (take(std::move(plan))) {
        high = at;
        smaller = true;
      } else {
        low = at;
      }
    }
    return smaller;
  }

  Plan best_;
  const std::function<bool(const Script&)>& still_;
  unsigned tries_ = 0;
};

}  // namespace

Plan shrink(Plan plan, const std::function<bool(const Script&)>& still) {
  return Shrinker(std::move(plan), still).run();
}

}  // namespace ctxconf::conformance::puppet
