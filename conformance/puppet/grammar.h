// Programs that publish a process context in every way that OTEP 4719 allows, some of them with
// thread contexts (thread_grammar.h). Written from the text of the OTEP, not from the rules: a
// production is allowed only if a reader always finds what the text allows at that moment (nothing,
// the old context, none, or the new one).
#pragma once

#include <cstdint>
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
#include "conformance/puppet/steps.h"
#include "conformance/puppet/thread_grammar.h"

namespace ctxconf::conformance::puppet {

std::vector<Production> productions();

// A message before it is encoded.
struct Pair {
  std::string key;
  Bytes value;                        // an encoded AnyValue
  std::optional<unsigned> key_index;  // field 3, which must not be used here
};
struct Content {
  bool has_resource = true;
  std::vector<Pair> resource;
  std::vector<Pair> attributes;
  bool split_resource = false;  // field 1 twice
  bool attributes_first = false;
  bool unknown_fields = false;
  bool dropped_count = false;          // Resource field 2
  bool entity = false;                 // Resource field 3, about its first key
  unsigned varint_padding = 0;         // extra bytes in the encoding of lengths
  Bytes raw;                           // appended as it is
  std::optional<Reference> reference;  // of thread contexts
};
Bytes encode(const Content& content);
Bytes string_value(std::string_view text);

enum class Location : std::uint8_t {
  kInline,       // directly after the header
  kInlineGap,    // ... with other data of the writer in between
  kAnonymous,    // a mapping of its own
  kShared,       // ... that children share
  kOtherFile,    // ... of another memfd
  kReadOnly,     // ... without write permission after it is filled
  kTwoMappings,  // across the border of two
  kBefore,       // in the mapping that ends where the header's mapping begins
  kAfter,        // in the mapping that begins where the header's mapping ends
  kHeap,         // brk
  kStack,        // a mapping that grows downwards
};
enum class Style : std::uint8_t {
  kFields,   // each in its own width
  kWords,    // eight bytes at a time
  kHalves,   // four bytes at a time
  kBytes,    // one byte at a time
  kVectors,  // 32 bytes without a timestamp, then the rest
  kCopied,   // assembled elsewhere, and copied without a timestamp
  kTwice,    // other values first
};
enum class Sizing : std::uint8_t { kTruncate, kTruncateTwice, kMappedFirst, kFallocate };
enum class Length : std::uint8_t { kWhole, kHeader, kPage };

struct Naming {
  Length length = Length::kWhole;
  std::string text = "OTEL_CTX";
  bool payload = false;    // names the payload's mapping; not in legal programs
  std::uint64_t from = 0;  // pages of the mapping before the named part
};

struct Stamp {
  std::uint64_t clock = 7;  // CLOCK_BOOTTIME
  bool plus_one = false;    // the old value and one
  bool repeated = false;    // the old value; not in legal programs
  bool smaller = false;     // ... less one
  std::optional<std::uint64_t> constant;
  bool halves = false;
  StoreOrder order = StoreOrder::kPlain;
  std::optional<FenceKind> fence;
};

struct Publication {
  bool anonymous = false;
  std::string memfd_name = "OTEL_CTX";
  std::uint64_t memfd_flags = 11;  // CLOEXEC | ALLOW_SEALING | NOEXEC_SEAL
  bool refused_first = false;      // no descriptor is free at the first attempt
  bool retry_same = false;         // the second attempt is the same call
  Sizing sizing = Sizing::kTruncate;
  std::uint64_t pages = 1;
  std::uint64_t asked = 0;      // bytes asked of mmap; 0: whole pages
  std::uint64_t map_flags = 2;  // MAP_PRIVATE
  std::uint64_t prot = 3;
  bool closed = true;
  std::uint64_t advice = 10;  // MADV_DONTFORK; 0: none
  bool advice_by_page = false;
  bool advice_partial = false;  // all but the last page; not in legal programs
  std::uint64_t more_advice = 0;
  Location location = Location::kInline;
  std::uint64_t gap = 0;
  std::uint64_t spare = 0;  // bytes after its end in the payload's buffer
  bool garbage_after = false;
  Content content;
  CopyHow how = CopyHow::kBytes;
  Style style = Style::kFields;
  CopyHow header_how = CopyHow::kVector;
  std::string signature = "OTEL_CTX";
  std::uint32_t version = 2;
  bool foreign_order = false;  // big-endian numbers
  std::int64_t size_error = 0;
  std::optional<std::uint32_t> size;     // instead of the number of bytes
  std::optional<std::uint64_t> pointer;  // instead of the address
  std::int64_t pointer_error = 0;
  std::uint64_t header_at = 0;
  bool nothing = false;     // size 0 and a null pointer
  bool keeps_file = false;  // kOtherFile: its descriptor stays open
  bool zero_first = false;  // also stores a timestamp of zero
  Stamp stamp;
  std::vector<Naming> early;
  std::vector<Naming> late = {Naming{}};
  unsigned threads = 0;  // how many other threads take steps
  unsigned noise = 0;
  bool again_in_place = false;  // into the mapping that a zero alone withdrew
};

enum class Renewal : std::uint8_t {
  kNewBuffer,  // a mapping of its own
  kInPlace,    // copied over the old one between the zero and the new timestamp
  kUnchanged,  // the same bytes
  kSpare,      // after the old one in its buffer
};
enum class Release : std::uint8_t { kKept, kUnmapped, kOverwritten };
struct Update {
  Renewal renewal = Renewal::kNewBuffer;
  Content content;
  Style style = Style::kFields;  // kFields to kBytes
  bool same_signature = false;   // stores signature and version again, unchanged
  CopyHow how = CopyHow::kWords;
  StoreOrder zero_order = StoreOrder::kPlain;
  Stamp stamp;
  Release release = Release::kKept;
  std::vector<Naming> early;
  std::vector<Naming> late = {Naming{}};
  unsigned threads = 0;
  unsigned noise = 0;
  // Not in legal programs:
  bool no_zero = false;
  bool zero_in_halves = false;
  bool encoded_in_window = false;
  bool blanked_signature = false;
  bool poisoned_before = false;
  bool moved = false;  // mremap of the header's mapping
};

enum class Dropped : std::uint8_t {
  kUnmapped,
  kZeroUnmapped,
  kZero,
  kZeroUnnamed,
  kClearedUnmapped,
};
struct Drop {
  Dropped how = Dropped::kUnmapped;
  bool release_payload = false;
};

// What happens around the writer.
enum class Noise : std::uint8_t {
  kMap,
  kMemfd,
  kStores,
  kName,
  kClock,
  kFork,
  kVfork,
  kAdvise,
  kLook,
  kThread,
  kSignal,
  kPrint,
};

struct Act {
  enum class Kind : std::uint8_t {
    kPublish,
    kUpdate,
    kDrop,
    kNoise,
    kLook,
    kChild,
    kExec,
    kWrong,
    kThread,
    kFirstEnds,  // the first thread ends, and the others continue
  };
  Kind kind = Kind::kLook;
  std::uint64_t seed = 0;  // for the order of its steps: it does not depend on other acts
  bool deviant = false;    // the act of a deviation
  bool repeated = false;   // publishes although a context exists; not in legal programs
  Publication publication;
  Update update;
  Drop drop;
  Noise noise = Noise::kMap;
  std::vector<Act> child;
  ThreadAct thread;
  bool other_program = false;  // kExec: with the variable of thread contexts, or without
  bool by_thread = false;      // kExec: by another thread than the first
  std::string wrong;           // kWrong: what the deviation does between two acts
};

struct Plan : StepChanges {
  std::vector<Act> acts;
  bool slot = false;  // the program has the variable of thread contexts
  unsigned threads = 0;
  bool alone = false;                // and nothing else starts a thread
  std::optional<std::uint64_t> cut;  // the process ends after this many thousandths of it
  bool killed = false;               // ... by a signal
  bool exits = false;                // exits by itself at its end
  Used used;
};

struct Surroundings {
  bool names_anonymous = false;  // the host names anonymous memory
};

enum class Threads : std::uint8_t { kMaybe, kNever, kAlways };  // whether threads have contexts
// Has its own seed.
Act made(Act::Kind kind, Rng& rng);
Plan legal_plan(Rng& rng, const Surroundings& host, Threads threads = Threads::kMaybe);
Update legal_update(Rng& rng, const Publication& published, bool threads);
// What a reader finds in the first process or in a child of it between two acts.
struct Moment {
  std::size_t operations = 0;  // of the script that come before
  std::optional<Value> child;
  // The message of its context, and the addresses; nothing: there is no context.
  std::optional<Bytes> message;
  bool unusual_encoding = false;  // padded lengths, or the Resource in two parts
  // There is none, and no mapping either: it was never published, or unmapped, or a child has not
  // inherited it. Otherwise a zero timestamp says so, as in an update that takes long.
  bool unmapped = false;
  Value header;
  Value payload;
  std::vector<std::string> names;  // of its records, by index
  std::vector<ThreadScript::Visible> records;
};
// Adds to plan.used. `moments`: after each act, until the first thread ends.
Script script_of(Plan& plan, std::vector<Moment>* moments = nullptr);
// Makes the room for an inline payload fit the payload.
void make_room(Publication& publication);

}  // namespace ctxconf::conformance::puppet
