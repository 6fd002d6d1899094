#include "conformance/puppet/script.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/mman.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "conformance/text/json_limits.h"
#include "conformance/text/json_text.h"

namespace ctxconf::conformance::puppet {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kVersionMember = "ctxconf-script";
constexpr int kScriptVersion = 1;
// What a script may use without a result of that name.
constexpr std::string_view kPageSize = "page";
constexpr std::size_t kMaxRepeated = 16;  // stores of one round

struct Word {
  std::string_view text;
  std::uint64_t value;
};

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

constexpr auto kMemfdFlags = std::to_array<Word>({
    {"CLOEXEC", MFD_CLOEXEC},
    {"ALLOW_SEALING", MFD_ALLOW_SEALING},
    {"HUGETLB", MFD_HUGETLB},
    {"NOEXEC_SEAL", MFD_NOEXEC_SEAL},
    {"EXEC", MFD_EXEC},
});
constexpr auto kOpenFlags = std::to_array<Word>({
    {"WRONLY", O_WRONLY},
    {"RDWR", O_RDWR},
    {"CREAT", O_CREAT},
    {"EXCL", O_EXCL},
    {"TRUNC", O_TRUNC},
    {"CLOEXEC", O_CLOEXEC},
    {"TMPFILE", O_TMPFILE},
    {"DIRECTORY", O_DIRECTORY},
});
constexpr auto kSeals = std::to_array<Word>({
    {"SEAL", F_SEAL_SEAL},
    {"SHRINK", F_SEAL_SHRINK},
    {"GROW", F_SEAL_GROW},
    {"WRITE", F_SEAL_WRITE},
    {"FUTURE_WRITE", F_SEAL_FUTURE_WRITE},
    {"EXEC", F_SEAL_EXEC},
});
constexpr auto kMapFlags = std::to_array<Word>({
    {"SHARED_VALIDATE", MAP_SHARED_VALIDATE},  // before the two flags that it consists of
    {"SHARED", MAP_SHARED},
    {"PRIVATE", MAP_PRIVATE},
    {"FIXED", MAP_FIXED},
    {"FIXED_NOREPLACE", MAP_FIXED_NOREPLACE},
    {"ANONYMOUS", MAP_ANONYMOUS},
    {"POPULATE", MAP_POPULATE},
    {"NORESERVE", MAP_NORESERVE},
    {"LOCKED", MAP_LOCKED},
    {"STACK", MAP_STACK},
    {"GROWSDOWN", MAP_GROWSDOWN},
    {"HUGETLB", MAP_HUGETLB},
});
constexpr auto kRemapFlags = std::to_array<Word>({
    {"MAYMOVE", MREMAP_MAYMOVE},
    {"FIXED", MREMAP_FIXED},
    {"DONTUNMAP", MREMAP_DONTUNMAP},
});
constexpr auto kAdvices = std::to_array<Word>({
    {"NORMAL", MADV_NORMAL},           {"RANDOM", MADV_RANDOM},
    {"SEQUENTIAL", MADV_SEQUENTIAL},   {"WILLNEED", MADV_WILLNEED},
    {"DONTNEED", MADV_DONTNEED},       {"FREE", MADV_FREE},
    {"REMOVE", MADV_REMOVE},           {"DONTFORK", MADV_DONTFORK},
    {"DOFORK", MADV_DOFORK},           {"WIPEONFORK", MADV_WIPEONFORK},
    {"KEEPONFORK", MADV_KEEPONFORK},   {"MERGEABLE", MADV_MERGEABLE},
    {"UNMERGEABLE", MADV_UNMERGEABLE}, {"HUGEPAGE", MADV_HUGEPAGE},
    {"NOHUGEPAGE", MADV_NOHUGEPAGE},   {"DONTDUMP", MADV_DONTDUMP},
    {"DODUMP", MADV_DODUMP},           {"COLD", MADV_COLD},
    {"PAGEOUT", MADV_PAGEOUT},
});
constexpr auto kClocks = std::to_array<Word>({
    {"REALTIME", CLOCK_REALTIME},
    {"MONOTONIC", CLOCK_MONOTONIC},
    {"MONOTONIC_RAW", CLOCK_MONOTONIC_RAW},
    {"REALTIME_COARSE", CLOCK_REALTIME_COARSE},
    {"MONOTONIC_COARSE", CLOCK_MONOTONIC_COARSE},
    {"BOOTTIME", CLOCK_BOOTTIME},
    {"TAI", CLOCK_TAI},
    {"PROCESS_CPUTIME", CLOCK_PROCESS_CPUTIME_ID},
    {"THREAD_CPUTIME", CLOCK_THREAD_CPUTIME_ID},
});
const auto kSignals = std::to_array<Word>({
    {"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"ILL", SIGILL},   {"TRAP", SIGTRAP},
    {"ABRT", SIGABRT}, {"BUS", SIGBUS},   {"FPE", SIGFPE},   {"KILL", SIGKILL}, {"USR1", SIGUSR1},
    {"SEGV", SIGSEGV}, {"USR2", SIGUSR2}, {"PIPE", SIGPIPE}, {"ALRM", SIGALRM}, {"TERM", SIGTERM},
    {"CHLD", SIGCHLD}, {"CONT", SIGCONT}, {"STOP", SIGSTOP}, {"PROF", SIGPROF},
});
constexpr auto kCloneFlags = std::to_array<Word>({
    {"VM", CLONE_VM},
    {"FS", CLONE_FS},
    {"FILES", CLONE_FILES},
    {"SIGHAND", CLONE_SIGHAND},
    {"VFORK", CLONE_VFORK},
    {"PARENT", CLONE_PARENT},
    {"UNTRACED", CLONE_UNTRACED},
    {"NEWNS", CLONE_NEWNS},
    {"NEWUTS", CLONE_NEWUTS},
    {"NEWIPC", CLONE_NEWIPC},
    {"NEWUSER", CLONE_NEWUSER},
    {"NEWPID", CLONE_NEWPID},
    {"NEWNET", CLONE_NEWNET},
    {"NEWTIME", 0x80},
});
constexpr auto kCopies = std::to_array<std::pair<std::string_view, CopyHow>>({
    {"bytes", CopyHow::kBytes},
    {"words", CopyHow::kWords},
    {"rep_bytes", CopyHow::kRepBytes},
    {"rep_words", CopyHow::kRepWords},
    {"vector", CopyHow::kVector},
    {"pipe", CopyHow::kPipe},
    {"process_vm", CopyHow::kProcessVm},
});
constexpr auto kOrders = std::to_array<std::pair<std::string_view, StoreOrder>>({
    {"plain", StoreOrder::kPlain},
    {"release", StoreOrder::kRelease},
    {"seq_cst", StoreOrder::kSeqCst},
});
constexpr auto kFences = std::to_array<std::pair<std::string_view, FenceKind>>({
    {"compiler", FenceKind::kCompiler},
    {"release", FenceKind::kRelease},
    {"seq_cst", FenceKind::kSeqCst},
    {"membarrier", FenceKind::kMembarrier},
});
constexpr auto kForks = std::to_array<std::pair<std::string_view, ForkHow>>({
    {"fork", ForkHow::kFork},
    {"vfork", ForkHow::kVfork},
    {"clone", ForkHow::kClone},
});
constexpr auto kActions = std::to_array<std::pair<std::string_view, SignalAction>>({
    {"default", SignalAction::kDefault},
    {"ignore", SignalAction::kIgnore},
    {"return", SignalAction::kReturn},
    {"serve", SignalAction::kServe},
});
constexpr auto kLoadCopies = std::to_array<std::pair<std::string_view, LoadCopy>>({
    {"none", LoadCopy::kNone},
    {"memfd", LoadCopy::kMemfd},
    {"file", LoadCopy::kFile},
    {"removed", LoadCopy::kRemoved},
});
constexpr auto kPrograms = std::to_array<std::pair<std::string_view, Program>>({
    {"plain", Program::kPlain},
    {"slot", Program::kSlot},
    {"libc", Program::kLibc},
    {"libc_slot", Program::kLibcSlot},
    {"libc_no_pie", Program::kLibcNoPie},
    {"libc_aligned", Program::kLibcAligned},
    {"libc_aligned_64", Program::kLibcAligned64},
    {"libc_static_pie", Program::kLibcStaticPie},
});

template <class T, std::size_t N>
std::string_view word_of(const std::array<std::pair<std::string_view, T>, N>& table, T value) {
  for (const auto& [text, v] : table) {
    if (v == value) return text;
  }
  return table.front().first;
}

template <class T, std::size_t N>
std::string choices(const std::array<std::pair<std::string_view, T>, N>& table) {
  std::string out;
  for (const auto& [text, v] : table) {
    if (!out.empty()) out += ", ";
    out += text;
  }
  return out;
}

bool is_name(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (text.empty() || text.size() > 64) return false;
  if (!letter(text.front()) && text.front() != '_') return false;
  return std::ranges::all_of(
      text, [&](char c) { return letter(c) || c == '_' || (c >= '0' && c <= '9'); });
}

std::optional<std::uint64_t> number_from(std::string_view text) {
  const bool is_hex = text.starts_with("0x");
  if (is_hex) text.remove_prefix(2);
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, is_hex ? 16 : 10);
  if (error != std::errc() || at != end || text.empty()) return std::nullopt;
  return value;
}

// The members of each operation, for both directions. `io` has one function for each kind; may()
// omits a member with its default value.

template <class Io>
void members(Io& io, Memfd& o) {
  io.text("name", o.name);
  io.flags("flags", o.flags, kMemfdFlags);
}
template <class Io>
void members(Io& io, SecretMemfd& o) {
  io.flags("flags", o.flags, kOpenFlags);
}
template <class Io>
void members(Io& io, Open& o) {
  io.text("path", o.path);
  io.flags("flags", o.flags, kOpenFlags);
  io.number("mode", o.mode, std::uint64_t{0600});
}
template <class Io>
void members(Io& io, Close& o) {
  io.value("fd", o.fd);
}
template <class Io>
void members(Io& io, Truncate& o) {
  io.value("fd", o.fd);
  io.value("size", o.size);
}
template <class Io>
void members(Io& io, Seal& o) {
  io.value("fd", o.fd);
  io.flags("seals", o.seals, kSeals);
}
template <class Io>
void members(Io& io, Map& o) {
  io.value("size", o.size);
  io.protection("prot", o.prot);
  io.flags("flags", o.flags, kMapFlags);
  io.maybe_value("fd", o.fd);
  io.value("offset", o.offset, Value());
  io.value("at", o.at, Value());
}
template <class Io>
void members(Io& io, Unmap& o) {
  io.value("at", o.at);
  io.value("size", o.size);
}
template <class Io>
void members(Io& io, Protect& o) {
  io.value("at", o.at);
  io.value("size", o.size);
  io.protection("prot", o.prot);
}
template <class Io>
void members(Io& io, Advise& o) {
  io.value("at", o.at);
  io.value("size", o.size);
  io.one_of("advice", o.advice, kAdvices);
}
template <class Io>
void members(Io& io, Remap& o) {
  io.value("at", o.at);
  io.value("old_size", o.old_size);
  io.value("size", o.size);
  io.flags("flags", o.flags, kRemapFlags);
  io.value("to", o.to, Value());
}
template <class Io>
void members(Io& io, NameMapping& o) {
  io.value("at", o.at);
  io.value("size", o.size);
  io.text_or_null("name", o.name);
}
template <class Io>
void members(Io& io, Withhold& o) {
  io.value("at", o.at);
  io.value("size", o.size);
}
template <class Io>
void members(Io& io, Give& o) {
  io.value("fd", o.fd);
  io.value("at", o.at);
  io.value("size", o.size);
}
template <class Io>
void members(Io& io, Store& o) {
  io.value("at", o.at);
  io.width("width", o.width);
  // One of them.
  io.bytes("hex", o.bytes, Bytes());
  if (o.bytes.empty()) {
    io.value("value", o.value);
  } else {
    io.value("value", o.value, Value());
  }
  io.word("order", o.order, kOrders, StoreOrder::kPlain);
}
template <class Io>
void members(Io& io, Write& o) {
  io.value("at", o.at);
  io.bytes("hex", o.bytes);
  io.word("how", o.how, kCopies, CopyHow::kBytes);
}
template <class Io>
void members(Io& io, Fill& o) {
  io.value("at", o.at);
  io.value("size", o.size);
  io.bytes("hex", o.pattern, Fill().pattern);
  io.word("how", o.how, kCopies, CopyHow::kBytes);
}
template <class Io>
void members(Io& io, Copy& o) {
  io.value("to", o.to);
  io.value("from", o.from);
  io.value("size", o.size);
  io.word("how", o.how, kCopies, CopyHow::kBytes);
}
template <class Io>
void members(Io& io, Alternate& o) {
  io.value("to", o.to);
  io.value("first", o.first);
  io.value("second", o.second);
  io.value("size", o.size);
  io.value("times", o.times);
  io.word("how", o.how, kCopies, CopyHow::kBytes);
}
template <class Io>
void members(Io& io, Repeat& o) {
  io.value("times", o.times);
  io.value("spins", o.spins, Value());
  io.values("stores", o.stores);
}
template <class Io>
void members(Io& io, Split& o) {
  io.value("at", o.at);
  io.value("size", o.size);
}
template <class Io>
void members(Io& io, Crowd& o) {
  io.value("count", o.count);
  io.value("records", o.records);
  io.value("stride", o.stride);
  io.value("tids", o.tids);
  io.value("stacks", o.stacks);
}
template <class Io>
void members(Io& io, Fence& o) {
  io.word("kind", o.kind, kFences, FenceKind::kSeqCst);
}
template <class Io>
void members(Io& io, Load& o) {
  io.value("at", o.at);
  io.width("width", o.width);
}
template <class Io>
void members(Io& io, ReadBack& o) {
  io.value("at", o.at);
  io.value("size", o.size);
}
template <class Io>
void members(Io& io, ReadClock& o) {
  io.one_of("clock", o.clock, kClocks);
}
template <class Io>
void members(Io& io, Sleep& o) {
  io.value("ns", o.ns);
}
template <class Io>
void members(Io& io, Spin& o) {
  io.value("times", o.times);
}
template <class Io>
void members(Io& io, Await& o) {
  io.value("at", o.at);
  io.width("width", o.width);
  io.value("value", o.value);
}
template <class Io>
void members(Io& io, NewThread& o) {
  io.boolean("tls", o.tls, true);
}
template <class Io>
void members(Io& /*io*/, ExitThread& /*o*/) {}
template <class Io>
void members(Io& io, Signal& o) {
  io.one_of("signal", o.signal, kSignals);
  io.value("to", o.to);
  io.boolean("process", o.process, false);
}
template <class Io>
void members(Io& io, Handle& o) {
  io.one_of("signal", o.signal, kSignals);
  io.word("action", o.action, kActions);
}
template <class Io>
void members(Io& io, Mask& o) {
  io.one_of("signal", o.signal, kSignals);
  io.boolean("block", o.block, true);
}
template <class Io>
void members(Io& /*io*/, Return& /*o*/) {}
template <class Io>
void members(Io& io, Fork& o) {
  io.word("how", o.how, kForks, ForkHow::kFork);
  io.flags("flags", o.flags, kCloneFlags);
  io.value("pid", o.pid, Value());
}
template <class Io>
void members(Io& io, Exec& o) {
  io.text("program", o.program, std::string("plain"));
  io.texts("args", o.args);
}
template <class Io>
void members(Io& io, Exit& o) {
  io.number("code", o.code, std::uint64_t{0});
}
template <class Io>
void members(Io& io, WaitChild& o) {
  io.value("child", o.child);
}
template <class Io>
void members(Io& io, Unshare& o) {
  io.flags("flags", o.flags, kCloneFlags);
}
template <class Io>
void members(Io& io, SetSlot& o) {
  io.value("value", o.value);
  io.word("order", o.order, kOrders, StoreOrder::kPlain);
  io.value("library", o.library, Value());
}
template <class Io>
void members(Io& io, SlotAddress& o) {
  io.value("library", o.library, Value());
}
template <class Io>
void members(Io& /*io*/, ThreadPointer& /*o*/) {}
template <class Io>
void members(Io& io, LoadLibrary& o) {
  io.text("path", o.path);
  io.word("copy", o.copy, kLoadCopies, LoadCopy::kNone);
  io.text("to", o.to, std::string());
}
template <class Io>
void members(Io& io, UnloadLibrary& o) {
  io.value("library", o.library);
}
template <class Io>
void members(Io& io, Print& o) {
  io.text("text", o.text);
}
template <class Io>
void members(Io& io, SystemCall& o) {
  io.number("number", o.number);
  io.values("args", o.args);
}
template <class Io>
void members(Io& /*io*/, SampleNow& /*o*/) {}
template <class Io>
void members(Io& /*io*/, Join& /*o*/) {}

template <class Io>
void members_of_all(Io& io, Operation& o) {
  std::visit([&](auto& what) { members(io, what); }, o.what);
  io.text("as", o.as, std::string());
  io.text("on", o.on, std::string());
  io.text("in", o.in, std::string());
  io.boolean("may_fail", o.may_fail, false);
  io.boolean("later", o.later, false);
  io.text("if", o.if_set, std::string());
  io.text("unless", o.unless_set, std::string());
  io.text("note", o.note, std::string());
}

Json json_of(const Value& v) {
  if (v.is_constant()) return v.constant();
  return to_string(v);
}

class Writer {
 public:
  explicit Writer(Json& out) : out_(out) {}
  void text(const char* name, const std::string& s) { out_[name] = conformance::text(s); }
  void text(const char* name, const std::string& s, const std::string& usual) {
    if (s != usual) text(name, s);
  }
  void text_or_null(const char* name, const std::optional<std::string>& s) {
    out_[name] = s ? conformance::text(*s) : Json(nullptr);
  }
  void texts(const char* name, const std::vector<std::string>& list) {
    if (!list.empty()) out_[name] = conformance::texts(list);
  }
  void value(const char* name, const Value& v) { out_[name] = json_of(v); }
  void value(const char* name, const Value& v, const Value& usual) {
    if (!(v == usual)) value(name, v);
  }
  void maybe_value(const char* name, const std::optional<Value>& v) {
    if (v) value(name, *v);
  }
  void values(const char* name, const std::vector<Value>& list) {
    if (list.empty()) return;
    out_[name] = Json::array();
    for (const Value& v : list) out_[name].push_back(json_of(v));
  }
  void number(const char* name, std::uint64_t n) { out_[name] = n; }
  void number(const char* name, std::uint64_t n, std::uint64_t usual) {
    if (n != usual) number(name, n);
  }
  void width(const char* name, std::uint32_t n) { out_[name] = n; }
  void boolean(const char* name, bool b, bool usual) {
    if (b != usual) out_[name] = b;
  }
  void bytes(const char* name, const Bytes& b) { out_[name] = hex(b); }
  void bytes(const char* name, const Bytes& b, const Bytes& usual) {
    if (b != usual) bytes(name, b);
  }
  void protection(const char* name, std::uint64_t prot) {
    std::string text;
    if ((prot & PROT_READ) != 0) text += 'r';
    if ((prot & PROT_WRITE) != 0) text += 'w';
    if ((prot & PROT_EXEC) != 0) text += 'x';
    const std::uint64_t rest = prot & ~std::uint64_t{PROT_READ | PROT_WRITE | PROT_EXEC};
    out_[name] = rest == 0 ? Json(text) : Json(prot);
  }
  void flags(const char* name, std::uint64_t value, std::span<const Word> table) {
    if (value == 0) return;
    Json list = Json::array();
    for (const Word& w : table) {
      if ((value & w.value) != w.value) continue;
      list.push_back(w.text);
      value &= ~w.value;
    }
    if (value != 0) list.push_back(hex(value));
    out_[name] = std::move(list);
  }
  void one_of(const char* name, std::uint64_t value, std::span<const Word> table) {
    const auto it = std::ranges::find(table, value, &Word::value);
    out_[name] = it == table.end() ? Json(value) : Json(it->text);
  }
  template <class T, std::size_t N>
  void word(const char* name, T value, const std::array<std::pair<std::string_view, T>, N>& table) {
    out_[name] = word_of(table, value);
  }
  template <class T, std::size_t N>
  void word(const char* name, T value, const std::array<std::pair<std::string_view, T>, N>& table,
            T usual) {
    if (value != usual) word(name, value, table);
  }

