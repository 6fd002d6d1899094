// A script for the scripted process: operations that a small program without a language runtime
// executes one at a time (docs/puppet.md). As values, and as JSON lines in both directions.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ctxconf::conformance::puppet {

inline constexpr std::size_t kMaxOperations = 100'000;
inline constexpr std::size_t kLongestScript = std::size_t{64} << 20U;  // bytes of JSON
inline constexpr std::size_t kMaxTerms = 8;                            // of one value

// A number that is known when the operation runs: a constant plus results of earlier operations,
// like "$header+16". Wraps, because it is usually an address.
class Value {
 public:
  struct Term {
    std::string name;  // without its $
    bool minus = false;
    friend bool operator==(const Term&, const Term&) = default;
  };

  Value() = default;
  template <std::integral T>
  Value(T constant)  // NOLINT(google-explicit-constructor): scripts are written with numbers
      : constant_(static_cast<std::uint64_t>(constant)) {}
  static Value of(std::string name);  // the result to which an earlier operation gave this name

  std::uint64_t constant() const { return constant_; }
  const std::vector<Term>& terms() const { return terms_; }
  bool is_constant() const { return terms_.empty(); }

  Value& operator+=(const Value& other);
  Value& operator-=(const Value& other);
  friend Value operator+(Value a, const Value& b) { return a += b; }
  friend Value operator-(Value a, const Value& b) { return a -= b; }
  friend bool operator==(const Value&, const Value&) = default;

 private:
  std::uint64_t constant_ = 0;
  std::vector<Term> terms_;
};
std::string to_string(const Value& value);  // "$header+16", "4096"
std::optional<Value> value_from(std::string_view text);

using Bytes = std::vector<std::byte>;
Bytes bytes_of(std::string_view text);

// How the bytes are copied.
enum class CopyHow : std::uint8_t {
  kBytes,      // one byte at a time
  kWords,      // eight at a time, the rest in bytes
  kRepBytes,   // rep movsb
  kRepWords,   // rep movsq, the rest in bytes
  kVector,     // 16 at a time, the rest in bytes
  kPipe,       // the kernel: write() to a pipe and read() from it
  kProcessVm,  // the kernel: process_vm_writev() to the process itself
};
enum class StoreOrder : std::uint8_t { kPlain, kRelease, kSeqCst };  // kSeqCst: xchg on x86-64
enum class FenceKind : std::uint8_t { kCompiler, kRelease, kSeqCst, kMembarrier };
enum class ForkHow : std::uint8_t { kFork, kVfork, kClone };
enum class SignalAction : std::uint8_t {
  kDefault,
  kIgnore,
  kReturn,  // a handler that does nothing
  kServe,   // a handler in which the thread executes further operations, until `return`
};

// The operations. Flags, protections and the like are the kernel's numbers (<sys/mman.h> and
// others). The comment names the result, if there is one.

struct Memfd {  // result: the descriptor
  static constexpr std::string_view kName = "memfd";
  std::string name;
  std::uint64_t flags = 0;  // MFD_*
  friend bool operator==(const Memfd&, const Memfd&) = default;
};
struct SecretMemfd {  // memfd_secret(); result: the descriptor
  static constexpr std::string_view kName = "secret";
  std::uint64_t flags = 0;  // O_CLOEXEC
  friend bool operator==(const SecretMemfd&, const SecretMemfd&) = default;
};
struct Open {  // result: the descriptor
  static constexpr std::string_view kName = "open";
  std::string path;
  std::uint64_t flags = 0;  // O_*
  std::uint64_t mode = 0600;
  friend bool operator==(const Open&, const Open&) = default;
};
struct Close {
  static constexpr std::string_view kName = "close";
  Value fd;
  friend bool operator==(const Close&, const Close&) = default;
};
struct Truncate {
  static constexpr std::string_view kName = "truncate";
  Value fd;
  Value size;
  friend bool operator==(const Truncate&, const Truncate&) = default;
};
struct Seal {
  static constexpr std::string_view kName = "seal";
  Value fd;
  std::uint64_t seals = 0;  // F_SEAL_*
  friend bool operator==(const Seal&, const Seal&) = default;
};
struct Map {  // result: the address
  static constexpr std::string_view kName = "map";
  Value size;
  std::uint64_t prot = 0;   // PROT_*
  std::uint64_t flags = 0;  // MAP_*; MAP_ANONYMOUS is added if there is no `fd`
  std::optional<Value> fd;
  Value offset;
  Value at;  // a hint, or with MAP_FIXED the address
  friend bool operator==(const Map&, const Map&) = default;
};
struct Unmap {
  static constexpr std::string_view kName = "unmap";
  Value at;
  Value size;
  friend bool operator==(const Unmap&, const Unmap&) = default;
};
struct Protect {
  static constexpr std::string_view kName = "protect";
  Value at;
  Value size;
  std::uint64_t prot = 0;
  friend bool operator==(const Protect&, const Protect&) = default;
};
struct Advise {
  static constexpr std::string_view kName = "advise";
  Value at;
  Value size;
  std::uint64_t advice = 0;  // one of MADV_*
  friend bool operator==(const Advise&, const Advise&) = default;
};
struct Remap {  // result: the address
  static constexpr std::string_view kName = "remap";
  Value at;
  Value old_size;
  Value size;
  std::uint64_t flags = 0;  // MREMAP_*
  Value to;                 // with MREMAP_FIXED
  friend bool operator==(const Remap&, const Remap&) = default;
};
struct NameMapping {  // prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME)
  static constexpr std::string_view kName = "name";
  Value at;
  Value size;
  std::optional<std::string> name;  // nothing: NULL, which removes the name
  friend bool operator==(const NameMapping&, const NameMapping&) = default;
};
struct Withhold {  // userfaultfd(): whoever touches a missing page waits; result: its descriptor
  static constexpr std::string_view kName = "withhold";
  Value at;
  Value size;
  friend bool operator==(const Withhold&, const Withhold&) = default;
};
struct Give {  // gives zero pages to those who wait
  static constexpr std::string_view kName = "give";
  Value fd;  // the result of Withhold
  Value at;
  Value size;
  friend bool operator==(const Give&, const Give&) = default;
};

