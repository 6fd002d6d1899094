// The names of a process's attribute keys, as the thread records refer to them.
#pragma once

#include <string>
#include <vector>

namespace ctxconf::reader {

// By position (OTEP 4947); empty where a position has no usable name. At most 256: an index is
// one byte.
using KeyMap = std::vector<std::string>;

}  // namespace ctxconf::reader
