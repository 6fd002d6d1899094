// A child process that is not traced: started, given a deadline and an output limit, ended, and
// reaped together with everything it left running.
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
  std::vector<std::string> extra_env;  // "KEY=VALUE", added to our environment
  std::string input;                   // written to its stdin, which is then closed
  // Replaces stdin and stdout: a socket, as descriptor 3. Its stdin is then at end of file, and its
  // stdout goes to the same place as its stderr.
  bool descriptor3 = false;
  std::chrono::milliseconds deadline{10000};
  std::size_t output_limit = 16U << 20U;  // of each stream; the rest is read and dropped
  // A descriptor, not owned. When it becomes readable, waiting for the child stops: read_line and
  // write fail with ECANCELED, and wait kills at once.
  int interrupt = -1;
};

struct ChildResult {
  std::optional<int> exit_code;
  std::optional<int> killed_by;
  bool timed_out = false;  // killed by us at the deadline, or because we were interrupted
  std::string output;      // stdout
  std::string errors;      // stderr
  bool truncated = false;  // output_limit was reached
};

// Runs it in a process group of its own, and kills the whole group at the end. It is also killed
// when the thread that started it ends. The error is that of the exec, with argv[0] as detail.
Result<ChildResult> run_child(const ChildOptions& options);

// Runs `work` in a fork of this process, for work that may crash or never end. The output is what
// `work` writes to the descriptor it gets. No other limits apply; an exception makes it exit with
// kForkThrew. This process does not see what it changes.
inline constexpr int kForkThrew = 70;
Result<ChildResult> run_forked(const std::function<void(int output)>& work,
                               std::chrono::milliseconds deadline, std::size_t output_limit);

// A child that keeps running, for tests and the self-test. The destructor kills and reaps it and
// its process group. `input` is only the first part of its stdin, which stays open until wait().
// `deadline` bounds each write.
class Child {
 public:
  static Result<Child> start(const ChildOptions& options);
  Child(Child&&) noexcept;
  Child& operator=(Child&&) noexcept;
  ~Child();
  int pid() const;
  // The next line of its stdout without the newline, or an error at the deadline or at the end of
  // output.
  Result<std::string> read_line(std::chrono::milliseconds deadline);
  Result<> write(const std::string& text);
  // Waits for its end and returns everything it printed after the lines already read.
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