struct Store {  // one instruction
  static constexpr std::string_view kName = "store";
  Value at;
  std::uint32_t width = 8;  // 1, 2, 4, 8, 16, 32
  Value value;              // of at most 8 bytes; wider stores are padded with zeros
  Bytes bytes;              // instead of a value: `width` bytes
  StoreOrder order = StoreOrder::kPlain;
  friend bool operator==(const Store&, const Store&) = default;
};
struct Write {
  static constexpr std::string_view kName = "write";
  Value at;
  Bytes bytes;
  CopyHow how = CopyHow::kBytes;
  friend bool operator==(const Write&, const Write&) = default;
};
struct Fill {  // repeats `pattern`, and cuts the last one
  static constexpr std::string_view kName = "fill";
  Value at;
  Value size;
  Bytes pattern = {std::byte{0}};
  CopyHow how = CopyHow::kBytes;
  friend bool operator==(const Fill&, const Fill&) = default;
};
struct Copy {  // within the process, from low to high addresses
  static constexpr std::string_view kName = "copy";
  Value to;
  Value from;
  Value size;
  CopyHow how = CopyHow::kBytes;
  friend bool operator==(const Copy&, const Copy&) = default;
};
struct Alternate {  // copies two states in turn: a concurrent reader sees both, and mixtures
  static constexpr std::string_view kName = "alternate";
  Value to;
  Value first;
  Value second;  // the final state
  Value size;
  Value times;  // of each state
  CopyHow how = CopyHow::kBytes;
  friend bool operator==(const Alternate&, const Alternate&) = default;
};
struct Repeat {  // a loop of stores, each with a number that grows in every round
  static constexpr std::string_view kName = "repeat";
  Value times;
  Value spins;  // of an empty loop after each round
  // Four for each store: the address, the width (1, 2, 4, 8), the value in the first round, and
  // what is added to it in each further one.
  std::vector<Value> stores;
  friend bool operator==(const Repeat&, const Repeat&) = default;
};
struct Split {  // makes a mapping of each page: takes write access from every other one
  static constexpr std::string_view kName = "split";
  Value at;
  Value size;
  friend bool operator==(const Split&, const Split&) = default;
};
struct Fence {
  static constexpr std::string_view kName = "fence";
  FenceKind kind = FenceKind::kSeqCst;
  friend bool operator==(const Fence&, const Fence&) = default;
};
struct Load {  // result: the number
  static constexpr std::string_view kName = "load";
  Value at;
  std::uint32_t width = 8;  // 1, 2, 4, 8
  friend bool operator==(const Load&, const Load&) = default;
};
struct ReadBack {  // the answer has the bytes
  static constexpr std::string_view kName = "read";
  Value at;
  Value size;
  friend bool operator==(const ReadBack&, const ReadBack&) = default;
};

