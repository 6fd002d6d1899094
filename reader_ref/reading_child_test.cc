#include "reader_ref/reading_child.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace ctxconf::reader {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongTimeout{60'000};

TEST(ReadingChild, KeepsItsStateAndItsAnswersMayBeLong) {
  int calls = 0;
  ReadingChild child(
      [&](pid_t pid) { return std::string(1U << 20U, 'x') + std::to_string(pid + ++calls); },
      kLongTimeout);
  EXPECT_TRUE(child.ask(40)->ends_with("x41"));
  EXPECT_TRUE(child.ask(40)->ends_with("x42"));
  EXPECT_EQ(calls, 0);  // it ran in another process
}

TEST(ReadingChild, AfterOneThatDoesNotAnswerComesAnother) {
  ReadingChild child(
      [](pid_t pid) {
        pause();
        return std::to_string(pid);
      },
      milliseconds(1));
  EXPECT_EQ(child.ask(1).error().err, ETIMEDOUT);
  EXPECT_EQ(child.ask(1).error().err, ETIMEDOUT);
}

TEST(ReadingChild, OneThatCrashesIsReplaced) {
  ReadingChild child(
      [](pid_t pid) {
        if (pid == 1) _exit(1);
        return std::to_string(pid);
      },
      kLongTimeout);
  EXPECT_EQ(child.ask(1).error().err, EPIPE);
  EXPECT_EQ(*child.ask(2), "2");
}

}  // namespace
}  // namespace ctxconf::reader
