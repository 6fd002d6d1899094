// Whether a reader's answer is one of those that are right.
//
// The content of an AllowedAnswer is a JSON object. Members that it lacks are not compared.
// For a process context:
//   resource, attributes          exactly these, {KEY: AnyValue as in OTLP/JSON}
//   resource_has, attributes_has  at least these
// For a record:
//   trace_id, span_id, flags
//   link                          false: the answer has no ids, not even ids of zeros
//   names                         {NAME: text}: exactly these attributes
//   names_has                     at least these
//   names_any                     {NAME: [text, ...]}: where the name is there, one of these
// A value may be left out or shown otherwise where the adapter does not declare its kind.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "conformance/evidence/reader_evidence.h"

namespace ctxconf::conformance {

// What an adapter says of its reader: the value of the capability "reader", or an empty object.
class ReaderTraits {
 public:
  explicit ReaderTraits(const nlohmann::json& capabilities);

  bool shows_resource() const { return shows("fields", "resource"); }
  bool shows_attributes() const { return shows("fields", "attributes"); }
  // "string", "bool", "int", "double", "array", "kvlist", "bytes", "empty".
  bool shows_kind(std::string_view kind) const { return shows("kinds", kind); }
  bool shows_flags() const;
  // A value of threadlocal.schema_version, or the layout of a draft ("H3"). A reader that does not
  // say which ones it reads knows those of the pinned revisions.
  bool reads(std::string_view format) const;
  bool says(std::string_view member) const;  // a member that is true
  // A limit in bytes, or other number; `otherwise` where it is not declared.
  std::uint64_t number(std::string_view member, std::uint64_t otherwise) const;

 private:
  bool shows(const char* list, std::string_view word) const;
  std::shared_ptr<const nlohmann::json> traits_;  // not null; hostile, and may be large
};

// "string" for {"stringValue":"x"}, "empty" for {}; "" for what is not a value.
std::string_view kind_of_value(const nlohmann::json& value);

// Empty where the reply, a line of the testee protocol, fits; else what differs, in one line that
// may quote it (hostile).
std::string difference(const AllowedAnswer& allowed, const nlohmann::json& reply,
                       const ReaderTraits& traits);

// Empty where the reply satisfies the claim; else what is wrong with it.
std::string problem_with(const AnswerClaim& claim, const nlohmann::json& reply,
                         const ReaderTraits& traits);

// The answer in a line: `accept, resource service.name="shop"`; hostile.
std::string shown_answer(const nlohmann::json& reply);

}  // namespace ctxconf::conformance