 private:
  Json& out_;
};

// Removes the members that it has read, so that the rest is unknown.
class Reader {
 public:
  explicit Reader(Json in) : in_(std::move(in)) {}

  void text(const char* name, std::string& s) { s = text_of(taken(name), name); }
  void text(const char* name, std::string& s, const std::string& usual) {
    s = usual;
    if (has(name)) text(name, s);
  }
  void text_or_null(const char* name, std::optional<std::string>& s) {
    const Json v = taken(name);
    s.reset();
    if (!v.is_null()) s = text_of(v, name);
  }
  void texts(const char* name, std::vector<std::string>& list) {
    list.clear();
    if (!has(name)) return;
    const Json v = taken(name);
    if (!v.is_array()) return complain(name, "is not a list");
    for (const auto& item : v) list.push_back(text_of(item, name));
  }
  void value(const char* name, Value& v) { v = value_of(taken(name), name); }
  void value(const char* name, Value& v, const Value& usual) {
    v = usual;
    if (has(name)) value(name, v);
  }
  void maybe_value(const char* name, std::optional<Value>& v) {
    v.reset();
    if (has(name)) v = value_of(taken(name), name);
  }
  void values(const char* name, std::vector<Value>& list) {
    list.clear();
    if (!has(name)) return;
    const Json v = taken(name);
    if (!v.is_array()) return complain(name, "is not a list");
    for (const auto& item : v) list.push_back(value_of(item, name));
  }
  void number(const char* name, std::uint64_t& n) { n = number_of(taken(name), name); }
  void number(const char* name, std::uint64_t& n, std::uint64_t usual) {
    n = usual;
    if (has(name)) number(name, n);
  }
  void width(const char* name, std::uint32_t& n) {
    const std::uint64_t read = number_of(taken(name), name);
    n = static_cast<std::uint32_t>(std::min<std::uint64_t>(read, UINT32_MAX));
  }
  void boolean(const char* name, bool& b, bool usual) {
    b = usual;
    if (!has(name)) return;
    const Json v = taken(name);
    if (!v.is_boolean()) return complain(name, "is neither true nor false");
    b = v.get<bool>();
  }
  void bytes(const char* name, Bytes& b) {
    const Json v = taken(name);
    b.clear();
    if (!v.is_string()) return complain(name, "is not a string of hex digits");
    const auto& digits = v.get_ref<const std::string&>();
    if (digits.size() % 2 != 0) return complain(name, "has an odd number of hex digits");
    b.reserve(digits.size() / 2);
    for (std::size_t i = 0; i < digits.size(); i += 2) {
      std::uint8_t byte = 0;
      const char* end = digits.data() + i + 2;
      if (std::from_chars(digits.data() + i, end, byte, 16).ptr != end) {
        return complain(name, "is not a string of hex digits");
      }
      b.push_back(std::byte{byte});
    }
  }
  void bytes(const char* name, Bytes& b, const Bytes& usual) {
    b = usual;
    if (has(name)) bytes(name, b);
  }
  void protection(const char* name, std::uint64_t& prot) {
    const Json v = taken(name);
    prot = 0;
    if (v.is_number()) {
      prot = number_of(v, name);
      return;
    }
    if (!v.is_string()) return complain(name, "is not a string like rw");
    for (const char c : v.get_ref<const std::string&>()) {
      if (c == 'r') {
        prot |= PROT_READ;
      } else if (c == 'w') {
        prot |= PROT_WRITE;
      } else if (c == 'x') {
        prot |= PROT_EXEC;
      } else {
        return complain(name, "has a letter other than r, w and x");
      }
    }
  }
  void flags(const char* name, std::uint64_t& value, std::span<const Word> table) {
    value = 0;
    if (!has(name)) return;
    const Json v = taken(name);
    if (!v.is_array()) return complain(name, "is not a list of flags");
    for (const auto& item : v) value |= word_or_number(item, name, table);
  }
  void one_of(const char* name, std::uint64_t& value, std::span<const Word> table) {
    value = word_or_number(taken(name), name, table);
  }
  template <class T, std::size_t N>
  void word(const char* name, T& value,
            const std::array<std::pair<std::string_view, T>, N>& table) {
    const Json v = taken(name);
    for (const auto& [text, known] : table) {
      if (v == Json(text)) {
        value = known;
        return;
      }
    }
    complain(name, "is not one of " + choices(table));
  }
  template <class T, std::size_t N>
  void word(const char* name, T& value, const std::array<std::pair<std::string_view, T>, N>& table,
            T usual) {
    value = usual;
    if (has(name)) word(name, value, table);
  }