struct ReadClock {  // clock_gettime(), a system call; result: nanoseconds
  static constexpr std::string_view kName = "clock";
  std::uint64_t clock = 7;  // CLOCK_BOOTTIME
  friend bool operator==(const ReadClock&, const ReadClock&) = default;
};
struct Sleep {
  static constexpr std::string_view kName = "sleep";
  Value ns;
  friend bool operator==(const Sleep&, const Sleep&) = default;
};
struct Spin {  // an empty loop
  static constexpr std::string_view kName = "spin";
  Value times;
  friend bool operator==(const Spin&, const Spin&) = default;
};
struct Await {  // waits until the number there is `value`
  static constexpr std::string_view kName = "await";
  Value at;
  std::uint32_t width = 8;  // 1, 2, 4, 8
  Value value;
  friend bool operator==(const Await&, const Await&) = default;
};

struct NewThread {  // result: its tid; later operations name it in `on`
  static constexpr std::string_view kName = "thread";
  bool tls = true;  // with a TLS block of its own
  friend bool operator==(const NewThread&, const NewThread&) = default;
};
// Many threads that do nothing but wait; only in "slot". The variable of number i holds
// `records` + i * `stride`. Their ids are stored to `tids`, 4 bytes each. Each uses a page of
// `stacks`.
struct Crowd {
  static constexpr std::string_view kName = "crowd";
  Value count;
  Value records;
  Value stride;
  Value tids;
  Value stacks;
  friend bool operator==(const Crowd&, const Crowd&) = default;
};
struct ExitThread {
  static constexpr std::string_view kName = "exit_thread";
  friend bool operator==(const ExitThread&, const ExitThread&) = default;
};
struct Signal {
  static constexpr std::string_view kName = "signal";
  std::uint64_t signal = 0;
  Value to;              // the tid or pid: results of `thread` and `fork`
  bool process = false;  // kill() instead of tgkill()
  friend bool operator==(const Signal&, const Signal&) = default;
};
struct Handle {
  static constexpr std::string_view kName = "handle";
  std::uint64_t signal = 0;
  SignalAction action = SignalAction::kDefault;
  friend bool operator==(const Handle&, const Handle&) = default;
};
struct Mask {
  static constexpr std::string_view kName = "mask";
  std::uint64_t signal = 0;
  bool block = true;
  friend bool operator==(const Mask&, const Mask&) = default;
};
struct Return {  // from the handler in which the thread is
  static constexpr std::string_view kName = "return";
  friend bool operator==(const Return&, const Return&) = default;
};

struct Fork {  // result: the child's pid; later operations name it in `in`
  static constexpr std::string_view kName = "fork";
  // kVfork: the thread executes nothing until the child has ended or called exec.
  ForkHow how = ForkHow::kFork;
  std::uint64_t flags = 0;  // kClone: CLONE_*; the exit signal is SIGCHLD
  Value pid;                // of the child, with kFork: needs CAP_CHECKPOINT_RESTORE; 0: any
  friend bool operator==(const Fork&, const Fork&) = default;
};
struct Exec {
  static constexpr std::string_view kName = "exec";
  // One of the programs that run scripts: continues the script as the first thread of its process.
  // A path: executes that program, which gets no further operations.
  std::string program = "plain";
  std::vector<std::string> args;  // for a path: the arguments after argv[0]
  friend bool operator==(const Exec&, const Exec&) = default;
};
struct Exit {  // of the process
  static constexpr std::string_view kName = "exit";
  std::uint64_t code = 0;
  friend bool operator==(const Exit&, const Exit&) = default;
};
struct WaitChild {  // result: the status that wait4() gives
  static constexpr std::string_view kName = "wait";
  Value child;
  friend bool operator==(const WaitChild&, const WaitChild&) = default;
};
struct Unshare {
  static constexpr std::string_view kName = "unshare";
  std::uint64_t flags = 0;  // CLONE_NEW*
  friend bool operator==(const Unshare&, const Unshare&) = default;
};

