// What a driven program was told to attach, thread by thread, and what the threads showed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/rules/driven_evidence.h"

namespace ctxconf::conformance {

struct ExpectedAttribute {
  std::string key;
  std::optional<std::string> text;  // nothing: a value of another kind
  nlohmann::json value;             // as it was given, an AnyValue if the request is right
};

// The member `attributes` of a request, whatever it is.
std::vector<ExpectedAttribute> expected_attributes(const nlohmann::json& request);

bool may_name_keys(const nlohmann::json& request);  // attributes of a thread
// The attributes that the threads were given by this operation, as far as it was accepted.
std::vector<ExpectedAttribute> accepted_attributes(const DrivenOperation& operation);
// Whether the operation consists of several requests that may name keys, all answered with ok.
bool gives_names_at_once(const DrivenOperation& operation);

// A context as the adapter was asked to attach it, which the record of its thread must show.
struct ExpectedContext {
  std::string name;  // the member `ctx`
  // Hexadecimal, as the reply names it, else as given; empty: attributes only.
  std::string trace_id;
  std::string span_id;
  unsigned flags = 0;
  std::vector<ExpectedAttribute>
      attributes;               // in the order in which they were given, repeated or not
  std::size_t attached_by = 0;  // index of the operation

  bool has_ids() const { return !trace_id.empty(); }
  bool gives(std::string_view key) const;
  // The texts that were set for this key, in order; more than one: it was appended again.
  std::vector<std::string> texts_of(std::string_view key) const;
};

struct ExpectedThread {
  std::string name;
  std::int32_t tid = 0;
  std::vector<std::shared_ptr<const ExpectedContext>> stack;  // innermost last
  std::shared_ptr<const ExpectedContext> ended;  // the innermost one, by this operation
  bool moved = false;                            // `ended` goes on in another thread
  bool used = false;                             // something was attached here, or may have been
  bool known = true;  // false: an operation here failed half-way, or was not answered

  const ExpectedContext* innermost() const { return stack.empty() ? nullptr : stack.back().get(); }
};

// One thread after one operation, where its slot was sampled.
struct DrivenSample {
  std::size_t operation = 0;  // index into SessionEvidence::operations
  const DrivenOperation* driven = nullptr;
  const ImageEvidence* image = nullptr;
  ExpectedThread thread;
  Slot slot;

  const ExpectedContext* context() const { return thread.innermost(); }
  bool shows_record() const { return slot.state == SlotState::kRecord; }
};

// A sample of each thread about which everything is known, after each operation, in order.
std::vector<DrivenSample> driven_samples(const ImageEvidence& evidence);

// Whether it shows another thread's context or record; tctx.tls.per-thread judges that.
bool is_of_another_thread(const std::vector<DrivenSample>& samples, const DrivenSample& sample);

// Lower-case hexadecimal.
std::string trace_id_of(const Record& record);
std::string span_id_of(const Record& record);
bool has_no_ids(const Record& record);
bool shows_ids_of(const Record& record, const ExpectedContext& context);

// The entry that counts for the attribute of this name; nothing: there is none.
std::optional<abi::AttributeEntry> entry_named(const Record& record, std::string_view name);
std::string text_of(const abi::AttributeEntry& entry);

// The key map after an operation, and its names; nothing: no context, or none with a key map that
// is an array and was kept whole.
const ThreadlocalEntry* key_map_entry_at(const ImageEvidence& evidence,
                                         const DrivenOperation& operation);
std::optional<std::vector<std::string>> key_map_at(const ImageEvidence& evidence,
                                                   const DrivenOperation& operation);
const ThreadlocalEntry* threadlocal_entry(const Context& context, std::string_view key);

}  // namespace ctxconf::conformance
