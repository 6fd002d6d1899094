// The answers of the reader in the words of the testee protocol (docs/testee-protocol.md).
#pragma once

#include <nlohmann/json.hpp>

#include "conformance/testees/reader/agent.h"

namespace ctxconf::testees {

// The capability "reader": what it shows and how much it takes.
nlohmann::json reader_traits();

// `result`, with `context` or `record` next to it.
nlohmann::json json_of(const Answer& answer);
// As in OTLP/JSON.
nlohmann::json json_of(const Pairs& pairs);

}  // namespace ctxconf::testees
