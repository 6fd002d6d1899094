#include "sys/code_stack.h"

#include <elfutils/libdwfl.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "sys/arch/registers.h"
#include "sys/child.h"
#include "sys/code_child.h"
#include "sys/fd.h"
#include "sys/map_table.h"

namespace ctxconf::sys {
namespace {

struct CallerAnswer {
  std::uint64_t stack = 0;
  std::uint64_t address = 0;
};

// Everything before find_callers runs in the child.

struct Session {
  std::span<const StackCopy> stacks;
  const StackCopy* current = nullptr;
};

pid_t next_thread(Dwfl* /*session*/, void* /*arg*/, void** /*thread*/) { return 0; }

// Threads are numbered from 1.
bool get_thread(Dwfl* /*session*/, pid_t tid, void* arg, void** thread) {
  auto& s = *static_cast<Session*>(arg);
  if (tid < 1 || static_cast<std::size_t>(tid) > s.stacks.size()) return false;
  s.current = &s.stacks[static_cast<std::size_t>(tid) - 1];
  *thread = &s;
  return true;
}

bool read_memory(Dwfl* /*session*/, Dwarf_Addr address, Dwarf_Word* result, void* arg) {
  const StackCopy* stack = static_cast<Session*>(arg)->current;
  if (stack == nullptr || address < stack->sp()) return false;
  const std::uint64_t at = address - stack->sp();
  if (at > stack->bytes.size() || stack->bytes.size() - at < sizeof *result) return false;
  std::memcpy(result, &stack->bytes[at], sizeof *result);
  return true;
}

bool set_registers(Dwfl_Thread* thread, void* arg) {
  const StackCopy& stack = *static_cast<Session*>(arg)->current;
  std::array<Dwarf_Word, std::tuple_size_v<decltype(stack.registers)>> words{};
  std::ranges::copy(stack.registers, words.begin());
  if (!arch::native::kUnwindsFromSeparatePc) {
    return dwfl_thread_state_registers(thread, 0, words.size(), words.data());
  }
  dwfl_thread_state_register_pc(thread, stack.pc());
  return dwfl_thread_state_registers(thread, 0, StackCopy::kProgramCounter, words.data());
}

struct Frames {
  std::vector<std::uint64_t> callers;
  bool innermost = true;
};

int add_frame(Dwfl_Frame* frame, void* arg) {
  auto& frames = *static_cast<Frames*>(arg);
  Dwarf_Addr pc = 0;
  bool is_activation = false;
  if (!dwfl_frame_pc(frame, &pc, &is_activation)) return DWARF_CB_ABORT;
  if (!std::exchange(frames.innermost, false))
    frames.callers.push_back(is_activation ? pc : pc - 1);
  return frames.callers.size() < kMostCallers ? DWARF_CB_OK : DWARF_CB_ABORT;
}

void report(Dwfl* session, std::span<const CodeMapping> code) {
  std::set<std::string_view> known;
  for (const CodeMapping& mapping : code) {
    if (mapping.file == nullptr || !known.insert(mapping.path).second) continue;
    Elf* elf = elf_begin(mapping.file->fd(), ELF_C_READ_MMAP, nullptr);
    if (elf == nullptr) continue;
    const auto bias = code_bias(elf, mapping.begin, mapping.offset);
    elf_end(elf);
    if (!bias) continue;
    (void)dwfl_report_elf(session, mapping.path.c_str(), mapping.path.c_str(),
                          dup(mapping.file->fd()), *bias, true);
  }
}

void unwind(std::span<const CodeMapping> code, std::span<const StackCopy> stacks, int out) {
  static constexpr Dwfl_Callbacks kFiles{
      .find_elf = nullptr,
      .find_debuginfo = [](Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                           GElf_Word, char**) { return -1; },
      .section_address = dwfl_offline_section_address,
      .debuginfo_path = nullptr};
  static constexpr Dwfl_Thread_Callbacks kThreads{.next_thread = next_thread,
                                                  .get_thread = get_thread,
                                                  .memory_read = read_memory,
                                                  .set_initial_registers = set_registers,
                                                  .detach = nullptr,
                                                  .thread_detach = nullptr};
  Dwfl* session = dwfl_begin(&kFiles);
  if (session == nullptr) return;
  elf_version(EV_CURRENT);
  dwfl_report_begin(session);
  report(session, code);
  dwfl_report_end(session, nullptr, nullptr);
  if (!forbid_files()) return;
  Session arg{stacks, nullptr};
  if (!dwfl_attach_state(session, nullptr, getpid(), &kThreads, &arg)) return;
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    Frames frames;
    (void)dwfl_getthread_frames(session, static_cast<pid_t>(i + 1), add_frame, &frames);
    for (const std::uint64_t address : frames.callers) {
      const CallerAnswer a{i, address};
      if (write_all(out, {reinterpret_cast<const char*>(&a), sizeof a}) != 0) return;
    }
  }
}

}  // namespace

Result<StackCopy> copy_registers(pid_t tid) {
  CTX_ASSIGN_OR_RETURN(registers, arch::registers(tid));
  StackCopy stack;
  stack.registers = unwind_registers(registers);
  return stack;
}

void copy_stack(const MemoryReader& memory, std::size_t size, StackCopy& stack) {
  stack.bytes.resize(size);
  stack.bytes.resize(memory.read_some(RemoteAddr(stack.sp()), stack.bytes).value_or(0));
}

Callers find_callers(std::span<const CodeMapping> code, std::span<const StackCopy> stacks,
                     const CodeLookUpLimits& limits) {
  Callers out;
  out.found.resize(stacks.size());
  if (stacks.empty() || code.empty()) return out;
  const auto work = [&](int output) {
    limit_memory(limits.memory);
    unwind(code, stacks, output);
  };
  const auto ran =
      run_forked(work, limits.time, stacks.size() * kMostCallers * sizeof(CallerAnswer));
  if (!ran) {
    out.problem = to_string(ran.error());
    return out;
  }
  std::string_view bytes = ran->output;
  while (bytes.size() >= sizeof(CallerAnswer)) {
    CallerAnswer a;
    std::memcpy(&a, bytes.data(), sizeof a);
    bytes.remove_prefix(sizeof a);
    if (a.stack < out.found.size()) out.found[a.stack].push_back(a.address);
  }
  if (ran->timed_out || ran->killed_by || ran->exit_code != 0) {
    out.problem = "some callers could not be found: reading the files " +
                  std::string(ran->timed_out ? "took too long" : "crashed or took too much memory");
  }
  return out;
}

}  // namespace ctxconf::sys
