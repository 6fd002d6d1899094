// What an agent does with the processes of a host: it keeps something of each, and answers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "conformance/testees/reader/context_reader.h"
#include "conformance/testees/reader/record.h"
#include "conformance/testees/reader/reference_data.h"
#include "conformance/testees/reader/variable.h"
#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {

extern const Choices kAgentChoices;

struct Answer {
  Result result = Result::kAbsent;
  SharedContext context = nullptr;                    // of a process
  std::optional<Record> record = std::nullopt;        // of a thread
  std::optional<std::string> failure = std::nullopt;  // what a broken reader takes for an error
};

// What another source says of the trace of a thread.
struct SecondSource {
  std::string trace_id;
  std::string span_id;
};

class Agent {
 public:
  Agent();
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  Answer process(pid_t pid);
  Answer thread(pid_t pid, pid_t tid, const std::optional<SecondSource>& second);
  static Answer record(const std::vector<std::uint8_t>& bytes, const KeyMap& names);
  // Behaves as if it was started again.
  void forget(pid_t pid);
  // What it finds out about a process without a context.
  static Pairs defaults_of(pid_t pid);

 private:
  struct Process;

  Process& known(pid_t pid);
  void end_request(pid_t pid);
  SearchResult look(pid_t pid);
  SearchResult look_for_names(pid_t pid, Process& process);
  Answer sample_thread(pid_t pid, pid_t tid, Process& process);
  Answer parent_answer(pid_t pid);
  void find_variable_of(pid_t pid, Process& process, const Context& context);

  std::map<pid_t, std::unique_ptr<Process>> processes_;
  std::set<pid_t> is_missed_;  // ran before a broken reader
  std::vector<std::uint8_t> waste_;
};

}  // namespace ctxconf::testees
