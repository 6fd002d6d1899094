// Stores, and the messages that they announce, as rules about their order compare and print them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/rules/header_operations.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {

// A failure that the store `by` of `op` caused: with the code that did it, all stores of the
// operation and the header after that store.
Finding wrong_store(const Image& image, const HeaderOperation& op, const HeaderStore& by,
                    const std::string& saw, std::string signature);

// Nothing: too little was kept to tell.
std::optional<bool> same_bytes(const MemoryBlock& a, const MemoryBlock& b);

// Does it decode? Nothing where not all of it was kept.
std::optional<bool> is_message(const Image& image, const MemoryBlock& b);

// What `h` announces, as it was recorded with the store; null: it was not.
const MemoryBlock* announced_by(const Image& image, const HeaderStore& s,
                                const abi::ProcessHeader& h);

struct MessageSample {
  std::uint64_t ns = 0;
  const MemoryBlock* block = nullptr;
};
// The message that `op` announced at later moments, in order.
std::vector<MessageSample> looks_behind(const ImageEvidence& e, const HeaderOperation& op);

// When the naming call was made that ends the operation; 0: none was seen.
std::uint64_t naming_ns(const Image& image, const HeaderOperation& op);

// Adds both hashes, the first difference and the bytes around it.
void show_difference(const Image& image, const MemoryBlock& then, const MemoryBlock& later,
                     const std::string& then_label, const std::string& later_label, Finding& f);

// One finding for those updates, judged by all requirements pctx.update.* that are about stores. It
// is kFail if a requirement of severity error is broken, and kWarn if another one is.
Finding judge_updates(const ImageEvidence& e,
                      const std::function<bool(const HeaderOperation&)>& is_asked_for);

// What follows the last slash.
std::string file_name(std::string_view path);

// "src/ctx.cc:118 in publish", "publish+0x1c in libctx.so" or "libctx.so+0x1234"; hostile.
std::string location_text(const InstructionLocation& location);

// Sets Finding::code, if the location is known.
void name_code(const Image& image, const std::optional<std::uint32_t>& location, Finding& f);

// "1 instruction", "12 instructions".
std::string instructions_text(std::uint64_t count);

}  // namespace ctxconf::conformance
