// The evidence of one run: what was seen of which process when. Immutable once
// recorded, saved as JSON, enough to judge again without the program.
//
// Levels static to stores: a snapshot is what a reader outside the process could have copied at
// that moment. Memory is recorded as blocks, so that a rule asks sys::SnapshotMemory as it would
// ask a live process. Calls and stores of one image share one order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "conformance/evidence/image_key.h"
#include "conformance/evidence/session.h"
#include "conformance/requirements/catalogue.h"
#include "sys/capabilities.h"
#include "sys/elf_image.h"
#include "sys/map_table.h"
#include "sys/memory_reader.h"
#include "sys/remote_addr.h"
#include "sys/result.h"

namespace ctxconf::conformance {

// Why a snapshot was taken.
enum class Moment {
  kStart,      // attach: the first snapshot; run: an exec has worked; wrap: not used
  kPeriodic,   // every 100 ms
  kNaming,     // before prctl(PR_SET_VMA_ANON_NAME, ...) that gives a context its name, or tries to
  kNamed,      // after that call, whatever its result
  kExecEntry,  // at execve, before the image is replaced
  kExit,       // the process is about to end, its memory still there
  kEnd,        // the last snapshot of an observation that the process outlives
  kOperation,  // run: an operation was answered
};
std::string_view to_string(Moment m);
std::optional<Moment> moment_from(std::string_view word);

struct MemoryBlock {
  sys::RemoteAddr at;
  std::uint64_t wanted = 0;      // bytes asked for
  std::uint64_t readable = 0;    // of these, bytes that could be copied from the start
  std::vector<std::byte> bytes;  // what was kept: min(readable, the recorder's limit)
  std::uint64_t hash = 0;        // of all `readable` bytes, kept or not (FNV-1a)
  friend bool operator==(const MemoryBlock&, const MemoryBlock&) = default;
};

// Payloads up to this size are recorded and decoded; of larger ones this much is hashed.
inline constexpr std::uint64_t kMostPayload = std::uint64_t{64} << 20U;

// A payload too large for each block that announces it: kept once, found by its size and hash.
struct LargePayload {
  std::uint64_t hash = 0;
  std::shared_ptr<const std::vector<std::byte>> bytes;  // all of it, never null
};

// A mapping whose name begins with a documented name, or one that carries a valid
// header under no such name. Entries that the kernel split off the same mapping are joined.
struct Candidate {
  std::vector<sys::MapEntry> entries;  // at least one, adjacent, ascending
  std::vector<std::optional<std::string>>
      vm_flags;                           // an entry's smaps VmFlags: "rd wr mr mw me dc"
  bool named = true;                      // false: found by content, no reader would
  bool stable = true;                     // the timestamp was the same before and after the copy
  std::vector<MemoryBlock> memory;        // header, payload and what other layouts would point at
  std::vector<sys::MapEntry> neighbours;  // entries that hold an address that the header mentions
  std::optional<std::uint64_t> found_at;  // offset of a signature that is not at the start
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

struct DescriptorLink {
  int fd = -1;
  std::string link;  // "/memfd:OTEL_CTX (deleted)"
  friend bool operator==(const DescriptorLink&, const DescriptorLink&) = default;
};

struct Snapshot {
  Moment moment = Moment::kPeriodic;
  std::uint64_t first_seen_ns = 0;  // CLOCK_BOOTTIME of the harness when this state was seen first
  std::uint64_t last_seen_ns = 0;   // ... and last; equal states in a row are one snapshot
  std::uint64_t times = 1;          // how often it was seen
  std::vector<Moment> moments;      // distinct moments at which it was seen
  std::vector<Candidate> candidates;
  std::vector<DescriptorLink> descriptors;  // only those to a memfd named OTEL_CTX
};

// OTEL_CTX, also as a writer may have got it wrong: otel-ctx, OTEL_CONTEXT.
bool looks_like_the_name(std::string_view text);

// A system call that concerns a publication, or may concern one. Calls are in the order in which
// they returned, an exec in the order in which it began.
struct SystemCall {
  std::int32_t tid = 0;
  // "memfd_create", "ftruncate", "mmap", "madvise", "prctl", "mremap", "munmap", "mprotect", ... A
  // new process is listed where it was first seen, without arguments. Its name is the kernel's word
  // for how it was made: "fork", "vfork" or "clone".
  std::string name;
  std::array<std::uint64_t, 6> args{};
  std::optional<std::int64_t> result;  // -errno on failure; nothing: it has not returned
  bool injected = false;               // the result is ours: the kernel never saw the call
  std::uint64_t entered_ns = 0;        // CLOCK_BOOTTIME of the harness
  // Places in the image's order of events; left: 0 when it has not returned.
  std::uint64_t entered_order = 0;
  std::uint64_t left_order = 0;
  std::string text;  // memfd_create: the name; prctl(PR_SET_VMA): the name asked for; hostile
  std::string file;  // ftruncate, mmap: what the descriptor is (/proc/PID/fd); hostile
  // The 32 bytes at the start of the mapping that the call concerns (madvise, prctl, mremap,
  // munmap, mprotect: its address argument; others: none), before it and after it; short: not
  // readable.
  std::vector<std::byte> before;
  std::vector<std::byte> after;
  // prctl(PR_SET_VMA), before the call: index into Image::snapshots of the state it found;
  // nothing: that state was not kept.
  std::optional<std::uint64_t> snapshot;
  std::optional<std::uint64_t> clock_ns;  // clock_gettime: the time it gave
};

// Where an instruction is.
struct InstructionLocation {
  std::uint64_t address = 0;
  std::string module;               // the file's path, hostile; empty: code that is in no file
  std::uint64_t offset = 0;         // in that file
  std::string symbol;               // the function's, demangled; hostile; empty: none
  std::uint64_t symbol_offset = 0;  // of the instruction in it
  std::string source_file;          // by its DWARF line table; hostile; empty: none
  std::uint32_t source_line = 0;
  // If this is code of a standard library: its callers, the innermost first, up to the first one in
  // other code.
  // NOLINTNEXTLINE(readability-redundant-member-init): g++ misses it in aggregates without
  std::vector<InstructionLocation> callers = {};
  std::uint32_t stack = 0;  // only while recording: number of the recorder's copy, from 1; 0: none
  friend bool operator==(const InstructionLocation&, const InstructionLocation&) = default;
};

// What one instruction changed in a watched header, seen right after it (x86: the trap follows
// the store), or what the kernel stored there in one system call of the thread. Stores of equal
// bytes and failed compare-and-exchanges are stores as well.
struct Store {
  std::int32_t tid = 0;     // 0: no watched thread: the kernel, or another process with the memory
  std::uint64_t order = 0;  // in the image's order of events
  std::uint64_t at_ns = 0;  // CLOCK_BOOTTIME of the harness
  std::uint64_t header = 0;
  std::uint8_t words = 0;         // bit i: bytes 8i to 8i+7 were stored to
  std::vector<std::byte> before;  // the 32 bytes; shorter: not readable
  std::vector<std::byte> after;
  std::optional<std::uint32_t> location;  // index into Image::locations: of the store's instruction
  std::string call;  // "read": the kernel's store in this call; empty: that instruction's
  // The payload that the header announces after the store, if it is mapped. `bytes` is empty if an
  // earlier store's block has the same address, size and hash.
  std::optional<MemoryBlock> payload;
  // Only for a store that zeroes the timestamp: the payload that the next timestamp announces, as
  // it was at this store. `readable` ends where memory was not mapped yet. If these bytes differed
  // then, but the program's memory had the announced bytes elsewhere, it holds those bytes and
  // their address. Nothing: not known.
  std::optional<MemoryBlock> prepared;
  // Only for a store that zeroes the timestamp: how many threads of the process may have run since
  // the previous stop of the storing thread. Nothing: not known.
  std::optional<std::uint32_t> threads;
  // Only for a store that zeroes the timestamp: its thread then slept for some tenths of a second
  // without a break, or ended, while the timestamp was still zero.
  bool rested = false;
};

// What showed the memory that is watched. The words of recordings are in timeline_json.cc.
enum class WatchBegin : std::uint8_t {
  kUnknown,    // something that this version does not know
  kMemfd,      // mmap of a memfd that has a context's name
  kAnonymous,  // madvise(MADV_DONTFORK) of zero memory, or mremap of that before its signature
  kNamed,      // prctl
  kMoved,      // mremap of a context
};

// Why a watch ended. The words of recordings are in timeline_json.cc.
enum class WatchEnd : std::uint8_t {
  kWithImage,  // the image ended under it
  kUnmapped,
  kMoved,
  kPublished,  // the publication was complete, and no more was to be watched
  kPublishedElsewhere,
  kTooManyStores,
  kGivenUp,
  kOther,  // a reason that this version does not know
};

// While it lasts, every store to the 32 bytes at `header` by a thread of the process is in
// Image::stores.
struct Watch {
  std::uint64_t header = 0;
  std::uint64_t armed_order = 0;
  std::uint64_t armed_ns = 0;
  WatchBegin begin = WatchBegin::kUnknown;
  std::vector<std::byte> found;              // the 32 bytes when it began
  std::optional<std::uint64_t> ended_order;  // nothing: the image ended under it
  WatchEnd end = WatchEnd::kWithImage;
  std::vector<std::int32_t> unwatched;  // threads that ran without it for a while
  friend bool operator==(const Watch&, const Watch&) = default;
};

// What a reader could have copied at one boundary between two instructions, and at each further one
// up to the next view.
struct ReaderView {
  std::uint64_t step = 0;         // instructions of the step trace until then
  std::uint64_t order = 0;        // in the image's order of events
  std::vector<std::byte> header;  // the 32 bytes; shorter: not readable
  // What a header with a timestamp announces; `bytes` is empty where the block of an earlier view
  // of the step trace has the same address, size and hash. Nothing: no timestamp, or no payload.
  std::optional<MemoryBlock> payload;
  // Index into Image::locations: of the instruction before it; nothing: of the first view, and
  // where it is not known.
  std::optional<std::uint32_t> location;
};

// An instruction that orders stores: a fence, a release store, an atomic read-modify-write.
struct Barrier {
  std::uint64_t step = 0;  // number of instructions before it
  std::string text;        // "lock or dword ptr [rsp], 0"
  std::optional<std::uint32_t> location;
};

// One thread was moved instruction by instruction, from the store that began a change to a header,
// or from a gate that it passed before, until the change was over (level steps).
struct StepTrace {
  bool from_gate = false;
  std::int32_t tid = 0;
  std::uint64_t header = 0;
  std::uint64_t began_order = 0;  // of the view after that store, or at the gate
  std::uint64_t steps = 0;        // instructions
  bool over = false;              // the trace lasted until the change was over
  std::string ended_because;      // "over", or what was in the way: "too many instructions"
  std::vector<ReaderView> views;  // the first is from before that store, or at the gate
  std::vector<Barrier> barriers;  // at most kMaxBarriers
  bool whole() const { return over; }
};

// A copy that a reader would have taken for one content: the timestamp was the same before and
// after.
struct RaceRead {
  std::uint64_t read = 0;  // of the race, from 1
  std::uint64_t timestamp = 0;
  std::vector<std::byte> header;  // the 32 bytes, copied in between
  MemoryBlock payload;
};

// A reader on another processor copied a context again and again while the program changed it
// (level race).
struct Race {
  std::uint64_t header = 0;
  std::uint64_t duration_ns = 0;
  std::uint64_t reads = 0;       // all of them
  std::uint64_t none = 0;        // the timestamp or another field was not valid
  std::uint64_t unreadable = 0;  // the header could not be read
  std::uint64_t too_large = 0;   // the payload is larger than what is read here
  std::uint64_t overtaken = 0;   // the timestamp was another one after the copy
  std::uint64_t accepted = 0;    // the timestamp was the same after the copy
  std::uint64_t contents = 0;    // accepted reads with another timestamp than the one before
  // The reads that show a fault, in order, at most kMaxRaceReads: the payload was not whole or had
  // numbers of several updates, or two reads with one timestamp had different payloads.
  std::vector<RaceRead> kept;
};

// What a child would have had if a thread had forked there: a copy of the process that ran nothing.
struct ForkProbe {
  std::int32_t tid = 0;
  std::uint64_t order = 0;            // of the last event before it, in the image's order
  std::string at;                     // "before madvise", "after mmap", "after a store"
  std::vector<Candidate> candidates;  // of each the first 32 bytes, as far as they are readable
  friend bool operator==(const ForkProbe&, const ForkProbe&) = default;
};

// The facts about one ELF file that the thread-context rules need. Recorded for the executable and
// for each file that has the slot variable under any symbol or relocation, from a running process
// or from a file (`ctxconf elf`).
struct ModuleFacts {
  std::string path;  // hostile
  bool elf64 = true;
  bool little_endian = true;
  std::uint16_t machine = 0;  // EM_*
  std::uint16_t type = 0;     // ET_*
  bool executable = false;    // the program; false: a library
  bool has_dynamic_section = false;
  bool has_interpreter = false;
  bool symbolic = false;        // DF_SYMBOLIC
  bool section_headers = true;  // false: stripped of them
  bool go = false;              // Go build information
  std::optional<sys::ElfSegment> tls;
  std::vector<sys::ElfSymbol> dynamic_symbols;  // named otel_thread_ctx_v1, defined or not
  std::vector<sys::ElfSymbol> static_symbols;   // the same in .symtab
  std::vector<sys::TlsRelocation> relocations;  // of that symbol, and nameless ones
  // Instructions that add the variable's offset to a module base which a nameless DTPMOD64
  // gave them (local dynamic), a line each; empty: none found, or nothing to look for.
  std::vector<std::string> local_dynamic_code;
  std::string problem;  // not empty: its tables contradict themselves; says how
  friend bool operator==(const ModuleFacts&, const ModuleFacts&) = default;
};

// One thread at a moment when it could not run: its slot, and what the slot points at.
// Equal samples of a thread in a row are one.
struct ThreadSample {
  std::int32_t tid = 0;
  std::uint32_t module = 0;         // index into Image::modules: whose variable
  std::uint64_t first_seen_ns = 0;  // CLOCK_BOOTTIME of the harness
  std::uint64_t last_seen_ns = 0;
  std::uint64_t times = 1;
  std::uint64_t slot = 0;   // address of the variable; 0: no TLS block yet, so null
  std::uint64_t value = 0;  // what it holds: the record's address, 0 for none
  bool inherited = false;   // seen in a forked child before it ran: its parent's record
  std::optional<sys::MapEntry> mapping;  // the one with `value`, if not all was readable
  // The 28 bytes and as many entries as they announce in the byte order of the process;
  // nothing for a null slot. `readable` below `wanted`: not contiguous.
  std::optional<MemoryBlock> record;
  std::optional<MemoryBlock> after;  // up to 1 KiB after it, for other layouts
};

// What one instruction changed in the watched record of a thread, seen right after it.
struct RecordStore {
  std::int32_t tid = 0;     // that stored
  std::uint64_t order = 0;  // in the image's order of events
  std::uint64_t at_ns = 0;  // CLOCK_BOOTTIME of the harness
  std::uint64_t record = 0;
  // Bit i: bytes 8i to 8i+7, from the record's address rounded down to 8, were stored to. Other
  // bytes that differ were stored after the previous recorded store.
  std::uint8_t words = 0;
  std::uint64_t slot = 0;  // what the owner's variable holds after it
  // Both begin at the record's address: the 28 bytes and the entries, as long as they were
  // announced.
  std::vector<std::byte> before;  // as they were at the last store, or when the watch began
  std::vector<std::byte> after;
  std::optional<std::uint32_t> location;  // index into Image::locations
};

// While it lasts, stores to the first 28 bytes at `record` are in Image::record_stores.
struct RecordWatch {
  std::uint64_t record = 0;
  std::uint64_t slot = 0;  // the variable's address
  std::int32_t owner = 0;  // the thread whose variable that is
  std::uint64_t armed_order = 0;
  std::optional<std::uint64_t> ended_order;
  std::vector<std::byte> found;         // the record when it began
  std::vector<std::int32_t> unwatched;  // threads that ran without it
  friend bool operator==(const RecordWatch&, const RecordWatch&) = default;
};

// What a reader of the stopped thread would have copied at one boundary between two instructions,
// and at each further one up to the next view.
struct SlotView {
  std::uint64_t step = 0;   // instructions of the step trace until then
  std::uint64_t order = 0;  // in the image's order of events
  std::uint64_t value = 0;  // what the variable holds: the record's address, 0 for none
  // As in a ThreadSample; nothing: no address.
  std::optional<MemoryBlock> record;
  // The timestamp in the header of the process context at that moment; nothing: none is known.
  std::optional<std::uint64_t> published;
  std::optional<std::uint32_t> location;  // as in a ReaderView
  // Bytes of the record changed, and the instruction of this thread stored to none of them.
  bool by_another = false;
};

// While such step traces are recorded, glibc's malloc fills freed memory with this byte.
inline constexpr std::uint8_t kFreedByte = 0xa5;

// A thread was moved instruction by instruction from a store to its own variable, or to the record
// there, until the change was over (level steps of OTEP 4947).
struct SlotStepTrace {
  std::int32_t tid = 0;
  std::uint64_t slot = 0;       // the variable's address
  std::uint64_t steps = 0;      // instructions
  bool over = false;            // the trace lasted until the change was over
  std::string ended_because;    // "over", or what was in the way: "too many instructions"
  std::vector<SlotView> views;  // the first is from before that store
  bool whole() const { return over; }
};

inline constexpr std::size_t kMaxCalls = 4096;  // of one image
inline constexpr std::size_t kMaxStores = 8192;
inline constexpr std::size_t kMaxExits = 1024;
inline constexpr std::size_t kMaxRecordStores = 4096;
inline constexpr std::size_t kMaxStepTraces = 256;
inline constexpr std::size_t kMaxViews = 1024;  // of one step trace
inline constexpr std::size_t kMaxBarriers = 256;
inline constexpr std::size_t kMaxRaces = 16;
inline constexpr std::size_t kMaxRaceReads = 8;  // of one race
inline constexpr std::size_t kMaxForkProbes = 512;

struct Image {
  ImageKey key;
  std::string executable;  // /proc/PID/exe
  std::vector<std::string> command_line;
  std::string traceparent;  // TRACEPARENT of its environment, where that is one
  // "glibc 2.36", "musl 1.2.3"; "static": no interpreter, whatever is linked to it; empty: not
  // known
  std::string libc;
  bool elf64 = true;          // EI_CLASS
  bool little_endian = true;  // EI_DATA
  std::uint32_t personality = 0;
  std::int64_t boottime_offset_ns = 0;  // the time namespace's, to be added to our clock
  std::uint64_t started_ns = 0;         // our CLOCK_BOOTTIME at exec or first sight
  std::string ending;
  std::string unread;  // why its mappings or its memory could not be read; empty: they could
  std::uint64_t unexamined = 0;  // in one look: candidates with something in them, over the limit
  std::vector<Snapshot> snapshots;
  std::uint64_t snapshots_dropped = 0;  // over the limit
  std::uint64_t looks_skipped = 0;      // at naming calls, because of too many contexts
  std::uint64_t snapshots_judged = 0;   // of snapshots_dropped; see requirements_dropped
  std::vector<LargePayload> payloads;   // distinct; of blocks that hold only the beginning
  std::vector<SystemCall> calls;        // level syscalls; at most kMaxCalls
  std::uint64_t calls_dropped = 0;
  std::uint64_t other_calls_dropped = 0;  // munmap, mprotect and new processes, over their limit
  std::string calls_unseen;               // why they were not recorded; empty: they were
  std::vector<Watch> watches;             // level stores; in order
  std::vector<Store> stores;              // at most kMaxStores, in order
  std::uint64_t stores_dropped = 0;
  std::string stores_unseen;                   // why they were not recorded; empty: they were
  std::vector<InstructionLocation> locations;  // distinct
  std::vector<StepTrace> step_traces;          // level steps; at most kMaxStepTraces, in order
  std::string steps_unseen;                    // why some or all are missing; empty: none is
  std::vector<Race> races;                     // level race; at most kMaxRaces
  std::string races_unseen;                    // why one did not take place; empty: none was to
  std::vector<ForkProbe> forks;  // run alone has them; at most kMaxForkProbes, in order
  std::string forks_unseen;      // why some or all are missing; empty: none is
  std::vector<SlotStepTrace> slot_step_traces;  // run, wrap --watch threads; at most kMaxStepTraces
  std::string slot_steps_unseen;                // why some or all are missing; empty: none is
  std::vector<RecordWatch> record_watches;      // in order; run alone has them
  std::vector<RecordStore> record_stores;       // at most kMaxRecordStores, in order
  std::uint64_t record_stores_dropped = 0;
  std::vector<ModuleFacts> modules;
  // Indexes into `modules`: the largest set of modules that defined the variable at the same time.
  std::vector<std::uint32_t> defined_together;
  // In the order of first_seen_ns; after these, samples over the limit that are kept because they
  // seem to break a requirement. A null slot is a sample only after its thread had a record.
  std::vector<ThreadSample> threads;
  // Variables of that name that are in no .dynsym and were not null: the first sample of each
  // module, without the record.
  std::vector<ThreadSample> hidden_slots;
  std::uint64_t threads_dropped = 0;  // samples over the limit
  std::uint64_t threads_judged = 0;   // of threads_dropped
  // Requirements that seemed broken by states or samples which were judged and not kept.
  std::vector<std::string> requirements_dropped;
  // run: samples of threads that end before their process, at their exit: they run no more code.
  std::vector<ThreadSample> exits;  // at most kMaxExits
  std::string threads_unread;       // why no thread could be sampled; empty: they were
  std::vector<std::string> notes;   // "memory cannot be read: Operation not permitted"

