// Groups the recorded system calls by publication. Keeps only calls that map, name or advise a
// mapping that held a context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/rules/evidence.h"

namespace ctxconf::conformance {

// prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME), whatever its result.
struct Naming {
  const SystemCall* call = nullptr;
  std::optional<abi::ProcessHeader> before;  // at entry, in the order of this machine
  bool valid() const { return before && abi::is_valid(*before); }
};

// A timestamp that a valid header had, at its first sight in a snapshot or a naming call.
struct Sight {
  std::uint64_t timestamp = 0;
  std::uint64_t first_ns = 0;
  std::uint64_t last_ns = 0;
  bool at_rest = false;  // seen before the program was about to end
};

// Where the mapping ends after a call that let it grow in place.
struct Growth {
  const SystemCall* call = nullptr;
  std::uint64_t size = 0;
};

// A mapping that held a context, from the call that made it to the one that ended it.
struct Publication {
  std::uint64_t start = 0;
  std::uint64_t last_seen_ns = 0;      // the last look that found it
  std::uint64_t seen_end = 0;          // the last that maps showed before it grew; 0: none
  std::vector<Growth> growths;         // in order
  const Context* context = nullptr;    // one that was seen in it; never null
  const SystemCall* map = nullptr;     // mmap, or mremap to here; null: not seen
  const SystemCall* create = nullptr;  // memfd_create of what `map` maps; null: none, or not seen
  std::vector<const SystemCall*> attempts;  // memfd_create refused before `create` or `map`
  std::vector<const SystemCall*> sizings;   // of that memfd, successful
  std::vector<Naming> namings;              // is_context_naming, whose address is in the mapping
  std::vector<Naming> renamings;            // those that give it another name, or take it away
  const SystemCall* dontfork = nullptr;     // the first for its start that succeeded
  const SystemCall* moved = nullptr;        // mremap that moved it away
  std::vector<Sight> sights;                // distinct timestamps, in order
  std::span<const SystemCall> calls;        // of the image, while the mapping existed

  // Whether this image made it or works on it. A forked child's copy is not the child's
  // publication.
  bool own() const { return map != nullptr || !namings.empty() || dontfork != nullptr; }
  // Whether the store is to its header, as far as the call that made the mapping is known.
  bool is_stored_to(const Store& s) const {
    return s.header == start && (map == nullptr || s.order >= map->left_order);
  }
  // Where the last page ends, as of the call (one of `calls`); 0: not known.
  std::uint64_t end_at(const SystemCall& call, std::uint64_t page) const;
};

// The hidden contexts in the last snapshot, if it has no named one and readers found contexts
// before: the image prepared them for publication, and their memory never had a right name. Other
// copies of a header are the program's own affair.
std::vector<const Context*> hidden_after_usable_ones(const ImageEvidence& evidence);

// The contexts for which publications are searched: those that rules judge, and later ones without
// a name. If no context has a name, the hidden ones.
std::vector<const Context*> relevant_contexts(const ImageEvidence& evidence);

std::vector<Publication> publications_of(const ImageEvidence& evidence);

// Whether a child would have been made while the mapping existed, before or after MADV_DONTFORK
// marked it; kNeither also where it was never seen to be marked.
enum class ForkTime { kNeither, kBeforeMark, kAfterMark };
ForkTime fork_time(const ImageEvidence& evidence, const Publication& p, const ForkProbe& fork);
// The header that such a child has where the mapping begins, if any byte of it is not zero; empty:
// it has none.
std::span<const std::byte> inherited_header(const Publication& p, const ForkProbe& fork);

// Whether the call names memory, whichever it is, with any name or none.
bool is_naming(const SystemCall& call);
// Whether it does so with OTEL_CTX, or with a name that may be meant as it. A call with another
// name, or with none, announces nothing: it may end a context, or label memory for other reasons.
bool is_context_naming(const SystemCall& call);
// Whether the host has what is probed by that name; nothing: it was not found out.
std::optional<bool> host_has(const Timeline& timeline, std::string_view name);

// "prctl(0x53564d41, 0x0, 0x7f..., 0x1000, "OTEL_CTX") = -22, thread 12"
std::string call_line(const SystemCall& call);
std::vector<std::string> call_lines(std::initializer_list<const SystemCall*> calls);

// Whether no call is missing in the recording, as far as one can know. A filter that the program
// installs itself may answer its calls before an observer learns of them.
bool is_complete(const Image& image);

// Whether the writer has finished the calls after the timestamp. Signs: a later timestamp, two
// seconds, or the normal end of a process whose first thread is the writer.
bool is_past(const ImageEvidence& evidence, const Publication& p, const Sight& sight);

}  // namespace ctxconf::conformance
