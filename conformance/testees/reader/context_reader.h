// Finds the process context of one process among its mappings, and remembers it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "conformance/testees/reader/context_copy.h"
#include "conformance/testees/reader/header.h"
#include "conformance/testees/reader/mappings.h"
#include "conformance/testees/reader/memory.h"
#include "conformance/testees/reader/payload.h"
#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {

extern const Choices kSearchChoices;

enum class Result { kAccept, kAbsent, kReject, kRetry };

struct Context {
  Mapping mapping;
  Header header;
  Message message;
};
using SharedContext = std::shared_ptr<const Context>;

struct SearchResult {
  Result result = Result::kAbsent;
  SharedContext context = nullptr;  // with kAccept
  int error = 0;                    // errno: why the process cannot be looked into
  bool has_candidates = false;
};

class ContextReader {
 public:
  explicit ContextReader(pid_t pid) : pid_(pid) {}

  // Looks a few times while the context is being changed.
  SearchResult read();
  // Call it if the reader was started after the process, and so missed the naming call.
  void miss_call();

 private:
  struct Candidate {
    Mapping mapping;
    Header header;
  };

  SearchResult look();
  std::optional<SearchResult> look_at_known(const Memory& memory);
  std::vector<Candidate> valid_ones(const Memory& memory, const Mappings& candidates);
  SearchResult choose(const Memory& memory, const Mappings& candidates,
                      std::vector<Candidate> valid);
  SearchResult use(const Memory& memory, const Candidate& candidate);
  SearchResult merged(const Memory& memory, const std::vector<Candidate>& valid);
  SearchResult nothing_valid();
  SearchResult remembered(SearchResult found, const Memory& memory);
  bool must_not_look() const;

  pid_t pid_;
  Mappings mappings_;    // at the last search
  SharedContext known_;  // the last one that was good
  bool zero_ = false;    // the last look met a zero timestamp
  int error_ = 0;        // errno of the last header that could not be copied

  // What only a broken reader keeps.
  CopyMemory kept_;
  std::set<std::uint64_t> ignored_;          // addresses of mappings
  std::optional<Mappings> waits_for_other_;  // candidates; nothing happens until there are others
  std::optional<std::chrono::steady_clock::time_point> begin_;
  bool had_candidates_ = false;
  bool retried_ = false;
  bool missed_call_ = false;                 // that named the mapping
  std::optional<std::uint64_t> since_call_;  // timestamp at the first look after that
};

}  // namespace ctxconf::testees