  void complain(std::string_view name, const std::string& what) {
    if (problem_.empty()) problem_ = "\"" + std::string(name) + "\" " + what;
  }
  // The first problem; empty: none.
  std::string problem() {
    if (problem_.empty() && !in_.empty()) {
      problem_ = "the operation has no member \"" + printable(in_.begin().key()) + "\"";
    }
    return problem_;
  }

  static std::string printable(std::string_view text) {
    std::string out;
    for (const char c : text.substr(0, 80)) out += c >= 0x20 && c <= 0x7e ? c : '?';
    return out;
  }

 private:
  bool has(const char* name) const { return in_.contains(name); }
  Json taken(const char* name) {
    const auto it = in_.find(name);
    if (it == in_.end()) {
      complain(name, "is missing");
      return {};
    }
    Json v = std::move(*it);
    in_.erase(it);
    return v;
  }
  std::string text_of(const Json& v, const char* name) {
    std::string problem;
    const JsonReader reader(v, "", &problem);
    std::string out = reader.string_of(v, name);
    if (!problem.empty()) complain(name, "is not a string");
    return out;
  }
  std::uint64_t number_of(const Json& v, const char* name) {
    if (v.is_number_unsigned()) return v.get<std::uint64_t>();
    if (v.is_number_integer()) return static_cast<std::uint64_t>(v.get<std::int64_t>());
    if (v.is_string()) {
      if (const auto n = number_from(v.get_ref<const std::string&>())) return *n;
    }
    complain(name, "is not an integer");
    return 0;
  }
  Value value_of(const Json& v, const char* name) {
    if (v.is_string()) {
      if (auto value = value_from(v.get_ref<const std::string&>())) return *std::move(value);
      complain(name, "is neither a number nor like \"$header+16\"");
      return {};
    }
    return number_of(v, name);
  }
  std::uint64_t word_or_number(const Json& v, const char* name, std::span<const Word> table) {
    if (v.is_string()) {
      const auto& text = v.get_ref<const std::string&>();
      const auto it = std::ranges::find(table, std::string_view(text), &Word::text);
      if (it != table.end()) return it->value;
      if (const auto n = number_from(text)) return *n;
      complain(name, "does not accept " + printable(text));
      return 0;
    }
    return number_of(v, name);
  }