// How the file of a library comes to where it is loaded from.
enum class LoadCopy : std::uint8_t {
  kNone,
  kMemfd,    // a copy in a memfd of this name
  kFile,     // a copy in a new file of this path
  kRemoved,  // a copy in a file in this folder that has no name any more
};
struct LoadLibrary {  // dlopen(); result: the library
  static constexpr std::string_view kName = "load_library";
  std::string path;  // without a slash: one of ctxconf's
  LoadCopy copy = LoadCopy::kNone;
  std::string to;  // the name or the path of the copy
  friend bool operator==(const LoadLibrary&, const LoadLibrary&) = default;
};
struct UnloadLibrary {
  static constexpr std::string_view kName = "unload_library";
  Value library;
  friend bool operator==(const UnloadLibrary&, const UnloadLibrary&) = default;
};
// Sets the thread's otel_thread_ctx_v1 with the code of the program or of a library; not in
// "plain".
struct SetSlot {
  static constexpr std::string_view kName = "slot";
  Value value;
  StoreOrder order = StoreOrder::kPlain;
  Value library;  // 0: the program, or a library of `preload`
  friend bool operator==(const SetSlot&, const SetSlot&) = default;
};
struct SlotAddress {  // result: the address of the thread's otel_thread_ctx_v1; not in "plain"
  static constexpr std::string_view kName = "slot_address";
  Value library;
  friend bool operator==(const SlotAddress&, const SlotAddress&) = default;
};
struct ThreadPointer {  // result: the thread's; 0 if it has none
  static constexpr std::string_view kName = "thread_pointer";
  friend bool operator==(const ThreadPointer&, const ThreadPointer&) = default;
};

struct Print {  // on stdout
  static constexpr std::string_view kName = "print";
  std::string text;
  friend bool operator==(const Print&, const Print&) = default;
};
struct SystemCall {  // any; result: the kernel's
  static constexpr std::string_view kName = "syscall";
  std::uint64_t number = 0;  // of this machine
  std::vector<Value> args;   // at most 6
  friend bool operator==(const SystemCall&, const SystemCall&) = default;
};

// Done by the recorder, while the process waits:
struct SampleNow {  // a snapshot like the periodic ones, so that no verdict depends on their timing
  static constexpr std::string_view kName = "look";
  friend bool operator==(const SampleNow&, const SampleNow&) = default;
};
struct Join {  // waits for the answer to an operation with `later`
  static constexpr std::string_view kName = "join";
  friend bool operator==(const Join&, const Join&) = default;
};

using What = std::variant<Memfd, SecretMemfd, Open, Close, Truncate, Seal, Map, Unmap, Protect,
                          Advise, Remap, NameMapping, Withhold, Give, Store, Write, Fill, Copy,
                          Alternate, Repeat, Split, Crowd, LoadLibrary, UnloadLibrary, Fence, Load,
                          ReadBack, ReadClock, Sleep, Spin, Await, NewThread, ExitThread, Signal,
                          Handle, Mask, Return, Fork, Exec, Exit, WaitChild, Unshare, SetSlot,
                          SlotAddress, ThreadPointer, Print, SystemCall, SampleNow, Join>;

struct Operation {
  What what;
  std::string as;         // the name of its result, thread or child from here on
  std::string on;         // the name of the thread that executes it
  std::string in;         // or the name of the child whose first thread does; neither: the process
  bool may_fail = false;  // the script continues if the call is refused
  bool later = false;     // does not wait for its answer: see Join
  std::string if_set;     // skipped unless this name has a value
  std::string
      unless_set;    // skipped if this name has a value: `as` of an operation that may be refused
  std::string note;  // for the reader of the script
  friend bool operator==(const Operation&, const Operation&) = default;

  std::string_view name() const;  // "store"
  const std::string& actor() const { return on.empty() ? in : on; }
};

enum class Program : std::uint8_t {
  // A program without a C library.
  kPlain,
  kSlot,  // exports otel_thread_ctx_v1
  // Programs of the C library, which load libraries.
  kLibc,
  kLibcSlot,       // position-independent, exports otel_thread_ctx_v1
  kLibcNoPie,      // the same, at a fixed address
  kLibcAligned,    // the same as kLibcSlot, with a TLS block aligned to a page
  kLibcAligned64,  // the same, aligned to 64 bytes
  kLibcStaticPie,  // the same as kLibcSlot, without a loader
};
// The program's file: "ctxconf-puppet-slot".
std::string_view file_of(Program program);
std::optional<Program> program_named(std::string_view name);  // as in a script: "libc_slot"
bool has_loader(Program program);                             // which loads libraries

struct Script {
  Program program = Program::kPlain;
  std::vector<std::string> preload;  // libraries that are loaded when the program starts
  std::vector<Operation> operations;
  friend bool operator==(const Script&, const Script&) = default;
};

struct ScriptProblem {
  std::size_t line = 0;  // 1-based; from check(): the line of the operation in to_json()
  std::string text;
};

// Problems before the run: unknown names, wrong widths, threads without a name.
std::optional<ScriptProblem> check(const Script& script);

