#include "conformance/report/digest.h"

#include <sha256.h>
#include <sys/types.h>

#include <span>

#include "conformance/text/json_text.h"

namespace ctxconf::conformance {

Digest sha256(std::string_view text) {
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  Digest out{};
  SHA256_Final(out.data(), &context);
  return out;
}

std::string hex(const Digest& digest, std::size_t size) {
  return hex(std::as_bytes(std::span(digest)).first(size));
}

std::string policy_hash(std::string_view text) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const Digest digest = sha256(text);
  std::string out = "sha256-";
  for (std::size_t i = 0; i < digest.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8U | (i + k < digest.size() ? digest[i + k] : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) out += kAlphabet[group >> (18 - 6 * k) & 63U];
  }
  out.back() = '=';  // 32 bytes leave two after the last whole group
  return out;
}

}  // namespace ctxconf::conformance
