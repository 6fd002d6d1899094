// What threads do with their contexts in every way that OTEP 4947 leaves open. Written from the
// document's sentences and not from the rules: whenever a thread is stopped, a reader finds no
// record, one to ignore, or one that is whole.
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

// What field 2 of a process context says about them.
struct Reference {
  std::string schema = "tlsdesc_v1_dev";
  std::optional<std::vector<std::string>> keys;  // nothing: no map
  bool map_first = false;
  bool before_others = false;
  bool used = true;  // there may be records
  // Of no legal program:
  bool no_schema = false;
  bool no_map = false;
  bool in_resource = false;
  Bytes schema_value;  // an encoded AnyValue instead
  Bytes map_value;
};
// Names that differ, the same ones in every program.
std::vector<std::string> first_keys(std::size_t count);

// How what is announced goes on from one process context to the next.
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
  bool beyond = false;  // the first index outside the map; of no legal program
};

// What is wrong with a record; of no legal program.
enum class Flaw : std::uint8_t {
  kNone,
  kRootSpanId,     // as in a draft
  kSizeSwapped,    // its bytes
  kNoTraceId,      // beside a span id
  kNoSpanId,       // beside a trace id
  kFlags,          // without ids
  kValidTwo,       // 2 in the valid byte
  kValidFf,        // 255
  kSizeIsCount,    // the number of entries
  kSizeWithHead,   // counts the fixed part as well
  kSizeLess,       // by one
  kSizeMore,       // by one
  kOddAddress,     // of the record
  kPointer,        // to the attributes, in their place
  kReleased,       // unmapped while it is attached
  kNowhere,        // the slot holds an address where nothing is
  kBeyondMapping,  // the size announces more than is mapped
  kVarint,         // lengths above 127 have two bytes
  kPadded,         // entries begin at even offsets
  kCut,            // the last entry says that it is longer
};

enum class Memory : std::uint8_t {
  kMapping,
  kBorder,       // across the border of two pages
  kTwoMappings,  // ... of two mappings
  kHeap,         // brk
  kStack,        // a mapping that grows downwards
  kFile,         // private memory of a file, as static data is
  kBlock,        // the thread's TLS block
  kReadOnly,     // a mapping without write permission once it is filled
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
// As a reader is to find it, with its valid byte set. `names`: elements of the key map.
Bytes encode(const RecordPlan& record, std::size_t names);

struct ThreadAct {
  enum class Kind : std::uint8_t {
    kAttach,
    kDetach,
    kAppend,
    kShrink,
    kHandOver,  // to another thread
    kShare,     // with another thread, unchanged from there on
    kFork,      // of this thread, whose child looks around and ends
    kRun,       // is busy while it is looked at
    kEnd,
  };
  enum class Retiring : std::uint8_t { kKept, kCleared, kOverwritten, kUnmapped };
  enum class Ending : std::uint8_t { kHidden, kAttached };
  Kind kind = Kind::kAttach;
  unsigned thread = 0;    // 0: the first one; others begin with what they do first
  unsigned other = 1;     // of kHandOver and kShare
  bool in_place = false;  // how the thread works, if it begins here
  bool own_block = false;
  RecordPlan record;
  Memory memory = Memory::kMapping;
  Writing writing = Writing::kFields;
  CopyHow how = CopyHow::kBytes;
  std::uint64_t spare = 0;  // bytes behind its end
  bool leftovers = false;   // ... which are not zero
  bool nested = false;      // what was attached comes back later
  bool in_handler = false;  // attached by a signal handler, until it returns
  bool reused = false;      // the memory of the record that was attached last
  bool null_first = false;
  bool at_once = false;     // in place: other ids, in one store of 32 bytes
  bool by_another = false;  // writes some of it before it is visible
  StoreOrder order = StoreOrder::kPlain;
  std::optional<FenceKind> fence;
  Retiring retiring = Retiring::kKept;
  Ending ending = Ending::kHidden;
  // kAttach in place: the ids, one after the other, while the record is valid. kAppend: the size
  // first. Both are looked at in the middle; of no legal program.
  bool turned = false;
};
// Often of the thread that made `before`.
ThreadAct legal_thread_act(Rng& rng, bool first_only,
                           const std::optional<ThreadAct>& before = std::nullopt);

class Steps;

// The threads of a process while its script is written. What has no place there is left out: a
// record before it is announced, a detach of nothing.
class ThreadScript {
 public:
  // `may_end` is called where a legal program may end.
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
  bool is_attached() const;  // a thread has a record now

 private:
  struct Held {
    Value at;
    std::uint64_t room = 0;
    Bytes bytes;
    Memory memory = Memory::kMapping;
    bool shared = false;
    std::optional<Value> buffer;  // a mapping that is the record's alone
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