  Json in_;
  std::string problem_;
};

template <std::size_t... I>
std::optional<What> what_from(std::string_view name, std::index_sequence<I...> /*all*/) {
  std::optional<What> out;
  const auto attempt = [&]<class T>(std::in_place_type_t<T> /*type*/) {
    if (!out && T::kName == name) out = T();
  };
  (attempt(std::in_place_type<std::variant_alternative_t<I, What>>), ...);
  return out;
}

// Parses one line of JSON as an operation; the text says what is wrong.
std::expected<Operation, std::string> operation_from(Json line) {
  const auto op = line.find("op");
  if (op == line.end() || !op->is_string()) {
    return std::unexpected("an operation needs \"op\": its name");
  }
  const std::string name = op->get<std::string>();
  auto what = what_from(name, std::make_index_sequence<std::variant_size_v<What>>());
  if (!what) return std::unexpected("there is no operation \"" + Reader::printable(name) + "\"");
  line.erase("op");
  Operation out;
  out.what = *std::move(what);
  Reader reader(std::move(line));
  members_of_all(reader, out);
  if (auto problem = reader.problem(); !problem.empty()) {
    return std::unexpected(name + ": " + problem);
  }
  return out;
}

// The names that earlier operations gave, and what may be done with them.
class Names {
 public:
  std::string problem_of(const Operation& o) {
    if (!o.on.empty() && !o.in.empty()) return "\"on\" and \"in\" cannot be used together";
    if (!o.on.empty() && !threads_.contains(o.on)) {
      return "\"on\": no earlier operation made a thread " + quoted(o.on);
    }
    if (!o.in.empty() && !children_.contains(o.in)) {
      return "\"in\": no earlier operation made a child " + quoted(o.in);
    }
    for (const auto* name : {&o.if_set, &o.unless_set}) {
      if (!name->empty() && !results_.contains(*name)) return unknown(*name);
    }
    if (auto problem = std::visit([&](const auto& what) { return problem_in(what); }, o.what);
        !problem.empty()) {
      return problem;
    }
    return learn(o);
  }

