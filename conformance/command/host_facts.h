// What the host allows, as `list --capabilities` and `doctor` print it.
#pragma once

#include <span>
#include <string>

#include "sys/capabilities.h"

namespace ctxconf::conformance {

// One line per fact. If a fact is not available, a second line says how to get it.
std::string facts_text(std::span<const sys::HostFact> facts);

}  // namespace ctxconf::conformance
