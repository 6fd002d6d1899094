#include "conformance/faults/injection.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "abi/process_header.h"
#include "conformance/evidence/memory_calls.h"
#include "conformance/text/ascii.h"
#include "sys/tracer.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMostContexts = 1024;
constexpr std::uint64_t kSecond = 1'000'000'000;

struct Word {
  std::string_view name;
  std::int64_t value;
};

constexpr std::array<std::string_view, 7> kCalls = {
    "memfd_create", "ftruncate", "mmap", "madvise", "prctl", "mremap", "clock_gettime"};

constexpr std::array<Word, 5> kMemfdFlags = {{{"MFD_CLOEXEC", MFD_CLOEXEC},
                                              {"MFD_ALLOW_SEALING", MFD_ALLOW_SEALING},
                                              {"MFD_HUGETLB", MFD_HUGETLB},
                                              {"MFD_NOEXEC_SEAL", MFD_NOEXEC_SEAL},
                                              {"MFD_EXEC", MFD_EXEC}}};
constexpr std::array<Word, 6> kClocks = {{{"CLOCK_BOOTTIME", CLOCK_BOOTTIME},
                                          {"CLOCK_MONOTONIC", CLOCK_MONOTONIC},
                                          {"CLOCK_MONOTONIC_RAW", CLOCK_MONOTONIC_RAW},
                                          {"CLOCK_MONOTONIC_COARSE", CLOCK_MONOTONIC_COARSE},
                                          {"CLOCK_REALTIME", CLOCK_REALTIME},
                                          {"CLOCK_REALTIME_COARSE", CLOCK_REALTIME_COARSE}}};
constexpr std::array<Word, 3> kErrnoAliases = {
    {{"EWOULDBLOCK", EWOULDBLOCK}, {"EDEADLOCK", EDEADLOCK}, {"EOPNOTSUPP", EOPNOTSUPP}}};

// The kernel's errno numbers end at 4095; libc knows names for far fewer.
std::optional<std::int64_t> errno_from(std::string_view name) {
  for (int number = 1; number < 256; ++number) {
    const char* known = strerrorname_np(number);
    if (known != nullptr && name == known) return number;
  }
  const auto* alias = std::ranges::find(kErrnoAliases, name, &Word::name);
  if (alias != kErrnoAliases.end()) return alias->value;
  return std::nullopt;
}

std::string one_of(auto&& words) {
  std::string out;
  for (const auto& w : words) {
    out += out.empty() ? "" : ", ";
    if constexpr (requires { w.name; }) {
      out += w.name;
    } else {
      out += w;
    }
  }
  return out;
}

class Parser {
 public:
  explicit Parser(std::string_view text) { out_.text = text; }

  sys::Result<InjectionSpec> parse() {
    std::string_view rest = out_.text;
    if (rest.empty()) return wrong("it is empty, and names no call");
    const auto colon = rest.find(':');
    std::string_view call = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
    std::optional<std::string_view> selector;
    if (const auto open = call.find('('); open != std::string_view::npos) {
      if (!call.ends_with(')')) return wrong("its ( has no ) before the first :");
      selector = call.substr(open + 1, call.size() - open - 2);
      call = call.substr(0, open);
    }
    if (std::ranges::find(kCalls, call) == kCalls.end()) {
      return wrong(fmt::format("cannot inject into call {}: use one of {}", call, one_of(kCalls)));
    }
    out_.call = call;
    out_.clock = CLOCK_BOOTTIME;
    while (!rest.empty()) {
      const auto end = rest.find(':');
      const auto option = rest.substr(0, end);
      if (end != std::string_view::npos && end + 1 == rest.size()) {
        return wrong("it ends with a :");
      }
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
      const auto equals = option.find('=');
      const auto key = option.substr(0, equals);
      const auto value =
          equals == std::string_view::npos ? std::string_view() : option.substr(equals + 1);
      if (key == "flags" && equals != std::string_view::npos) {
        if (selector) return wrong("the selector is given twice");
        selector = value;
        continue;
      }
      CTX_RETURN_IF_ERROR(take(key, value));
    }
    if (selector) CTX_RETURN_IF_ERROR(select(*selector));
    if (!result_) return wrong("it does not say what the call returns: error=ERRNO or value=N");
    return std::move(out_);
  }

 private:
  std::unexpected<sys::Error> wrong(const std::string& what) const {
    return sys::fail("--inject", EINVAL,
                     fmt::format("--inject {}: {}", out_.text.empty() ? "\"\"" : out_.text, what));
  }

