// What the commands print: results on stdout, complaints on stderr.
#pragma once

#include <string>

namespace ctxconf::conformance {

// Prints "ctxconf: TEXT" and, indented, what to do; returns `code`.
int complain(int code, const std::string& text, const std::string& what_to_do = {});
// Says that a signal ended the command; returns 128 + `signo`.
int complain_ended(const std::string& command, int signo);

// Writes to stdout and returns `code`. If stdout cannot be written, complains and returns 3, unless
// `code` takes precedence. Says nothing about EPIPE.
int print(const std::string& text, int code);

}  // namespace ctxconf::conformance
