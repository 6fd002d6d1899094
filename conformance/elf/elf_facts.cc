#include "conformance/elf/elf_facts.h"

#include <capstone/capstone.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "abi/thread_record.h"
#include "conformance/elf/tls_access.h"

namespace ctxconf::conformance {
namespace {

using sys::ElfImage;
using sys::ElfSegment;

constexpr std::uint64_t kMostCode = std::uint64_t{64} << 20U;
constexpr std::size_t kChunk = std::size_t{1} << 20U;
constexpr std::size_t kMostCalls = 4096;
constexpr std::size_t kMostLocations = 2;
constexpr std::size_t kMostInstructions = 32;
constexpr std::size_t kInstructionsToCall = 4;
constexpr std::size_t kLongestInstruction = 15;

// lea rdi, [rip + d] for __tls_get_addr. General dynamic has a 0x66 before it as a pad; local
// dynamic does not. A descriptor is called with lea rax, [rip + d].
using LeaBytes = std::array<unsigned char, 3>;
constexpr LeaBytes kLeaRdi = {0x48, 0x8d, 0x3d};
constexpr LeaBytes kLeaRax = {0x48, 0x8d, 0x05};
constexpr std::size_t kLeaSize = 7;
constexpr unsigned char kPad = 0x66;

class Disassembler {
 public:
  Disassembler() {
    if (cs_open(CS_ARCH_X86, CS_MODE_64, &handle_) != CS_ERR_OK) return;
    cs_option(handle_, CS_OPT_DETAIL, CS_OPT_ON);
    instruction_ = cs_malloc(handle_);
  }
  Disassembler(const Disassembler&) = delete;
  Disassembler& operator=(const Disassembler&) = delete;
  ~Disassembler() {
    if (instruction_ != nullptr) cs_free(instruction_, 1);
    if (handle_ != 0) cs_close(&handle_);
  }
  // The instruction at the start of `code`, which is removed from `code`; null at its end. Valid
  // until the next call.
  const cs_insn* next(std::span<const unsigned char>& code, std::uint64_t& address) {
    if (instruction_ == nullptr) return nullptr;
    const std::uint8_t* at = code.data();
    std::size_t left = code.size();
    if (!cs_disasm_iter(handle_, &at, &left, &address, instruction_)) return nullptr;
    code = code.last(left);
    return instruction_;
  }
  // The general registers that the instruction changes, as full 64-bit registers.
  std::vector<x86_reg> written(const cs_insn& i);

 private:
  csh handle_ = 0;
  cs_insn* instruction_ = nullptr;
};

// rax for eax, ax and al; other registers stay the same.
x86_reg whole(unsigned reg) {
  static const std::map<unsigned, x86_reg> kParts = {
      {X86_REG_EAX, X86_REG_RAX},  {X86_REG_AX, X86_REG_RAX},   {X86_REG_AL, X86_REG_RAX},
      {X86_REG_AH, X86_REG_RAX},   {X86_REG_EBX, X86_REG_RBX},  {X86_REG_BX, X86_REG_RBX},
      {X86_REG_BL, X86_REG_RBX},   {X86_REG_ECX, X86_REG_RCX},  {X86_REG_CX, X86_REG_RCX},
      {X86_REG_CL, X86_REG_RCX},   {X86_REG_EDX, X86_REG_RDX},  {X86_REG_DX, X86_REG_RDX},
      {X86_REG_DL, X86_REG_RDX},   {X86_REG_ESI, X86_REG_RSI},  {X86_REG_SI, X86_REG_RSI},
      {X86_REG_SIL, X86_REG_RSI},  {X86_REG_EDI, X86_REG_RDI},  {X86_REG_DI, X86_REG_RDI},
      {X86_REG_DIL, X86_REG_RDI},  {X86_REG_EBP, X86_REG_RBP},  {X86_REG_BP, X86_REG_RBP},
      {X86_REG_BPL, X86_REG_RBP},  {X86_REG_R8D, X86_REG_R8},   {X86_REG_R9D, X86_REG_R9},
      {X86_REG_R10D, X86_REG_R10}, {X86_REG_R11D, X86_REG_R11}, {X86_REG_R12D, X86_REG_R12},
      {X86_REG_R13D, X86_REG_R13}, {X86_REG_R14D, X86_REG_R14}, {X86_REG_R15D, X86_REG_R15},
  };
  const auto it = kParts.find(reg);
  return it == kParts.end() ? static_cast<x86_reg>(reg) : it->second;
}

std::vector<x86_reg> Disassembler::written(const cs_insn& i) {
  cs_regs read{};
  cs_regs write{};
  std::uint8_t reads = 0;
  std::uint8_t writes = 0;
  std::vector<x86_reg> out;
  if (cs_regs_access(handle_, &i, read, &reads, write, &writes) != CS_ERR_OK) return out;
  for (std::size_t n = 0; n < writes; ++n) out.push_back(whole(write[n]));
  return out;
}

bool is_jump_or_return(const cs_insn& i) {
  return std::ranges::any_of(std::span(i.detail->groups, i.detail->groups_count),
                             [](std::uint8_t g) { return g == X86_GRP_JUMP || g == X86_GRP_RET; });
}
bool is_call(const cs_insn& i) {
  return std::ranges::any_of(std::span(i.detail->groups, i.detail->groups_count),
                             [](std::uint8_t g) { return g == X86_GRP_CALL; });
}

// Follows the module base through registers, from the instruction after the call that returned it.
// A descriptor returns it without the thread pointer; the code adds that somewhere.
class BaseTracker {
 public:
  BaseTracker(std::uint64_t offset, bool descriptor)
      : offset_(static_cast<std::int64_t>(offset)), descriptor_(descriptor) {
    at_[X86_REG_RAX] = 0;
  }

