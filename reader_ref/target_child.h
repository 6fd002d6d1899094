// For tests: reader_test_target as a child.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "sys/fd.h"

namespace ctxconf::reader {

// A program with one good thread in addition to the leader.
class Target {
 public:
  Target() {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (pipe(in.data()) != 0 || pipe(out.data()) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      execl(CTXCONF_BIN_DIR "/reader_test_target", "reader_test_target", "good", nullptr);
      _exit(1);
    }
    orders_ = sys::Fd(in[1]);
    close(in[0]);
    close(out[1]);
    std::string text;
    for (char c = 0; !text.ends_with("ready\n") && read(out[0], &c, 1) == 1;) text += c;
    close(out[0]);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target() { end(); }

  pid_t pid() const { return pid_; }
  // A line that reader_ref/test_target.c knows.
  void order(std::string line) const {
    line += '\n';
    if (write(orders_.get(), line.data(), line.size()) < 0) _exit(99);
  }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  sys::Fd orders_;  // its stdin
};

}  // namespace ctxconf::reader