  sys::Result<> take(std::string_view key, std::string_view value) {
    if (key == "error" || key == "value") {
      if (std::exchange(result_, true)) return wrong("give error= or value=, and only once");
      return key == "error" ? take_error(value) : take_value(value);
    }
    if (key == "when") {
      if (std::exchange(when_, true)) return wrong("when= is given twice");
      return take_when(value);
    }
    return wrong(fmt::format("{} is not one of error=, value=, when=, flags=", key));
  }

  sys::Result<> take_error(std::string_view value) {
    const auto number = errno_from(value);
    if (!number) return wrong(fmt::format("unknown errno {}: use a name like EPERM", value));
    out_.kind = InjectionSpec::Kind::kError;
    out_.value = *number;
    return {};
  }

  sys::Result<> take_value(std::string_view value) {
    const bool clock = out_.call == "clock_gettime";
    out_.kind = InjectionSpec::Kind::kValue;
    if (clock && value == "frozen") {
      out_.kind = InjectionSpec::Kind::kFrozen;
      return {};
    }
    if (clock && value == "back") {
      out_.kind = InjectionSpec::Kind::kBack;
      return {};
    }
    if (clock && value == "coarse") {
      out_.kind = InjectionSpec::Kind::kCoarse;
      return {};
    }
    const auto number = number_from<std::int64_t>(value);
    if (!number || (clock && *number < 0)) {
      return wrong(
          fmt::format("value={} is {}", value,
                      clock ? "not a time: frozen, back, coarse or nanoseconds" : "not a number"));
    }
    if (!clock && *number < 0) return wrong("a failure is error=ERRNO, not a negative value");
    out_.value = *number;
    return {};
  }

  sys::Result<> take_when(std::string_view value) {
    if (value == "update") {
      out_.updates = true;
      return {};
    }
    const bool onwards = value.ends_with('+');
    const auto number =
        number_from<std::uint64_t>(onwards ? value.substr(0, value.size() - 1) : value);
    if (!number || *number == 0) {
      return wrong(
          fmt::format("when={} is not a count: 1 for the first call, 2+ for the second and "
                      "all later ones, update for those after the publication",
                      value));
    }
    out_.first = *number;
    if (!onwards) out_.last = *number;
    return {};
  }

  sys::Result<> select(std::string_view selector) {
    if (out_.call == "memfd_create") {
      while (true) {
        const auto bar = selector.find('|');
        const auto name = selector.substr(0, bar);
        const auto* flag = std::ranges::find(kMemfdFlags, name, &Word::name);
        if (flag == kMemfdFlags.end()) {
          return wrong(
              fmt::format("unknown flag {}: use {}, joined by |", name, one_of(kMemfdFlags)));
        }
        out_.flags |= static_cast<std::uint64_t>(flag->value);
        if (bar == std::string_view::npos) return {};
        selector = selector.substr(bar + 1);
      }
    }
    if (out_.call == "clock_gettime") {
      const auto* clock = std::ranges::find(kClocks, selector, &Word::name);
      if (clock == kClocks.end()) {
        return wrong(fmt::format("unknown clock {}: use one of {}", selector, one_of(kClocks)));
      }
      out_.clock = static_cast<std::int32_t>(clock->value);
      return {};
    }
    struct Only {
      std::string_view call;
      std::string_view selector;
    };
    static constexpr std::array<Only, 3> kOnly = {
        {{"mmap", "MAP_ANONYMOUS"}, {"madvise", "MADV_DONTFORK"}, {"prctl", "PR_SET_VMA"}}};
    const auto* only = std::ranges::find(kOnly, out_.call, &Only::call);
    if (only == kOnly.end()) return wrong(out_.call + " takes no selector");
    if (selector != only->selector) {
      return wrong(fmt::format("cannot inject into {}({}), only into {}({})", out_.call, selector,
                               only->call, only->selector));
    }
    out_.anonymous = out_.call == "mmap";
    return {};
  }

  InjectionSpec out_;
  bool result_ = false;
  bool when_ = false;
};

bool is_context_file(std::string_view file) { return file.starts_with(abi::kMemfdFile); }

bool is_context_name(std::string_view text) { return text.starts_with(abi::kMemfdName); }

}  // namespace

sys::Result<InjectionSpec> parse_injection(std::string_view text) { return Parser(text).parse(); }

Injection to_injection(const InjectionSpec& spec) {
  const bool error = spec.kind == InjectionSpec::Kind::kError;
  return {spec.text, spec.call, error ? -spec.value : spec.value, 0};
}

bool has_refused_memory(const Injection& injection) {
  if (injection.times == 0 || injection.result >= 0) return false;
  const auto spec = parse_injection(injection.spec);
  return spec && spec->anonymous;
}

Injector::Injector(const std::vector<InjectionSpec>& specs)
    : specs_(specs), states_(specs.size()) {}

