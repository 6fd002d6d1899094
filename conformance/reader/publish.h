// Building blocks of scenes: contexts and records as a correct writer lays them out, in which a
// scene changes what it is about.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/puppet/script.h"
#include "conformance/reader/scene.h"

namespace ctxconf::conformance::reader {

inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kReadWrite = PROT_READ | PROT_WRITE;

// How often a question is asked whose answer may take more than one look.
inline constexpr unsigned kAttempts = 10;

using Pairs = std::vector<std::pair<std::string, std::string>>;  // keys and string values

// An encoded ProcessContext with these string attributes, and reference data if there is a schema.
struct Message {
  Pairs resource;
  Pairs attributes;
  std::string schema;                // threadlocal.schema_version; empty: none
  std::vector<std::string> key_map;  // with a schema, unless `no_key_map`
  bool no_key_map = false;
  std::optional<std::int64_t> schema_number;  // instead of a text
  std::optional<std::size_t> number_at;       // this element of the key map is a number
  puppet::Bytes encoded() const;
  // The content that a reader reports, as in AllowedAnswer; `exactly`: and nothing else.
  std::string content(bool exactly = true) const;
};

// The bytes of hexadecimal digits, which must be valid.
puppet::Bytes from_hex(std::string_view digits);

// A Resource with this service.name and a service.instance.id.
Message service(const std::string& name);

struct Published {
  puppet::Value header;    // address of the mapping
  puppet::Value payload;   // address of the message
  std::uint64_t size = 0;  // of the message
  // The parts of the header that a reader copies.
  Part whole() const { return {header, 32}; }
  Part timestamp() const { return {header + 16, 8}; }
  Part message() const { return {payload, size}; }
};

struct PublishOptions {
  std::string memfd = "OTEL_CTX";
  bool names = true;       // makes the naming call; where the kernel cannot, nothing happens
  bool anonymous = false;  // no memfd
  bool inline_payload = false;
  std::uint64_t mapping = 4096;
  std::uint64_t timestamp = 0;  // 0: now
  bool leave_zero = false;      // does not store the timestamp
};

// Publishes as OTEP 4719 describes it: map, MADV_DONTFORK, fields, timestamp, name.
Published publish(puppet::Builder& b, const puppet::Bytes& payload, const PublishOptions& how = {});
// A candidate that is not a context.
void publish_without_signature(puppet::Builder& b);
// Memory for a message, outside the mapping of the header.
puppet::Value place(puppet::Builder& b, const puppet::Bytes& bytes);
// Updates as OTEP 4719 describes it: timestamp 0, fields, another timestamp.
void update(puppet::Builder& b, const Published& p, const puppet::Value& payload,
            std::uint64_t size, std::uint64_t timestamp = 0);

// A record of OTEP 4947.
struct Record {
  std::string trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
  std::string span_id = "00f067aa0ba902b7";
  std::uint8_t valid = 1;
  std::uint8_t flags = 1;
  std::vector<std::pair<std::uint8_t, std::string>> entries;
  std::optional<std::uint16_t> size;  // instead of that of the entries
  puppet::Bytes encoded() const;
};

// A message with this key map and the schema of these records.
Message reference_data(std::vector<std::string> key_map);

// A record that a thread has attached.
struct Attached {
  puppet::Value record;
  std::uint64_t size = 0;
  puppet::Value slot;                   // address of the variable
  std::optional<puppet::Value> thread;  // nothing: the first one
};
// The current thread of the builder attaches the bytes, which lie alone in new memory. `library`:
// whose variable.
enum class InPage {
  kAtTheBeginning,  // zeros follow, as many as a record can announce
  kAtTheEnd,        // of what is mapped. A later mapping of one page may close the gap
};
Attached attach(puppet::Builder& b, const puppet::Bytes& record,
                InPage where = InPage::kAtTheBeginning, const puppet::Value& library = 0);
Question about_thread(const Attached& a, std::vector<AnswerClaim> claims);

// The content of an answer about a record: its ids, and exactly these names and their values. The
// flags are not compared.
std::string record_content(const Record& record, const Pairs& names);
std::string ids_content(const Record& record);

// Ids that no other number has.
Record numbered_record(unsigned number);

// The first thread, or another one, attaches a plain record and the reader is asked about it. If it
// does not report the ids, the rest of the scene says nothing: `requirement` does.
void require_plain_record(SceneBuilder& s, const std::optional<puppet::Value>& thread = {},
                          const char* requirement = "tctx.reader.model-local-exec");
// The same for a child with this key map and schema, and a library of its own.
struct PlainChild {
  Message message;
  // NOLINTNEXTLINE(readability-redundant-member-init): g++ misses it in aggregates without
  std::string library = {};  // one of ctxconf; empty: the program has the variable
  const char* requirement = "tctx.reader.model-local-exec";
};
void require_plain_child(SceneBuilder& s, const PlainChild& child);

// What the question shows of a process context.
Question about_process(const Published& p, std::vector<AnswerClaim> claims);

// The process gives up its capabilities, so that a reader of its user needs none to read it.
void drop_capabilities(puppet::Builder& b);

// A process that publishes a plain context, and the question about it.
Scene witness_scene();

}  // namespace ctxconf::conformance::reader