 private:
  static std::string quoted(std::string_view name) { return "\"" + Reader::printable(name) + "\""; }
  static std::string unknown(std::string_view name) {
    return "no earlier operation has a result " + quoted(name);
  }

  std::string learn(const Operation& o) {
    const bool is_thread = std::holds_alternative<NewThread>(o.what);
    const bool is_child = std::holds_alternative<Fork>(o.what);
    const bool by_recorder =
        std::holds_alternative<SampleNow>(o.what) || std::holds_alternative<Join>(o.what);
    if (by_recorder && o.later) return "this operation cannot use \"later\"";
    if (o.as.empty()) {
      return is_thread || is_child ? "it needs a name: \"as\"" : std::string();
    }
    if (!is_name(o.as) || o.as == kPageSize) {
      return "\"as\": a name has letters, digits and _, at most 64, and is not \"page\"";
    }
    if ((is_thread || is_child) && (threads_.contains(o.as) || children_.contains(o.as))) {
      return "\"as\": another thread or child has the name " + quoted(o.as);
    }
    results_.insert(o.as);
    if (is_thread) threads_.insert(o.as);
    if (is_child) children_.insert(o.as);
    return {};
  }

  template <class T>
  std::string problem_in(const T& what) {
    // All its values, through its list of members.
    T copy = what;
    Values values;
    members(values, copy);
    for (const Value& v : values.all) {
      if (v.terms().size() > kMaxTerms) return "a value has more than 8 names";
      for (const auto& term : v.terms()) {
        if (term.name != kPageSize && !results_.contains(term.name)) return unknown(term.name);
      }
    }
    return own_problem(what);
  }

