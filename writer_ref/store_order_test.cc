// Checks every instruction boundary of publish, update and drop as a reader could see it: the
// process single-steps itself with the trap flag and reads its own header. It steps the library
// that programs link, which is optimised in every build.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "abi/process_header.h"
#include "writer_ref/otel_ctx.h"

namespace ctxconf::writer {
namespace {

// What changed between two boundaries.
struct Change {
  abi::ProcessHeader before;
  abi::ProcessHeader after;
  bool payload_complete;  // `after` points to the text of the current operation
  bool old_payload_intact;
};

struct Recording {
  std::array<Change, 64> changes;
  std::size_t count;
  std::uint64_t steps;
  std::uint64_t steps_at_zero;  // instructions
  std::uint64_t calls_at_zero;
};

// Shared with the child that single-steps itself.
Recording* recording = nullptr;
const abi::ProcessHeader* header = nullptr;
abi::ProcessHeader last;
std::string_view expected;
std::string_view old_text;

#if defined(__x86_64__)

// Follows the header from the call that keeps it from children, which comes before its first store,
// to the call that unmaps it.
void follow_header(const gregset_t& registers) {
  const auto at = static_cast<std::uintptr_t>(registers[REG_RDI]);
  if (registers[REG_RAX] == SYS_madvise && registers[REG_RDX] == MADV_DONTFORK) {
    if (header == nullptr) header = std::bit_cast<const abi::ProcessHeader*>(at);
  } else if (registers[REG_RAX] == SYS_munmap && at == std::bit_cast<std::uintptr_t>(header)) {
    header = nullptr;
  }
}

// Runs at every boundary: must not allocate, lock or call libc.
void look(int, siginfo_t*, void* context) {
  ++recording->steps;
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* code = std::bit_cast<const unsigned char*>(registers[REG_RIP]);
  const bool at_call = code[0] == 0x0f && code[1] == 0x05;
  if (at_call) follow_header(registers);
  if (header == nullptr) return;
  abi::ProcessHeader now;
  std::memcpy(&now, header, sizeof now);
  if (now.monotonic_published_at_ns == 0 && last.monotonic_published_at_ns == 0 &&
      recording->count != 0) {
    ++recording->steps_at_zero;
    if (at_call) ++recording->calls_at_zero;
  }
  if (std::memcmp(&now, &last, sizeof now) == 0) return;
  if (recording->count < recording->changes.size()) {
    Change& change = recording->changes[recording->count++];
    change.before = last;
    change.after = now;
    change.payload_complete =
        now.payload_size == expected.size() && now.payload != 0 &&
        std::memcmp(std::bit_cast<const void*>(now.payload), expected.data(), expected.size()) == 0;
    change.old_payload_intact =
        old_text.empty() || std::memcmp(std::bit_cast<const void*>(last.payload), old_text.data(),
                                        old_text.size()) == 0;
  }
  last = now;
}

// Below the red zone of the function that this is inlined into.
#define TRAP_FLAG(instruction)                                    \
  asm volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\t" instruction \
               "\n\tpopfq\n\tlea 128(%%rsp), %%rsp" ::            \
                   : "memory", "cc")
void step_from_here() { TRAP_FLAG("orq $0x100, (%%rsp)"); }
void step_no_more() { TRAP_FLAG("andq $-0x101, (%%rsp)"); }

enum class Operation { kPublish, kUpdate, kDrop };

// Runs the operation in a child that single-steps itself; returns the changes of its header.
const Recording& record(Operation operation) {
  void* const shared =
      mmap(nullptr, sizeof(Recording), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  recording = static_cast<Recording*>(shared);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    constexpr std::string_view one = "the first payload";
    constexpr std::string_view two = "the second payload, which is longer";
    int status = OTEL_CTX_OK;
    if (operation != Operation::kPublish) {
      status = otel_ctx_publish(one.data(), one.size(), nullptr);
      old_text = one;
      otel_ctx_info info;
      otel_ctx_get_info(&info);
      header = std::bit_cast<const abi::ProcessHeader*>(info.header);
      std::memcpy(&last, header, sizeof last);
    }
    expected = operation == Operation::kPublish ? one : two;
    struct sigaction action{};
    action.sa_sigaction = look;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, nullptr);
    if (status == OTEL_CTX_OK) {
      step_from_here();
      if (operation == Operation::kPublish)
        status = otel_ctx_publish(one.data(), one.size(), nullptr);
      if (operation == Operation::kUpdate)
        status = otel_ctx_update(two.data(), two.size(), nullptr);
      if (operation == Operation::kDrop) status = otel_ctx_drop(nullptr);
      step_no_more();
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_GT(recording->steps, 50U) << "nothing was stepped";
  EXPECT_LT(recording->count, recording->changes.size());
  return *recording;
}

int fields_changed(const Change& c) {
  return static_cast<int>(c.before.signature != c.after.signature) +
         static_cast<int>(c.before.version != c.after.version) +
         static_cast<int>(c.before.payload_size != c.after.payload_size) +
         static_cast<int>(c.before.payload != c.after.payload) +
         static_cast<int>(c.before.monotonic_published_at_ns != c.after.monotonic_published_at_ns);
}

TEST(StoreOrder, PublishStoresWholeFieldsAndTheTimestampLast) {
  const Recording& r = record(Operation::kPublish);
  ASSERT_EQ(r.count, 5U);
  for (std::size_t i = 0; i < r.count; ++i) {
    const Change& c = r.changes[i];
    EXPECT_EQ(fields_changed(c), 1);
    if (i + 1 < r.count) {
      EXPECT_EQ(c.after.monotonic_published_at_ns, 0U);
    }
    EXPECT_TRUE(c.after.signature == abi::kSignature || c.after.signature[0] == 0);
    EXPECT_TRUE(c.after.version == abi::kVersion || c.after.version == 0);
  }
  const Change& closing = r.changes[r.count - 1];
  EXPECT_TRUE(abi::is_valid(closing.after));
  EXPECT_TRUE(closing.payload_complete);
  EXPECT_FALSE(abi::is_valid(closing.before));
}

TEST(StoreOrder, UpdateChangesFieldsOnlyWhileTheTimestampIsZero) {
  const Recording& r = record(Operation::kUpdate);
  ASSERT_EQ(r.count, 4U);
  const Change& opening = r.changes[0];
  EXPECT_EQ(opening.after.monotonic_published_at_ns, 0U);
  EXPECT_TRUE(opening.old_payload_intact);
  for (std::size_t i = 0; i < r.count; ++i) {
    const Change& c = r.changes[i];
    EXPECT_EQ(fields_changed(c), 1);
    EXPECT_EQ(c.after.signature, abi::kSignature);
    EXPECT_EQ(c.after.version, abi::kVersion);
    if (i + 1 < r.count) {
      EXPECT_EQ(c.after.monotonic_published_at_ns, 0U);
    }
  }
  const Change& closing = r.changes[r.count - 1];
  EXPECT_GT(closing.after.monotonic_published_at_ns, opening.before.monotonic_published_at_ns);
  EXPECT_TRUE(closing.payload_complete);
  EXPECT_EQ(r.calls_at_zero, 0U) << "system calls while there is no context";
  EXPECT_LT(r.steps_at_zero, 20U) << "instructions while there is no context";
}

TEST(StoreOrder, DropOnlyZeroesTheTimestamp) {
  const Recording& r = record(Operation::kDrop);
  ASSERT_EQ(r.count, 1U);
  EXPECT_EQ(fields_changed(r.changes[0]), 1);
  EXPECT_EQ(r.changes[0].after.monotonic_published_at_ns, 0U);
  EXPECT_TRUE(r.changes[0].old_payload_intact);
}

#else

TEST(StoreOrder, IsStepped) { GTEST_SKIP() << "steps itself with the trap flag of x86-64"; }

#endif

}  // namespace
}  // namespace ctxconf::writer