bool Injector::is_context(std::uint64_t address) const {
  return std::ranges::any_of(
      contexts_, [&](Span s) { return address >= s.begin && address - s.begin < s.size; });
}

// The rest of a context's memory around a hole no longer counts as a context.
void Injector::forget(std::uint64_t begin, std::uint64_t size) {
  std::erase_if(contexts_, [&](Span s) {
    return s.begin < begin ? begin - s.begin < s.size : s.begin - begin < size;
  });
}

bool Injector::matches(const InjectionSpec& spec, const SystemCall& call) const {
  if (spec.call != call.name || (spec.updates && !named_)) return false;
  if (call.name == "memfd_create") {
    return is_context_name(call.text) && (call.args[1] & spec.flags) == spec.flags;
  }
  if (call.name == "ftruncate") return is_context_file(call.file);
  if (call.name == "mmap") {
    return spec.anonymous ? maps_anonymously(call) : is_context_file(call.file);
  }
  if (call.name == "prctl") return is_context_name(call.text) || is_context(call.args[2]);
  if (call.name == "clock_gettime") {
    return static_cast<std::int32_t>(call.args[0]) == spec.clock;
  }
  return is_context(call.args[0]);  // madvise, mremap
}

std::optional<InjectResult> Injector::entered(const SystemCall& call, bool active) {
  InProgress now;
  now.name = call.name;
  if (call.name == "mmap") {
    now.memory = maps_anonymously(call) ? refused_.contains(call.tid) : is_context_file(call.file);
    now.size = call.args[1];
  } else if (call.name == "mremap") {
    now.memory = is_context(call.args[0]);
    now.from = call.args[0];
    now.gone = call.args[1];
    now.size = call.args[2];
  } else if (call.name == "munmap") {
    now.from = call.args[0];
    now.gone = call.args[1];
  } else if (call.name == "prctl") {
    now.names = is_context_name(call.text);
  } else if (call.name == "memfd_create" && !is_context_name(call.text)) {
    now.name.clear();
  }
  std::optional<InjectResult> answer;
  for (std::size_t i = 0; active && i < specs_.size(); ++i) {
    const InjectionSpec& spec = specs_[i];
    State& state = states_[i];
    if (!matches(spec, call)) continue;
    ++state.calls;
    if (state.calls < spec.first || state.calls > spec.last || answer) continue;
    switch (spec.kind) {
      case InjectionSpec::Kind::kError:
        answer = InjectResult{i, -spec.value, std::nullopt};
        break;
      case InjectionSpec::Kind::kValue:
        answer = InjectResult{i, spec.value, std::nullopt};
        if (spec.call == "clock_gettime") {
          answer = InjectResult{i, 0, static_cast<std::uint64_t>(spec.value)};
        }
        break;
      case InjectionSpec::Kind::kCoarse:
        answer = InjectResult{i, 0, call.entered_ns - call.entered_ns % kCoarseStep};
        break;
      case InjectionSpec::Kind::kFrozen:
      case InjectionSpec::Kind::kBack: {
        if (!state.base) {
          now.base_for.push_back(i);
          break;
        }
        ++state.given;
        const std::uint64_t back =
            spec.kind == InjectionSpec::Kind::kBack ? state.given * kSecond : 0;
        answer = InjectResult{i, 0, *state.base - std::min(back, *state.base)};
        break;
      }
    }
  }
  in_progress_.insert_or_assign(call.tid, std::move(now));
  return answer;
}

void Injector::left(std::int32_t tid, std::int64_t result, std::optional<std::uint64_t> clock_ns) {
  const auto it = in_progress_.find(tid);
  if (it == in_progress_.end()) return;
  const InProgress now = std::move(it->second);
  in_progress_.erase(it);
  const bool failed = sys::is_error_result(result);
  for (const std::size_t i : now.base_for) {
    if (!failed && clock_ns && !states_[i].base) states_[i].base = clock_ns;
  }
  named_ = named_ || now.names;
  if (now.name == "memfd_create" && !failed) refused_.erase(tid);
  if (failed && (now.name == "memfd_create" || now.name == "ftruncate" || now.name == "mmap")) {
    refused_.insert(tid);
  }
  if (!failed && now.gone > 0) forget(now.from, now.gone);
  if (now.memory && !failed && now.size > 0 && contexts_.size() < kMostContexts) {
    // The result of a 32-bit program may be sign-extended.
    const auto begin =
        result < 0 ? static_cast<std::uint32_t>(result) : static_cast<std::uint64_t>(result);
    contexts_.push_back({begin, now.size});
  }
}

}  // namespace ctxconf::conformance
