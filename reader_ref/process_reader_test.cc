#include "reader_ref/process_reader.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "sys/fd.h"

namespace ctxconf::reader {
namespace {

// reader_test_target with one good thread.
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
  ~Target() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  sys::Fd orders_;  // its stdin
};

TEST(ProcessReader, ThreadsThatTheTimeDoesNotSufficeForAreNamed) {
  const Target target;
  sys::ElfCache files;
  ReaderOptions options;
  options.stop_budget = std::chrono::milliseconds(0);
  const auto report = ProcessReader(target.pid(), options, files).read();
  ASSERT_TRUE(report) << sys::to_string(report.error());
  ASSERT_TRUE(report->threads_read) << report->threads_why;
  ASSERT_EQ(report->threads.size(), 2);
  for (const ThreadReport& thread : report->threads) {
    EXPECT_FALSE(thread.context);
    EXPECT_EQ(thread.why, "not read: time is up");
  }
}

}  // namespace
}  // namespace ctxconf::reader