  template <class T>
  static std::string own_problem(const T& /*what*/) {
    return {};
  }
  static std::string own_problem(const Store& s) {
    if (s.width != 1 && s.width != 2 && s.width != 4 && s.width != 8 && s.width != 16 &&
        s.width != 32) {
      return "\"width\" is not one of 1, 2, 4, 8, 16, 32";
    }
    if (!s.bytes.empty() && s.bytes.size() != s.width)
      return "\"hex\" does not have \"width\" bytes";
    if (!s.bytes.empty() && !(s.value == Value()))
      return "\"value\" and \"hex\" cannot be used together";
    if (s.width == 32 && s.order == StoreOrder::kSeqCst)
      return "a store of 32 bytes cannot be seq_cst";
    return {};
  }
  static std::string own_problem(const Load& l) { return narrow(l.width); }
  static std::string own_problem(const Await& a) { return narrow(a.width); }
  static std::string own_problem(const Fill& f) {
    return f.pattern.empty() ? "\"hex\" is empty" : std::string();
  }
  static std::string own_problem(const Memfd& m) { return whole(m.name); }
  static std::string own_problem(const Open& o) { return whole(o.path); }
  static std::string own_problem(const NameMapping& n) { return whole(n.name.value_or("")); }
  static std::string own_problem(const Exec& e) {
    for (const auto& a : e.args) {
      if (auto problem = whole(a); !problem.empty()) return problem;
    }
    const bool path = e.program.find('/') != std::string::npos;
    if (!path && !program_named(e.program)) {
      return "\"program\" must be a path or one of " + choices(kPrograms);
    }
    if (!path && !e.args.empty()) return "only a path has \"args\"";
    return whole(e.program);
  }
  static std::string own_problem(const LoadLibrary& l) {
    if ((l.copy == LoadCopy::kNone) != l.to.empty()) return "a copy needs \"to\", and only a copy";
    return whole(l.path + l.to);
  }
  static std::string own_problem(const Repeat& r) {
    if (r.stores.empty() || r.stores.size() % 4 != 0 || r.stores.size() > 4 * kMaxRepeated) {
      return "\"stores\" has four values for each of 1 to 16 stores";
    }
    for (std::size_t i = 1; i < r.stores.size(); i += 4) {
      const Value& width = r.stores[i];
      if (!width.is_constant()) return narrow(0);
      if (auto problem = narrow(static_cast<std::uint32_t>(width.constant())); !problem.empty()) {
        return problem;
      }
    }
    return {};
  }
  static std::string own_problem(const Fork& f) {
    return f.how != ForkHow::kFork && !(f.pid == Value()) ? "only a fork can have a \"pid\""
                                                          : std::string();
  }
  static std::string own_problem(const SystemCall& c) {
    return c.args.size() > 6 ? "a system call has at most 6 \"args\"" : std::string();
  }
  static std::string narrow(std::uint32_t width) {
    const bool ok = width == 1 || width == 2 || width == 4 || width == 8;
    return ok ? std::string() : "\"width\" is not one of 1, 2, 4, 8";
  }
  static std::string whole(const std::string& text) {
    return text.find('\0') == std::string::npos ? std::string()
                                                : "a text cannot contain a zero byte";
  }

  struct Values {
    std::vector<Value> all;
    void value(const char* /*name*/, const Value& v) { all.push_back(v); }
    void value(const char* /*name*/, const Value& v, const Value& /*usual*/) { all.push_back(v); }
    void maybe_value(const char* /*name*/, const std::optional<Value>& v) {
      if (v) all.push_back(*v);
    }
    void values(const char* /*name*/, const std::vector<Value>& list) {
      all.insert(all.end(), list.begin(), list.end());
    }
    template <class... T>
    void text(T&&... /*rest*/) {}
    template <class... T>
    void text_or_null(T&&... /*rest*/) {}
    template <class... T>
    void texts(T&&... /*rest*/) {}
    template <class... T>
    void number(T&&... /*rest*/) {}
    template <class... T>
    void width(T&&... /*rest*/) {}
    template <class... T>
    void boolean(T&&... /*rest*/) {}
    template <class... T>
    void bytes(T&&... /*rest*/) {}
    template <class... T>
    void protection(T&&... /*rest*/) {}
    template <class... T>
    void flags(T&&... /*rest*/) {}
    template <class... T>
    void one_of(T&&... /*rest*/) {}
    template <class... T>
    void word(T&&... /*rest*/) {}
  };

  std::set<std::string, std::less<>> results_;
  std::set<std::string, std::less<>> threads_;
  std::set<std::string, std::less<>> children_;
};

constexpr std::size_t kLongestLine = std::size_t{16} << 20U;
constexpr std::size_t kDeepestOperation = 8;

// Parses one line as a JSON object, or says what is wrong.
std::expected<Json, std::string> object_from(std::string_view line) {
  if (line.size() > kLongestLine) return std::unexpected("the line is longer than 16 MiB");
  Json out = nests_deeper(line, kDeepestOperation)
                 ? Json()
                 : Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!out.is_object()) {
    return std::unexpected("the line is not a JSON object");
  }
  return out;
}

}  // namespace

Value Value::of(std::string name) {
  Value out;
  out.terms_.push_back({std::move(name), false});
  return out;
}

Value& Value::operator+=(const Value& other) {
  constant_ += other.constant_;
  terms_.insert(terms_.end(), other.terms_.begin(), other.terms_.end());
  return *this;
}

Value& Value::operator-=(const Value& other) {
  constant_ -= other.constant_;
  for (Term term : other.terms_) {
    term.minus = !term.minus;
    terms_.push_back(std::move(term));
  }
  return *this;
}

std::string to_string(const Value& value) {
  std::string out;
  for (const auto& term : value.terms()) {
    if (term.minus) out += '-';
    if (!term.minus && !out.empty()) out += '+';
    out += '$' + term.name;
  }
  if (out.empty()) return std::to_string(value.constant());
  const std::uint64_t c = value.constant();
  if (c == 0) return out;
  // Negative terms are written as a subtraction.
  return (c >> 63U) != 0 ? out + '-' + std::to_string(-c) : out + '+' + std::to_string(c);
}

std::optional<Value> value_from(std::string_view text) {
  Value out;
  bool first = true;
  while (!text.empty()) {
    bool minus = false;
    if (text.front() == '+' || text.front() == '-') {
      minus = text.front() == '-';
      if (first && !minus) return std::nullopt;
      text.remove_prefix(1);
    } else if (!first) {
      return std::nullopt;
    }
    const std::string_view piece = text.substr(0, text.find_first_of("+-"));
    text.remove_prefix(piece.size());
    Value term;
    if (piece.starts_with('$')) {
      if (!is_name(piece.substr(1))) return std::nullopt;
      term = Value::of(std::string(piece.substr(1)));
    } else {
      const auto n = number_from(piece);
      if (!n) return std::nullopt;
      term = *n;
    }
    if (minus) {
      out -= term;
    } else {
      out += term;
    }
    if (out.terms().size() > kMaxTerms) return std::nullopt;
    first = false;
  }
  if (first) return std::nullopt;
  return out;
}

Bytes bytes_of(std::string_view text) {
  Bytes out;
  out.reserve(text.size());
  for (const char c : text) out.push_back(static_cast<std::byte>(c));
  return out;
}

std::string_view Operation::name() const {
  return std::visit([](const auto& w) { return std::decay_t<decltype(w)>::kName; }, what);
}

