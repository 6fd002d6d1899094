// What the commands print: results on stdout, complaints on stderr.
#pragma once

#include <string>
#include <string_view>

namespace ctxconf::conformance {

// Prints "ctxconf: TEXT" and, indented, what to do; returns `code`.
int complain(int code, const std::string& text, const std::string& what_to_do = {});
// Says that a signal ended the command; returns 128 + `signo`.
int complain_ended(const std::string& command, int signo);

// Writes to stderr how far a command is. If that cannot be written, the command goes on.
void tell(std::string_view text);

// Writes to stdout and returns `code`. If stdout cannot be written, complains and returns 3, unless
// `code` takes precedence. Says nothing about EPIPE.
int print(const std::string& text, int code);
// The same for what was written to stdout without print(), at the end of a command.
int finish_printing(int code);
// The reason of the exit code that print() returns instead of `code`.
inline constexpr const char* kNotPrinted = "stdout could not be written";

}  // namespace ctxconf::conformance