  // How many states or samples were neither kept nor judged.
  std::uint64_t states_unjudged() const {
    return snapshots_dropped - std::min(snapshots_judged, snapshots_dropped);
  }
  std::uint64_t samples_unjudged() const {
    return threads_dropped - std::min(threads_judged, threads_dropped);
  }
};

// The bytes of a block, wherever they are kept; only the first bytes if the rest was not kept.
std::span<const std::byte> kept_bytes(const Image& image, const MemoryBlock& block);

struct Process {
  std::int32_t pid = 0;
  std::int32_t parent = 0;
  std::uint32_t session = 0;  // as in the keys of its images; wrap --faults: a cell's
  // Its number in its own pid namespace; 0: not asked, because it is in ours.
  std::int32_t own_pid = 0;
  std::vector<Image> images;
  std::optional<int> exit_code;
  std::optional<int> killed_by;  // signal number
  bool ended_by_us = false;      // the signal was the harness's
};

// Why no snapshot of a process was taken; empty: there is one.
std::string why_unseen(const Process& process);

// One run of the program under a fault, and how it ended.
struct FaultRun {
  std::string fault;  // "RLIMIT_FSIZE=0"
  std::optional<int> exit_code;
  std::optional<int> killed_by;
  bool ended_by_us = false;
  // Where the fault hit the publication: the system call in progress at the
  // fault's signal and the file of its descriptor; empty when it did not.
  std::string last_syscall;
  std::string last_file;
  bool published = false;
};

// Where a header's payload field points in a process. A 32-bit process may have
// sign-extended the address on its way to 64 bits.
constexpr std::uint64_t payload_address(std::uint64_t field, bool elf64) {
  const bool extended = (field >> 31U) == (UINT64_MAX >> 31U);
  return !elf64 && extended ? field & UINT32_MAX : field;
}

// A result that was given to calls from outside (--inject).
struct Injection {
  std::string spec;         // as typed: "memfd_create:error=EINVAL:when=1"
  std::string call;         // a SystemCall's name
  std::int64_t result = 0;  // -errno, or the value
  std::uint64_t times = 0;  // how often it was given
  friend bool operator==(const Injection&, const Injection&) = default;
};

// wrap --faults: one more run of the program, with one fault.
struct FaultCell {
  std::uint32_t session = 0;  // of its processes, from 1; no other cell has it
  std::string step;           // what fails, a row of the matrix: "memfd_create", "RLIMIT_FSIZE=0"
  std::string fault;          // how, its column: "EPERM", "frozen"; empty: `step` says it
  std::vector<Injection> injections;  // into this run alone
  bool clock_calls = false;           // as Timeline::clock_calls
  std::string left_out;               // not empty: why it was not run
  bool no_such_call = false;          // ... because the program makes no call that could fail so
  // Not empty: ctxconf ended the cell, although a run without a fault ends by itself. Says how long
  // each took.
  std::string hang;
  std::string output;  // the end of what it printed; hostile
  friend bool operator==(const FaultCell&, const FaultCell&) = default;