std::string_view file_of(Program program) {
  switch (program) {
    case Program::kPlain:
      return "ctxconf-puppet";
    case Program::kSlot:
      return "ctxconf-puppet-slot";
    case Program::kLibc:
      return "ctxconf-puppet-libc";
    case Program::kLibcSlot:
      return "ctxconf-puppet-libc-slot";
    case Program::kLibcNoPie:
      return "ctxconf-puppet-libc-no-pie";
    case Program::kLibcAligned:
      return "ctxconf-puppet-libc-aligned";
    case Program::kLibcAligned64:
      return "ctxconf-puppet-libc-aligned-64";
    case Program::kLibcStaticPie:
      return "ctxconf-puppet-libc-static-pie";
  }
  return "ctxconf-puppet";
}

std::optional<Program> program_named(std::string_view name) {
  const auto at = std::ranges::find(kPrograms, name, &decltype(kPrograms)::value_type::first);
  return at == kPrograms.end() ? std::nullopt : std::optional(at->second);
}

bool has_loader(Program program) {
  return program != Program::kPlain && program != Program::kSlot &&
         program != Program::kLibcStaticPie;
}

std::optional<ScriptProblem> check(const Script& script) {
  if (!script.preload.empty() && !has_loader(script.program)) {
    return ScriptProblem{.line = 1,
                         .text = "only programs with a loader have libraries to \"preload\""};
  }
  if (script.operations.size() > kMaxOperations) {
    return ScriptProblem{.line = kMaxOperations + 2,
                         .text = "a script has at most 100000 operations"};
  }
  Names names;
  const bool execs = std::ranges::any_of(
      script.operations, [](const Operation& e) { return std::holds_alternative<Exec>(e.what); });
  for (std::size_t i = 0; i < script.operations.size(); ++i) {
    const Operation& o = script.operations[i];
    if (auto problem = names.problem_of(o); !problem.empty()) {
      return ScriptProblem{.line = i + 2, .text = std::string(o.name()) + ": " + problem};
    }
    const bool slot =
        std::holds_alternative<SetSlot>(o.what) || std::holds_alternative<SlotAddress>(o.what);
    if (slot && script.program == Program::kPlain && !execs) {
      return ScriptProblem{
          .line = i + 2,
          .text = std::string(o.name()) + ": the program \"plain\" does not have this operation"};
    }
    const bool loads = std::holds_alternative<LoadLibrary>(o.what) ||
                       std::holds_alternative<UnloadLibrary>(o.what);
    if (loads && !has_loader(script.program) && !execs) {
      return ScriptProblem{
          .line = i + 2,
          .text = std::string(o.name()) + ": only programs with a loader have this operation"};
    }
  }
  return std::nullopt;
}

std::string to_json(const Operation& operation) {
  Operation copy = operation;
  Json out = {{"op", operation.name()}};
  Writer writer(out);
  members_of_all(writer, copy);
  return out.dump(-1, ' ', /*ensure_ascii=*/true);
}

std::string to_json(const Script& script) {
  Json first = {{std::string(kVersionMember), kScriptVersion},
                {"program", word_of(kPrograms, script.program)}};
  Writer(first).texts("preload", script.preload);
  std::string out = first.dump() + '\n';
  for (const auto& o : script.operations) out += to_json(o) + '\n';
  return out;
}

std::expected<Script, ScriptProblem> script_from_json(std::string_view text,
                                                      std::vector<std::size_t>* numbers) {
  const auto fail = [](std::size_t line, std::string what) {
    return std::unexpected(ScriptProblem{.line = line, .text = std::move(what)});
  };
  if (text.size() > kLongestScript) return fail(1, "the script is longer than 64 MiB");
  Script out;
  std::vector<std::size_t> lines;  // of the operations
  std::size_t begun = 0;           // the number of the first line
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    auto object = object_from(line);
    if (!object) return fail(number, object.error());
    if (begun == 0) {
      begun = number;
      Reader reader(*object);
      std::uint64_t version = 0;
      reader.number(std::string(kVersionMember).c_str(), version);
      reader.word("program", out.program, kPrograms, Program::kPlain);
      reader.texts("preload", out.preload);
      if (version != kScriptVersion) {
        reader.complain(kVersionMember, "is not 1: the first line is {\"ctxconf-script\":1}");
      }
      if (auto problem = reader.problem(); !problem.empty()) return fail(number, problem);
      continue;
    }
    auto operation = operation_from(*std::move(object));
    if (!operation) return fail(number, operation.error());
    if (out.operations.size() == kMaxOperations) {
      return fail(number, "a script has at most 100000 operations");
    }
    out.operations.push_back(*std::move(operation));
    lines.push_back(number);
  }
  if (begun == 0) return fail(1, "the script is empty: its first line is {\"ctxconf-script\":1}");
  if (auto problem = check(out)) {
    return fail(problem->line < 2 ? begun : lines[problem->line - 2], std::move(problem->text));
  }
  if (numbers != nullptr) *numbers = std::move(lines);
  return out;
}

Builder& Builder::by(const Value& actor) {
  const std::string name = actor.terms().empty() ? std::string() : actor.terms().front().name;
  const bool is_thread = std::ranges::find(threads_, name) != threads_.end();
  on_ = is_thread ? name : std::string();
  in_ = is_thread ? std::string() : name;
  return *this;
}
Builder& Builder::by_first() { return by(first_); }
Builder& Builder::first_is(const Value& heir) {
  first_ = heir;
  return by_first();
}
Builder& Builder::may_fail() {
  next_.may_fail = true;
  return *this;
}
Builder& Builder::later() {
  next_.later = true;
  return *this;
}
Builder& Builder::note(std::string text) {
  next_.note = std::move(text);
  return *this;
}
Builder& Builder::as(std::string name) {
  next_.as = std::move(name);
  return *this;
}
Builder& Builder::if_set(const Value& result) {
  next_.if_set = result.terms().empty() ? std::string() : result.terms().front().name;
  return *this;
}
Builder& Builder::unless_set(const Value& result) {
  next_.unless_set = result.terms().empty() ? std::string() : result.terms().front().name;
  return *this;
}

void Builder::add(What what) {
  Operation o = std::exchange(next_, {});
  o.what = std::move(what);
  o.on = on_;
  o.in = in_;
  script_.operations.push_back(std::move(o));
}

