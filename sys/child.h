// A child process that is not traced: started, given a deadline, its output
// kept up to a limit, ended and reaped with all it left behind.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sys/result.h"

namespace ctxconf::sys {

struct ChildOptions {
  std::vector<std::string> argv;       // argv[0] is looked up in PATH
  std::vector<std::string> extra_env;  // "KEY=VALUE", on top of ours
  std::string input;                   // written to its stdin, which is then closed
  // In the place of its stdin and stdout: a socket, as descriptor 3. Its stdin is at its end then,
  // and its stdout goes where its stderr does.
  bool descriptor3 = false;
  std::chrono::milliseconds deadline{10000};
  std::size_t output_limit = 16U << 20U;  // of each stream; the rest is read and dropped
  // A descriptor, not owned: while there is something to read from it nobody waits for the child
  // any more. read_line and write fail with ECANCELED, and wait kills at once.
  int interrupt = -1;
};

struct ChildResult {
  std::optional<int> exit_code;
  std::optional<int> killed_by;
  bool timed_out = false;  // killed by us at the deadline, or when we were interrupted
  std::string output;      // stdout
  std::string errors;      // stderr
  bool truncated = false;  // output_limit was reached
};

// Runs it in a process group of its own, which is killed as a whole at the end. It is killed, too,
// when the thread that started it ends.
// The error is that of the exec, with argv[0] as detail.
Result<ChildResult> run_child(const ChildOptions& options);

// Runs `work` in a fork of this process, for what may crash or never end: what it writes to the
// descriptor that it is given is the output. Without limits of its own but these; an exception
// makes it exit with kForkThrew. Nothing that it changes is seen here.
inline constexpr int kForkThrew = 70;
Result<ChildResult> run_forked(const std::function<void(int output)>& work,
                               std::chrono::milliseconds deadline, std::size_t output_limit);

// A child that goes on running, for tests and the self-test: killed and reaped
// (its process group too) when this object goes. `input` is only the first of
// what it is sent: its stdin stays open until wait(). `deadline` bounds each write.
class Child {
 public:
  static Result<Child> start(const ChildOptions& options);
  Child(Child&&) noexcept;
  Child& operator=(Child&&) noexcept;
  ~Child();
  int pid() const;
  // The next line of its stdout without the newline, or an error at the deadline or its end.
  Result<std::string> read_line(std::chrono::milliseconds deadline);
  Result<> write(const std::string& text);
  // Waits for its end and returns everything it printed after the lines that were read.
  Result<ChildResult> wait(std::chrono::milliseconds deadline);

 private:
  friend Result<ChildResult> run_forked(const std::function<void(int output)>& work,
                                        std::chrono::milliseconds deadline,
                                        std::size_t output_limit);
  struct State;
  explicit Child(State* state);
  State* state_ = nullptr;
};

}  // namespace ctxconf::sys
