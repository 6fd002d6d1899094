// Stops a thread and copies its record.
#pragma once

#include <sys/types.h>

#include <vector>

#include "conformance/testees/reader/record.h"
#include "conformance/testees/reader/variable.h"
#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {

extern const Choices kSampleChoices;

enum class SampleState {
  kRecord,
  kNone,     // the thread has no context, or it could not be read
  kFailed,   // what a broken reader takes for an error of this thread
  kGivenUp,  // ... and of the whole process
};

SampleState sample(pid_t pid, pid_t tid, const std::vector<Access>& accesses, RecordCopy& out);

}  // namespace ctxconf::testees