Value Builder::add_named(What what, const char* stem) {
  if (next_.as.empty()) next_.as = stem + std::to_string(++named_);
  const std::string name = next_.as;
  if (std::holds_alternative<NewThread>(what)) threads_.push_back(name);
  add(std::move(what));
  return Value::of(name);
}

Value Builder::memfd(std::string name, std::uint64_t flags) {
  return add_named(Memfd{std::move(name), flags}, "fd");
}
Value Builder::secret(std::uint64_t flags) { return add_named(SecretMemfd{flags}, "fd"); }
Value Builder::open(std::string path, std::uint64_t flags, std::uint64_t mode) {
  return add_named(Open{std::move(path), flags, mode}, "fd");
}
void Builder::close(Value fd) { add(Close{std::move(fd)}); }
void Builder::truncate(Value fd, Value size) { add(Truncate{std::move(fd), std::move(size)}); }
void Builder::seal(Value fd, std::uint64_t seals) { add(Seal{std::move(fd), seals}); }
Value Builder::map(Map map) { return add_named(std::move(map), "map"); }
Value Builder::map_anonymous(Value size, std::uint64_t prot, std::uint64_t flags) {
  return map(
      {.size = std::move(size), .prot = prot, .flags = flags, .fd = {}, .offset = {}, .at = {}});
}
Value Builder::map_file(Value fd, Value size, std::uint64_t prot, std::uint64_t flags) {
  return map({.size = std::move(size),
              .prot = prot,
              .flags = flags,
              .fd = std::move(fd),
              .offset = {},
              .at = {}});
}
void Builder::unmap(Value at, Value size) { add(Unmap{std::move(at), std::move(size)}); }
void Builder::protect(Value at, Value size, std::uint64_t prot) {
  add(Protect{std::move(at), std::move(size), prot});
}
void Builder::advise(Value at, Value size, std::uint64_t advice) {
  add(Advise{std::move(at), std::move(size), advice});
}
Value Builder::remap(Value at, Value old_size, Value size, std::uint64_t flags, Value to) {
  return add_named(Remap{std::move(at), std::move(old_size), std::move(size), flags, std::move(to)},
                   "map");
}
void Builder::name(Value at, Value size, std::optional<std::string> name) {
  add(NameMapping{std::move(at), std::move(size), std::move(name)});
}
Value Builder::withhold(Value at, Value size) {
  return add_named(Withhold{std::move(at), std::move(size)}, "held");
}
void Builder::give(Value fd, Value at, Value size) {
  add(Give{std::move(fd), std::move(at), std::move(size)});
}

void Builder::store(Value at, std::uint32_t width, Value value, StoreOrder order) {
  add(Store{std::move(at), width, std::move(value), {}, order});
}
void Builder::store_bytes(Value at, Bytes bytes, StoreOrder order) {
  const auto width = static_cast<std::uint32_t>(bytes.size());
  add(Store{std::move(at), width, {}, std::move(bytes), order});
}
void Builder::write(Value at, Bytes bytes, CopyHow how) {
  add(Write{std::move(at), std::move(bytes), how});
}
void Builder::fill(Value at, Value size, Bytes pattern, CopyHow how) {
  add(Fill{std::move(at), std::move(size), std::move(pattern), how});
}
void Builder::copy(Value to, Value from, Value size, CopyHow how) {
  add(Copy{std::move(to), std::move(from), std::move(size), how});
}
void Builder::repeat(Value times, std::vector<Value> stores, Value spins) {
  add(Repeat{std::move(times), std::move(spins), std::move(stores)});
}
void Builder::split(Value at, Value size) { add(Split{std::move(at), std::move(size)}); }
void Builder::crowd(Crowd crowd) { add(std::move(crowd)); }
void Builder::alternate(Value to, Value first, Value second, Value size, Value times, CopyHow how) {
  add(Alternate{std::move(to), std::move(first), std::move(second), std::move(size),
                std::move(times), how});
}
void Builder::fence(FenceKind kind) { add(Fence{kind}); }
Value Builder::load(Value at, std::uint32_t width) {
  return add_named(Load{std::move(at), width}, "word");
}
void Builder::read_back(Value at, Value size) { add(ReadBack{std::move(at), std::move(size)}); }

Value Builder::clock(std::uint64_t clock) { return add_named(ReadClock{clock}, "now"); }
void Builder::sleep(Value ns) { add(Sleep{std::move(ns)}); }
void Builder::spin(Value times) { add(Spin{std::move(times)}); }
void Builder::await(Value at, std::uint32_t width, Value value) {
  add(Await{std::move(at), width, std::move(value)});
}

Value Builder::thread(bool tls) { return add_named(NewThread{tls}, "thread"); }
void Builder::exit_thread() { add(ExitThread{}); }
void Builder::signal(std::uint64_t signal, Value to, bool process) {
  add(Signal{signal, std::move(to), process});
}
void Builder::handle(std::uint64_t signal, SignalAction action) { add(Handle{signal, action}); }
void Builder::mask(std::uint64_t signal, bool block) { add(Mask{signal, block}); }
void Builder::return_from_handler() { add(Return{}); }
Value Builder::fork(ForkHow how, std::uint64_t flags, Value pid) {
  return add_named(Fork{how, flags, std::move(pid)}, "child");
}
void Builder::exec(std::string program, std::vector<std::string> args) {
  add(Exec{std::move(program), std::move(args)});
}
void Builder::exit(std::uint64_t code) { add(Exit{code}); }
Value Builder::wait(Value child) { return add_named(WaitChild{std::move(child)}, "status"); }
void Builder::unshare(std::uint64_t flags) { add(Unshare{flags}); }
Value Builder::load_library(std::string path, LoadCopy copy, std::string to) {
  return add_named(LoadLibrary{std::move(path), copy, std::move(to)}, "library");
}
void Builder::unload_library(Value library) { add(UnloadLibrary{std::move(library)}); }
void Builder::slot(Value value, StoreOrder order, Value library) {
  add(SetSlot{std::move(value), order, std::move(library)});
}
Value Builder::slot_address(Value library) {
  return add_named(SlotAddress{std::move(library)}, "slot");
}
Value Builder::thread_pointer() { return add_named(ThreadPointer{}, "pointer"); }
void Builder::print(std::string text) { add(Print{std::move(text)}); }
Value Builder::syscall(std::uint64_t number, std::vector<Value> args) {
  return add_named(SystemCall{number, std::move(args)}, "result");
}
void Builder::look() { add(SampleNow{}); }
void Builder::join() { add(Join{}); }

}  // namespace ctxconf::conformance::puppet
