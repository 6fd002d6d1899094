// What threads do with their contexts in every way that OTEP 4947 allows. Written from the text of
// the OTEP, not from the rules: whenever a thread is stopped, a reader finds no record, a record to
// ignore, or a complete one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/puppet/rng.h"
#include "conformance/puppet/script.h"

namespace ctxconf::conformance::puppet {

inline constexpr std::uint64_t kRecordHead = 28;
inline constexpr std::uint64_t kLargestRecord = 640;

std::span<const Production> thread_productions();

// What field 2 of a process context says about thread contexts.
struct Reference {
  std::string schema = "tlsdesc_v1_dev";
  std::optional<std::vector<std::string>> keys;  // nothing: no map
  bool map_first = false;
  bool before_others = false;
  bool used = true;  // there may be records
  // Not in legal programs:
  bool no_schema = false;
  bool no_map = false;
  bool in_resource = false;
  Bytes schema_value;  // replaces the encoded AnyValue
  Bytes map_value;
};
// Distinct names, the same ones in every program.
std::vector<std::string> first_keys(std::size_t count);

// How the announcement changes from one process context to the next.
class Announcement {
 public:
  explicit Announcement(Rng& rng);
  std::optional<Reference> next(Rng& rng);

 private:
  Reference now_;
  bool begun_ = false;
  bool has_map_ = false;
  std::size_t names_ = 0;
};

struct Attribute {
  std::uint8_t key = 0;  // the index is this modulo the number of names
  Bytes value;
  bool beyond = false;  // the first index outside the map; not in legal programs
};

// What is wrong with a record; not in legal programs.
enum class Flaw : std::uint8_t {
  kNone,
  kRootSpanId,     // as in a draft
  kSizeSwapped,    // its bytes
  kNoTraceId,      // with a span id
  kNoSpanId,       // with a trace id
  kFlags,          // without ids
  kValidTwo,       // 2 in the valid byte
  kValidFf,        // 255
  kSizeIsCount,    // the number of entries
  kSizeWithHead,   // counts the fixed part as well
  kSizeLess,       // by one
  kSizeMore,       // by one
  kOddAddress,     // of the record
  kPointer,        // to the attributes, in their place
  kReleased,       // unmapped while attached
  kNowhere,        // the slot has an address where nothing is mapped
  kBeyondMapping,  // the size announces more than is mapped
  kVarint,         // lengths above 127 have two bytes
  kPadded,         // entries begin at even offsets
  kCut,            // the length of the last entry is too large
};

enum class Memory : std::uint8_t {
  kMapping,
  kBorder,       // across the border of two pages
  kTwoMappings,  // ... of two mappings
  kHeap,         // brk
  kStack,        // a mapping that grows downwards
  kFile,         // private file memory, like static data
  kBlock,        // the thread's TLS block
  kReadOnly,     // a mapping without write permission after it is filled
  kShared,       // a mapping that forked children share
};

enum class Writing : std::uint8_t { kFields, kParts, kWhole, kCopied };

struct RecordPlan {
  bool ids = true;
  std::array<std::uint8_t, 16> trace_id{};
  std::array<std::uint8_t, 8> span_id{};
  std::uint8_t flags = 0;
  std::vector<Attribute> attributes;
  Flaw flaw = Flaw::kNone;
};
// The record that a reader should find, with its valid byte set. `names`: elements of the key map.
Bytes encode(const RecordPlan& record, std::size_t names);

struct ThreadAct {
  enum class Kind : std::uint8_t {
    kAttach,
    kDetach,
    kAppend,
    kShrink,
    kHandOver,  // to another thread
    kShare,     // with another thread, unchanged from then on
    kFork,      // by this thread; the child examines itself and ends
    kRun,       // is busy during a look
    kEnd,
  };
  enum class Retiring : std::uint8_t { kKept, kCleared, kOverwritten, kUnmapped };
  enum class Ending : std::uint8_t { kHidden, kAttached };
  Kind kind = Kind::kAttach;
  unsigned thread = 0;    // 0: the first one; others start with their first act
  unsigned other = 1;     // of kHandOver and kShare
  bool in_place = false;  // how the thread works, if it starts here
  bool own_block = false;
  RecordPlan record;
  Memory memory = Memory::kMapping;
  Writing writing = Writing::kFields;
  CopyHow how = CopyHow::kBytes;
  std::uint64_t spare = 0;  // bytes after its end
  bool leftovers = false;   // ... which are not zero
  bool nested = false;      // the previously attached record comes back later
  bool in_handler = false;  // attached by a signal handler, until it returns
  bool reused = false;      // uses the memory of the last attached record
  bool null_first = false;
  bool at_once = false;     // in place: other ids, in one store of 32 bytes
  bool by_another = false;  // writes some of it before it is visible
  StoreOrder order = StoreOrder::kPlain;
  std::optional<FenceKind> fence;
  Retiring retiring = Retiring::kKept;
  Ending ending = Ending::kHidden;
  // kAttach in place: stores the ids one at a time while the record is valid. kAppend: stores the
  // size first. Both are examined in between; not in legal programs.
  bool turned = false;
};
// A random legal act, often of the thread that made `before`.
ThreadAct legal_thread_act(Rng& rng, bool first_only,
                           const std::optional<ThreadAct>& before = std::nullopt);

class Steps;

// The threads of a process while its script is written. Leaves out acts that are impossible: a
// record before it is announced, a detach without a record.
class ThreadScript {
 public:
  // Calls `may_end` where a legal program may end.
  ThreadScript(Builder& builder, Used& used, std::function<void()> may_end)
      : builder_(builder), used_(used), may_end_(std::move(may_end)) {}