  enum class Seen { kNothing, kAddress, kUse };
  // What the instruction does with the variable: computes its address, or uses it.
  Seen follow(Disassembler& disassembler, const cs_insn& i) {
    const cs_x86& x = i.detail->x86;
    const std::span<const cs_x86_op> ops(x.operands, x.op_count);
    if (i.id == X86_INS_RET) {
      return known(X86_REG_RAX) == offset_ ? Seen::kUse : Seen::kNothing;
    }
    if (i.id != X86_INS_LEA && i.id != X86_INS_NOP) {
      for (const cs_x86_op& op : ops) {
        if (op.type == X86_OP_MEM && op.size == 8 && target(op) == offset_) return Seen::kUse;
      }
    }
    const auto moved = result_of(i, ops);
    if (is_call(i)) {
      for (const x86_reg r : {X86_REG_RAX, X86_REG_RCX, X86_REG_RDX, X86_REG_RSI, X86_REG_RDI,
                              X86_REG_R8, X86_REG_R9, X86_REG_R10, X86_REG_R11}) {
        at_.erase(r);
      }
    }
    for (const x86_reg r : disassembler.written(i)) at_.erase(r);
    if (!moved) return Seen::kNothing;
    at_[whole(ops[0].reg)] = *moved;
    return *moved == offset_ && i.id != X86_INS_MOV ? Seen::kAddress : Seen::kNothing;
  }
  bool lost() const { return at_.empty(); }

 private:
  std::optional<std::int64_t> known(unsigned reg) const {
    const auto it = at_.find(whole(reg));
    return it == at_.end() ? std::nullopt : std::optional(it->second);
  }
  std::optional<std::int64_t> target(const cs_x86_op& op) const {
    const bool indexed = op.mem.index != X86_REG_INVALID;
    const bool segment = op.mem.segment != X86_REG_INVALID;
    if (indexed && (!descriptor_ || op.mem.scale != 1)) return std::nullopt;
    if (segment && (!descriptor_ || op.mem.segment != X86_REG_FS)) return std::nullopt;
    auto at = known(op.mem.base);
    if (!at && indexed) at = known(op.mem.index);
    if (!at) return std::nullopt;
    return *at + op.mem.disp;
  }
  // Where the first operand points after the instruction, if that is known.
  std::optional<std::int64_t> result_of(const cs_insn& i, std::span<const cs_x86_op> ops) const {
    if (ops.size() != 2 || ops[0].type != X86_OP_REG || ops[0].size != 8) return std::nullopt;
    const cs_x86_op& from = ops[1];
    if (i.id == X86_INS_LEA && from.type == X86_OP_MEM) return target(from);
    if (i.id == X86_INS_MOV && from.type == X86_OP_REG) return known(from.reg);
    if (i.id != X86_INS_ADD) return std::nullopt;
    const auto before = known(ops[0].reg);
    if (before && from.type == X86_OP_IMM) return *before + from.imm;
    if (!descriptor_) return std::nullopt;
    if (before) return before;
    return from.type == X86_OP_REG ? known(from.reg) : std::nullopt;
  }

