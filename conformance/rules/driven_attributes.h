// What an SDK says that it takes of a thread's context, and whether the attributes of a record are
// those that were given.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/rules/driven_threads.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

// What the SDK takes of a context, by the adapter's capabilities and limits. Without them it takes
// everything that the format holds.
struct TakenContext {
  std::optional<std::vector<std::string>> keys;  // nothing: any
  unsigned flags = 0xff;                         // the bits of the trace flags
  bool inherits = false;  // a context has the attributes of the one around it, too
  std::size_t value_bytes = abi::kMaxValueBytes;
  std::size_t record_bytes = abi::kRecommendedRecordBytes;
  std::size_t key_count = 256;

  bool takes(std::string_view key) const;
};
TakenContext taken_context(const SessionEvidence& session);

// Whether the innermost context of a thread has anything that a record shows: ids, or attributes
// that the SDK takes, for which there is room and a key map can have names.
bool has_to_show(const ImageEvidence& evidence, const DrivenSample& sample);

// Bytes of the longest beginning of at most `limit` bytes that ends between two characters.
std::size_t cut_size(std::string_view text, std::size_t limit);

// Whether the text that shows a boolean or a number reads as a different one, or as none at all.
// A number in an unusual form does not.
bool reads_as_another(const nlohmann::json& any_value, const std::string& text);

struct AttributeFault {
  std::string saw;
  std::string signature;
  std::optional<abi::AttributeEntry> entry;  // nothing: there is none

  std::vector<Hexdump::Mark> marks() const;  // the entry, in a dump of its record
};

// Compares records with what was given, operation by operation.
class AttributeJudge {
 public:
  explicit AttributeJudge(const ImageEvidence& evidence);

  // Call it for samples in their order, each at a valid record that is this context's.
  std::optional<AttributeFault> fault_of(const DrivenSample& sample);
  // The same, for an attribute of which the record has neither the name nor the value.
  std::optional<AttributeFault> lost_from(const DrivenSample& sample);

  std::size_t compared() const { return compared_; }   // attributes
  bool lacked_names() const { return lacked_names_; }  // there was no key map to compare by

 private:
  void hear_until(std::size_t operation);
  std::optional<AttributeFault> fault_of(const DrivenSample& sample, const ExpectedContext& context,
                                         const std::string& key);
  bool may_be_missing(const DrivenSample& sample, const ExpectedContext& context,
                      std::string_view key, std::string_view text) const;
  std::size_t count_of_other_names(const Record& record,
                                   const std::set<std::string_view>& names) const;
  bool is_cut_by_record(const Record& record, const abi::AttributeEntry& entry,
                        std::string_view text) const;
  std::optional<AttributeFault> left_over(const DrivenSample& sample) const;
  bool may_be_of_outer(const DrivenSample& sample, const std::string& key) const;

  struct AcceptedName {
    std::set<std::string> values;
    std::size_t last = 0;  // operation
  };

  const ImageEvidence* evidence_;
  const SessionEvidence* session_;
  TakenContext taken_;
  std::size_t heard_ = 0;  // operations
  // The attributes of all contexts so far.
  std::map<std::string, AcceptedName, std::less<>> accepted_;
  std::size_t names_ = 0;     // in the key map
  std::size_t named_by_ = 0;  // the last operation that changed that number
  std::size_t compared_ = 0;
  bool lacked_names_ = false;
};

}  // namespace ctxconf::conformance
