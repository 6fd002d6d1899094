// Errors are values: the failed step, an errno, and its object.
#pragma once

#include <cstring>
#include <expected>
#include <string>
#include <utility>

namespace ctxconf::sys {

struct [[nodiscard]] Error {
  const char* op = "";  // the step that failed: "process_vm_readv", "parse maps"; static storage
  int err = 0;          // errno, or 0 when no system call failed
  std::string detail;   // the object of the step: an address, a line, a pid
};

template <class T = void>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> fail(const char* op, int err, std::string detail) {
  return std::unexpected(Error{op, err, std::move(detail)});
}

// "process_vm_readv: 0x7f00: Bad address"
inline std::string to_string(const Error& e) {
  std::string out = e.op;
  if (!e.detail.empty()) out += ": " + e.detail;
  if (e.err != 0) out += std::string(": ") + std::strerror(e.err);
  return out;
}

}  // namespace ctxconf::sys

// Declares `name` as the value of `expression`, or returns its error from here.
#define CTX_ASSIGN_OR_RETURN(name, expression)                                      \
  auto name##_or_error = (expression);                                              \
  if (!name##_or_error) return std::unexpected(std::move(name##_or_error).error()); \
  auto& name = *name##_or_error

// The same for a Result<>.
#define CTX_RETURN_IF_ERROR(expression)                            \
  do {                                                             \
    if (auto ctx_check_result = (expression); !ctx_check_result)   \
      return std::unexpected(std::move(ctx_check_result).error()); \
  } while (false)