  std::string name() const { return fault.empty() ? step : step + "/" + fault; }
  bool was_applied() const {
    return std::ranges::any_of(injections, [](const Injection& i) { return i.times > 0; });
  }
};

// run: a repeat whose evidence is kept, and how many repeats said the same when judged alone.
struct RepeatCount {
  std::uint32_t repeat = 0;
  std::uint32_t times = 1;  // including itself
  friend bool operator==(const RepeatCount&, const RepeatCount&) = default;
};

inline constexpr int kTimelineVersion = 13;
// The oldest version that replay reads; some members had other names.
inline constexpr int kOldestTimelineVersion = 12;

struct Timeline {
  std::string suite_version;
  Mode mode = Mode::kWrap;
  std::vector<std::string> target;
  std::string kernel;
  std::string arch;
  std::string libc;  // of ctxconf
  std::string started_at;
  double seconds = 0;
  std::vector<sys::HostFact> host;
  std::uint64_t page_size = 4096;
  std::uint64_t realtime_minus_boottime_ns = 0;
  std::vector<Process> processes;
  std::vector<FaultRun> faults;
  std::vector<FaultCell> cells;  // in order
  bool faults_asked = false;
  Reading reading = Reading::kReaderVisible;  // of numbered steps, as it was asked for
  std::vector<Injection> injections;
  bool clock_calls = false;       // the vDSO was hidden: every reading of a clock is a system call
  bool watches_lifetime = false;  // --watch lifetime
  std::vector<std::string> expected_resource;  // "KEY=VALUE"
  // Lower-case hexadecimal, as in a traceparent. Printed: found in the output of the program.
  std::vector<std::string> expected_trace_ids;
  std::vector<std::string> expected_span_ids;
  std::vector<std::string> printed_trace_ids;
  std::vector<std::string> printed_span_ids;
  std::vector<std::string> notes;
  std::uint64_t stops = 0;  // wrap: how often a thread of the program stood still for it
  std::string hang;         // not empty: the testee had to be stopped as runaway; says why
  // run: in order. A snapshot or sample that an operation's view names is in the image it names.
  std::vector<Session> sessions;
  std::vector<SkippedCheck> skipped;
  std::vector<RepeatCount> repeats;  // a repeat that is not listed counts once
  // run: if it was asked for some requirements only, their ids; empty: it was asked for all.
  std::vector<std::string> asked_for;
  // A part of the recording is missing: the run did not finish, or only this part was kept.
  bool partial = false;
  std::string incomplete;  // not empty: why some of what was asked for is missing
  // run: not empty: why ctxconf could not record all that it was to; the rest is here.
  std::string harness_fault;
};

// "SIGSEGV", or "signal 99".
std::string signal_name(int signo);
// wrap: whether this is the program itself, in any of its runs.
bool is_root(const Timeline& timeline, const Process& process);
// wrap --faults: the run in which the processes of this session were; null: the first one.
const FaultCell* cell_of(const Timeline& timeline, std::uint32_t session);
// "exited 0".
std::string exit_text(int code);
// "exited 0", "killed by SIGKILL (by ctxconf)"; empty: it is not known to have ended.
std::string ending_of(const Process& process);
// The same of an adapter.
AdapterEnding adapter_ending_of(const Process& process);

inline constexpr std::size_t kLongestTimeline = std::size_t{256} << 20U;  // bytes of JSON

std::string to_json(const Timeline& timeline);
// Nothing if it has more than `most` bytes. Then it makes at most that many bytes, and one process
// or session more.
std::optional<std::string> to_json(const Timeline& timeline, std::size_t most);
// Refuses another version, numbers out of range and anything of the wrong type.
sys::Result<Timeline> timeline_from_json(std::string_view json);

}  // namespace ctxconf::conformance