// JSON lines; the first one has the version and the program.
std::string to_json(const Script& script);
std::string to_json(const Operation& operation);  // one line without its newline
// Also runs check(). Ignores blank lines, and lines whose first character after blanks is #.
// `lines` gets the line number of each operation.
std::expected<Script, ScriptProblem> script_from_json(std::string_view text,
                                                      std::vector<std::size_t>* lines = nullptr);

// Writes a script. Each call appends one operation and returns the name of its result as a value,
// which later operations may use: fd1, map2, now3, ...
class Builder {
 public:
  explicit Builder(Program program = Program::kPlain) { script_.program = program; }

  // Who executes what follows: the result of thread() or fork(), or Value(): the first thread.
  Builder& by(const Value& actor);
  Builder& by_first();
  // The first thread has ended, and this one executes its operations; Value(): the first is back.
  Builder& first_is(const Value& heir);
  // These apply to the next operation only.
  Builder& may_fail();
  Builder& later();
  Builder& note(std::string text);
  Builder& as(std::string name);
  Builder& if_set(const Value& result);
  Builder& unless_set(const Value& result);

  Value memfd(std::string name, std::uint64_t flags);
  Value secret(std::uint64_t flags = 0);
  Value open(std::string path, std::uint64_t flags, std::uint64_t mode = 0600);
  void close(Value fd);
  void truncate(Value fd, Value size);
  void seal(Value fd, std::uint64_t seals);
  Value map(Map map);
  Value map_anonymous(Value size, std::uint64_t prot, std::uint64_t flags);
  Value map_file(Value fd, Value size, std::uint64_t prot, std::uint64_t flags);
  void unmap(Value at, Value size);
  void protect(Value at, Value size, std::uint64_t prot);
  void advise(Value at, Value size, std::uint64_t advice);
  Value remap(Value at, Value old_size, Value size, std::uint64_t flags, Value to = 0);
  void name(Value at, Value size, std::optional<std::string> name);
  Value withhold(Value at, Value size);
  void give(Value fd, Value at, Value size);

  void store(Value at, std::uint32_t width, Value value, StoreOrder order = StoreOrder::kPlain);
  void store_bytes(Value at, Bytes bytes, StoreOrder order = StoreOrder::kPlain);  // one store
  void write(Value at, Bytes bytes, CopyHow how = CopyHow::kBytes);
  void fill(Value at, Value size, Bytes pattern = {std::byte{0}}, CopyHow how = CopyHow::kBytes);
  void copy(Value to, Value from, Value size, CopyHow how = CopyHow::kBytes);
  void alternate(Value to, Value first, Value second, Value size, Value times,
                 CopyHow how = CopyHow::kBytes);
  void repeat(Value times, std::vector<Value> stores, Value spins = 0);
  void split(Value at, Value size);
  void crowd(Crowd crowd);
  void fence(FenceKind kind = FenceKind::kSeqCst);
  Value load(Value at, std::uint32_t width);
  void read_back(Value at, Value size);

  Value clock(std::uint64_t clock = 7);
  void sleep(Value ns);
  void spin(Value times);
  void await(Value at, std::uint32_t width, Value value);

  Value thread(bool tls = true);
  void exit_thread();
  void signal(std::uint64_t signal, Value to, bool process = false);
  void handle(std::uint64_t signal, SignalAction action);
  void mask(std::uint64_t signal, bool block);
  void return_from_handler();
  Value fork(ForkHow how = ForkHow::kFork, std::uint64_t flags = 0, Value pid = 0);
  void exec(std::string program = "plain", std::vector<std::string> args = {});
  void exit(std::uint64_t code = 0);
  Value wait(Value child);
  void unshare(std::uint64_t flags);
  void preload(std::string library) { script_.preload.push_back(std::move(library)); }
  Value load_library(std::string path, LoadCopy copy = LoadCopy::kNone, std::string to = {});
  void unload_library(Value library);
  void slot(Value value, StoreOrder order = StoreOrder::kPlain, Value library = 0);
  Value slot_address(Value library = 0);
  Value thread_pointer();
  void print(std::string text);
  Value syscall(std::uint64_t number, std::vector<Value> args = {});
  void look();
  void join();

  std::size_t size() const { return script_.operations.size(); }
  const Script& script() const& { return script_; }
  Script script() && { return std::move(script_); }

 private:
  void add(What what);
  Value add_named(What what, const char* stem);

  Script script_;
  std::string on_;
  std::string in_;
  Value first_;
  Operation next_;  // the settings for it
  std::vector<std::string> threads_;
  std::size_t named_ = 0;
};

}  // namespace ctxconf::conformance::puppet
