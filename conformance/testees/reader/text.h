// Bytes and text.
#pragma once

#include <string>
#include <string_view>

namespace ctxconf::testees {

bool is_utf8(std::string_view bytes);
std::string hex(std::string_view bytes);
std::string base64(std::string_view bytes);

}  // namespace ctxconf::testees