  std::int64_t offset_;
  bool descriptor_;
  std::map<x86_reg, std::int64_t> at_;  // how far into the block a register points
};

std::string line_of(const cs_insn& i) {
  return fmt::format("{:#x}: {} {}", i.address, i.mnemonic, i.op_str);
}

// The lines from the lea on, if the code after it uses the variable; else none.
std::vector<std::string> location_at(Disassembler& disassembler,
                                     std::span<const unsigned char> code, std::uint64_t address,
                                     std::uint64_t offset, bool descriptor) {
  std::vector<std::string> lines;
  const cs_insn* i = nullptr;
  for (std::size_t n = 0; n <= kInstructionsToCall; ++n) {
    i = disassembler.next(code, address);
    if (i == nullptr || is_jump_or_return(*i)) return {};
    lines.push_back(line_of(*i));
    if (is_call(*i)) break;
  }
  if (!is_call(*i)) return {};
  BaseTracker base(offset, descriptor);
  for (std::size_t n = 0; n < kMostInstructions && !base.lost(); ++n) {
    i = disassembler.next(code, address);
    if (i == nullptr) return {};
    const auto seen = base.follow(disassembler, *i);
    if (seen != BaseTracker::Seen::kNothing) lines.push_back(line_of(*i));
    if (seen == BaseTracker::Seen::kUse) return lines;
    if (is_jump_or_return(*i)) return {};
  }
  return {};
}

// Reads the symbols of both tables, relocations and code; stops at the first table that cannot be
// read.
sys::Result<> add_tables(const ElfImage& image, ModuleFacts& m) {
  CTX_ASSIGN_OR_RETURN(dynamic, image.dynamic_symbols(abi::kThreadSlotSymbol));
  m.dynamic_symbols = std::move(dynamic);
  CTX_ASSIGN_OR_RETURN(fixed, image.static_symbols(abi::kThreadSlotSymbol));
  m.static_symbols = std::move(fixed);
  if (m.dynamic_symbols.empty() && m.static_symbols.empty()) return {};
  CTX_ASSIGN_OR_RETURN(relocations, image.tls_relocations(abi::kThreadSlotSymbol));
  m.relocations = std::move(relocations);
  return {};
}

}  // namespace

std::vector<std::string> local_dynamic_code(const ElfImage& image,
                                            std::span<const sys::TlsRelocation> relocations,
                                            std::uint64_t offset) {
  // One pass over the code, however many relocations there are.
  std::map<std::uint64_t, bool> entries;  // GOT address: is it a descriptor?
  for (const auto& r : relocations) {
    entries.emplace(r.offset, r.kind == sys::TlsRelocationKind::kTlsdesc);
  }
  constexpr std::size_t kBehind = kLongestInstruction * (kMostInstructions + kInstructionsToCall);
  std::vector<std::string> out;
  std::optional<Disassembler> disassembler;
  std::vector<unsigned char> bytes(kChunk + kBehind + 1);
  std::uint64_t budget = kMostCode;
  std::size_t calls = 0;
  std::size_t locations = 0;
  for (const ElfSegment& s : image.segments()) {
    if (s.type != PT_LOAD || (s.flags & PF_X) == 0) continue;
    const std::uint64_t size = std::min(s.file_size, budget);
    budget -= size;
    for (std::uint64_t done = 0; done < size; done += kChunk) {
      // Also read the byte before the chunk, where a pad would be.
      const std::uint64_t before = done == 0 ? 0 : 1;
      const std::uint64_t start = s.address + done - before;
      const std::size_t got_bytes = image.read_at(
          start, std::as_writable_bytes(std::span(bytes))
                     .first(std::min<std::uint64_t>(bytes.size(), size - done + before)));
      const std::span<const unsigned char> chunk(bytes.data(), got_bytes);
      for (std::size_t at = before; at + kLeaSize <= chunk.size() && at < kChunk + before; ++at) {
        const bool rax = std::memcmp(&chunk[at], kLeaRax.data(), kLeaRax.size()) == 0;
        if (!rax && std::memcmp(&chunk[at], kLeaRdi.data(), kLeaRdi.size()) != 0) continue;
        std::int32_t displacement = 0;
        std::memcpy(&displacement, &chunk[at + kLeaRax.size()], sizeof displacement);
        const auto entry = entries.find(start + at + kLeaSize +
                                        static_cast<std::uint64_t>(std::int64_t{displacement}));
        if (entry == entries.end() || entry->second != rax) continue;
        const bool descriptor = entry->second;
        if (!descriptor && at > 0 && chunk[at - 1] == kPad) continue;
        if (++calls > kMostCalls) return out;
        if (!disassembler) disassembler.emplace();
        const auto lines =
            location_at(*disassembler, chunk.subspan(at), start + at, offset, descriptor);
        if (lines.empty()) continue;
        out.insert(out.end(), lines.begin(), lines.end());
        if (++locations == kMostLocations) return out;
      }
    }
  }
  return out;
}

ModuleFacts module_facts(const ElfImage& image, std::string path, bool executable) {
  ModuleFacts m;
  m.path = std::move(path);
  m.elf64 = image.is_64();
  m.little_endian = image.little_endian();
  m.machine = image.machine();
  m.type = image.type();
  m.executable = executable;
  m.has_dynamic_section = image.has_dynamic_section();
  m.has_interpreter = image.has_interpreter();
  m.symbolic = image.is_symbolic();
  m.section_headers = image.has_section_headers();
  m.go = image.is_go();
  m.tls = image.tls_segment();
  if (const auto added = add_tables(image, m); !added) m.problem = sys::to_string(added.error());
  const sys::ElfSymbol* symbol = slot_definition(m);
  if (symbol == nullptr || m.executable || !reads_code_of(m)) return m;
  const bool named =
      std::ranges::any_of(m.relocations, [](const auto& r) { return r.symbol != 0; });
  if (named) return m;
  std::vector<sys::TlsRelocation> suspects;
  std::ranges::copy_if(m.relocations, std::back_inserter(suspects),
                       [&](const auto& r) { return may_be_local_dynamic(r, *symbol); });
  if (!suspects.empty()) m.local_dynamic_code = local_dynamic_code(image, suspects, symbol->value);
  return m;
}

}  // namespace ctxconf::conformance
