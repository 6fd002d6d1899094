// The evidence of a timeline, prepared for rules: every recorded context decoded once, in the byte
// order of its process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "abi/process_header.h"
#include "abi/process_layouts.h"
#include "abi/thread_record.h"
#include "conformance/evidence/timeline.h"
#include "conformance/payload/payload.h"

namespace ctxconf::conformance {

// What the first 32 bytes of a candidate are. Each mistake has one state, so that it
// is reported by one rule.
enum class HeaderState {
  kUnreadable,
  kBlank,         // timestamp 0: being written, or withdrawn
  kElsewhere,     // no signature at the start, but further in
  kOlderLayout,   // `recognition.best` says which draft
  kForeignOrder,  // sane only in the byte order that is not the process's
  kNarrow,        // a 32-bit process that gives the pointer four bytes
  kBadSignature,  // all but the signature is fine
  kBadVersion,    // neither 2 nor 1
  kDevelopment,   // version 1
  kUnknown,       // nothing fits
  kValid,
};

// One candidate in one snapshot.
struct Context {
  const Snapshot* snapshot = nullptr;
  const Candidate* candidate = nullptr;
  bool elf64 = true;  // of the process
  HeaderState state = HeaderState::kUnreadable;
  abi::ProcessHeader header{};  // in the byte order of this machine, as the process means it
  abi::Recognition recognition;
  const MemoryBlock* head = nullptr;
  const MemoryBlock* payload_block = nullptr;  // by the merged layout; null: no address or no size
  std::span<const std::byte> payload_bytes;    // what was kept of it
  std::shared_ptr<const Payload> payload;      // null: not all of it is there to be analysed

  std::uint64_t start() const { return candidate->entries.front().range.begin().raw(); }
  // Whether a reader accepts it, and it did not change during the copy.
  bool usable() const { return state == HeaderState::kValid && candidate->stable; }
  // Whether the payload is complete and a message.
  bool is_decoded() const {
    return payload != nullptr && payload->problem == PayloadProblem::kNone;
  }
  // The announced address; a 32-bit process may have sign-extended it.
  std::uint64_t address() const;
  // The mapping that holds the announced address; null when none does.
  const sys::MapEntry* payload_mapping() const;
  // Bytes of the announced range that are mapped from its start without a gap.
  std::uint64_t payload_mapped() const;
};

// One thread with its record, where the slot was not null.
struct Record {
  const ThreadSample* sample = nullptr;
  abi::ThreadRecordHead head{};           // attrs_data_size in the byte order of this machine
  bool whole = false;                     // all 28 + attrs_data_size bytes were readable
  std::span<const std::byte> attributes;  // what was readable of them
  std::span<const std::byte> bytes;       // the record and what lies after it, as one
  bool valid() const { return head.valid == abi::kRecordValid; }
  // The key map at the first look after the sample, or the last before; null: none was seen.
  const ThreadlocalEntry* key_map = nullptr;
  const ThreadlocalEntry* last_key_map = nullptr;  // ... and at the end
  std::vector<std::byte> storage;                  // what `bytes` and `attributes` view
};

struct SessionEvidence;  // rules/driven_evidence.h

struct ImageEvidence {
  const Timeline* timeline = nullptr;
  const Process* process = nullptr;
  const Image* image = nullptr;
  std::vector<std::vector<Context>> contexts;  // one list a snapshot, in order

  // The contexts that rules judge: the usable contexts; if the image never had one, all named ones.
  // A candidate that is not active next to one that is active is legal whatever it holds; one that
  // a naming call announced while nothing was active is judged.
  std::vector<const Context*> judged;
  // The usable ones, each distinct (mapping, timestamp, pointer, size) once, at first sight.
  std::vector<const Context*> first_sights;
  bool has_usable = false;
  bool has_named = false;
  bool has_hidden = false;  // a valid header under no documented name

  std::vector<Record> records;                  // readable records, in order of first sight
  std::vector<const ModuleFacts*> definers;     // with a dynamic TLS definition readers can bind to
  std::vector<const ThreadSample*> unreadable;  // not null, but fewer than 28 bytes could be copied
  std::optional<std::string> schema;            // the last threadlocal.schema_version, if a string
  // The slot symbol in a module, a record, or a threadlocal.* attribute: without any of
  // them the requirements about threads do not apply.
  bool uses_threads = false;
  bool faulted = false;  // a call of this image was answered by --inject, or a limit was set
  // run: what was asked of the process, if hello named it; null: otherwise.
  std::shared_ptr<const SessionEvidence> session;
  const FaultCell* cell = nullptr;  // wrap --faults: the further run it was in; null: the first
  bool published() const { return has_named || has_hidden; }
  bool has_valid_record() const;
  // A reader got something: a context that can be decoded or is empty, or a valid record.
  bool was_read() const;

  // "12 /usr/bin/python3.11", or "12#1 ..." after one exec; in a cell, its name follows.
  std::string name() const;
};

// The images that published or seem to (a candidate or a hidden header was seen), that use thread
// context, or in which a call was answered by fault injection. In a recording of `run`: all images.
std::vector<ImageEvidence> evidence_of(const Timeline& timeline);

// What a sample shows, with the key map of that time; nothing: fewer than 28 bytes could be copied.
// Record::last_key_map is not set.
std::optional<Record> record_of(const ImageEvidence& evidence, const ThreadSample& sample);

// Whether the memory of the record was freed and overwritten since.
bool is_freed(const MemoryBlock& record);
// Why is_freed says nothing about memory that this program frees; empty: it does, or the recording
// does not name the C library.
std::string why_freed_is_unfilled(const Image& image);
inline constexpr const char* kLinkedToGlibc = "an adapter that is linked dynamically to glibc";

// The first sights whose payload was whole and is a ProcessContext.
std::vector<const Context*> decoded_contexts(const ImageEvidence& evidence);

bool all_zero(std::span<const std::byte> bytes);

// What a reader read last; null: nothing that could be decoded.
const Payload* last_payload(const ImageEvidence& evidence);
// A reader's view in one line: "service.name=checkout, 3 more attributes"; hostile text.
std::string summary_of(const ImageEvidence& evidence);
// The same of its threads: "2 threads with a record; 4243: trace 4bf9..., span 00f0...,
// http_route=/cart"; empty when it uses no thread context; hostile text.
std::string threads_of(const ImageEvidence& evidence);

}  // namespace ctxconf::conformance
