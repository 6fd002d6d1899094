// `--inject SPEC`: fault injection, that is, chosen results for system calls of the program. Only
// calls about a publication match, in any thread and language.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "sys/result.h"

namespace ctxconf::conformance {

// CALL[(SELECTOR)]:error=ERRNO|value=N[:when=N|N+|update][:flags=SELECTOR]
struct InjectionSpec {
  enum class Kind {
    kError,
    kValue,   // clock_gettime: the time in ns
    kFrozen,  // clock_gettime: the first reading, again and again
    kBack,    // clock_gettime: a second less at each reading
    kCoarse,  // clock_gettime: the time, in steps of kCoarseStep
  };
  std::string text;         // as typed
  std::string call;         // a SystemCall's name
  std::uint64_t flags = 0;  // memfd_create: flags that the call must have
  std::int32_t clock = 0;   // clock_gettime: only this clock
  bool anonymous = false;   // mmap: only without a file
  Kind kind = Kind::kError;
  std::int64_t value = 0;  // an errno, or the value
  std::uint64_t first =
      1;  // number of the first injected call among those that match, per image; from 1
  std::uint64_t last = UINT64_MAX;
  bool updates = false;  // only calls that come after the image's first naming call are counted
};

inline constexpr std::uint64_t kCoarseStep = 4'000'000;  // ns, the tick of a kernel with HZ=250

// Appended to a complaint about a spec.
inline constexpr const char* kInjectionGrammar =
    "CALL[(SELECTOR)]:error=ERRNO|value=N[:when=N|N+|update], like memfd_create:error=EPERM, "
    "prctl(PR_SET_VMA):error=EINVAL:when=1 or clock_gettime:value=frozen";

// Parses a spec. The detail of an error says what is wrong and what would be right.
sys::Result<InjectionSpec> parse_injection(std::string_view text);

// The form in a recording; no call was injected yet.
Injection to_injection(const InjectionSpec& spec);
// Whether a program was refused anonymous memory by it.
bool has_refused_memory(const Injection& injection);

struct InjectResult {
  std::size_t spec = 0;                   // index
  std::int64_t result = 0;                // -errno for a failure
  std::optional<std::uint64_t> clock_ns;  // written to the caller's timespec
};

// Decides for the calls of one image, counted from its start. A call concerns a publication if it
//  * asks for a memfd whose name begins with OTEL_CTX; sizes or maps such a memfd
//  * gives a name that begins with OTEL_CTX, or names, moves or advises the memory of a context:
//    what was mapped of such a memfd, or anonymously after one was refused
//  * maps anonymous memory (mmap(MAP_ANONYMOUS)) in a thread that is publishing; CallRecorder
//    reports no others
//  * reads the clock that the spec names
class Injector {
 public:
  explicit Injector(const std::vector<InjectionSpec>& specs);

  // Before the call: its injected result, or nothing if the kernel runs it. If not `active`, the
  // kernel always runs it and it does not count for `when`. Also needs `entered_ns` of the call.
  std::optional<InjectResult> entered(const SystemCall& call, bool active = true);
  // Call it after the call has returned; `clock_ns` is the time that it gave.
  void left(std::int32_t tid, std::int64_t result, std::optional<std::uint64_t> clock_ns);

 private:
  struct State {
    std::uint64_t calls = 0;            // calls that matched
    std::optional<std::uint64_t> base;  // kFrozen, kBack: the first reading
    std::uint64_t given = 0;
  };
  struct InProgress {
    std::string name;
    bool memory = false;  // maps memory of a future context
    bool names = false;   // is the naming call of a context
    std::uint64_t size = 0;
    std::uint64_t from = 0;             // munmap, mremap: start of the removed range
    std::uint64_t gone = 0;             // ... and its size
    std::vector<std::size_t> base_for;  // specs that need its time
  };
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
  };

  bool is_context(std::uint64_t address) const;
  void forget(std::uint64_t begin, std::uint64_t size);
  bool matches(const InjectionSpec& spec, const SystemCall& call) const;

  const std::vector<InjectionSpec>& specs_;
  std::vector<State> states_;
  std::map<std::int32_t, InProgress> in_progress_;
  std::set<std::int32_t> refused_;  // threads whose last memfd failed
  std::vector<Span> contexts_;
  bool named_ = false;  // a context was named, or naming was tried
};

}  // namespace ctxconf::conformance
