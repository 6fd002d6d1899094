// What a process context says of the thread contexts: which mechanism, and the names of attributes.
#pragma once

#include "conformance/testees/reader/payload.h"
#include "conformance/testees/reader/record.h"
#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {

extern const Choices kReferenceChoices;

struct ReferenceData {
  bool reads_variable = false;  // the records of OTEP 4947 are there
  KeyMap names;
};
ReferenceData reference_data_of(const Message& message);

}  // namespace ctxconf::testees