  void act(const ThreadAct& act, Rng& rng);
  void published(const std::optional<Reference>& reference);
  void withdrawn();
  void executed() { state_ = State(); }
  void has_slot(bool slot) { slot_ = slot; }
  void first_ends(const ThreadAct& act);
  void begin_child(const Value& pid);
  void end_child();
  bool any_attached() const { return attached_; }
  bool is_attached() const;  // whether a thread has a record now
  // The records that a reader finds now, and their threads. It is undecided what a reader makes of
  // a record that a child has inherited: open.tctx.fork.
  struct Visible {
    std::optional<Value> thread;  // nothing: the first one of the first process
    Value record;
    Bytes bytes;
  };
  std::vector<Visible> visible() const;

 private:
  struct Held {
    Value at;
    std::uint64_t room = 0;
    Bytes bytes;
    Memory memory = Memory::kMapping;
    bool shared = false;
    bool inherited = false;       // attached before the fork, as the child sees it
    std::optional<Value> buffer;  // a mapping only for the record
    std::uint64_t buffer_size = 0;
  };
  struct Thread {
    std::optional<Value> actor;  // nothing: the first one
    bool in_place = false;
    bool hidden = false;  // in place: its valid byte is 0
    bool shrunk = false;
    std::vector<Held> held;  // the last one is attached
    std::optional<Held> retired;
    std::optional<Value> block;  // its TLS, where that is a mapping
  };
  struct State {
    bool usable = false;
    bool silent = false;  // a context without reference data was published
    std::size_t names = 0;
    std::map<unsigned, Thread> threads;
    std::set<unsigned> ended;
    std::optional<Value> child;
    std::optional<Value> scratch;
  };

  void use(std::string_view production) { used_.insert(production); }
  void by(const Thread& thread);
  void step(Rng& rng);
  Thread* thread_of(const ThreadAct& act);
  Thread& start(const ThreadAct& act);
  Held get_memory(const ThreadAct& act, const Thread& t, std::uint64_t need, Rng& rng);
  void write_record(Steps& steps, const ThreadAct& act, const Held& held, const Bytes& bytes);
  void store_piece(const Held& held, const Bytes& bytes, std::size_t from, std::size_t to,
                   CopyHow how);
  void note_content(const ThreadAct& act, const Bytes& bytes);
  void put_aside(const Held& held, const Bytes& bytes);
  void store_slot(const ThreadAct& act, const Thread& t, const Held& held);
  void hold(const ThreadAct& act, Thread& t, Held held);
  void attach(const ThreadAct& act, Thread& t, Rng& rng);
  void refill(const ThreadAct& act, Thread& t, Rng& rng);
  void change_ids(const ThreadAct& act, Thread& t, const Bytes& bytes);
  void switch_at_once(Thread& t, const Bytes& bytes);
  void detach(const ThreadAct& act, Thread& t);
  void attach_in_handler(const ThreadAct& act, Thread& t, Rng& rng);
  void fork(const ThreadAct& act, const Thread& t);
  void run(const Thread& t);
  void retire(const ThreadAct& act, Thread& t, Held held);
  void append(const ThreadAct& act, Thread& t, Rng& rng);
  void shrink(Thread& t, Rng& rng);
  void give(const ThreadAct& act, Thread& from);
  void end(const ThreadAct& act, Thread& t);
  void leave(const ThreadAct& act, Thread& t);
  void leave_to_parent(Thread& t);

  Builder& builder_;
  Used& used_;
  std::function<void()> may_end_;
  State state_;
  std::vector<State> parents_;
  bool attached_ = false;
  bool slot_ = true;  // the program has the variable
};

}  // namespace ctxconf::conformance::puppet
