// The operation that an event lies in, as reports draw it: the stores to its header, the calls
// around them, and what a reader would have found.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "conformance/rules/evidence.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

// Nothing: no store to that header and no call for it was recorded. What is left out is far from
// the event.
std::optional<OperationPicture> picture_of(const ImageEvidence& evidence,
                                           const EventLocation& event);

// The first publication and the first update without any event of `wrong`, in which a reader never
// finds anything but the old context, none or the new one.
std::vector<OperationPicture> pictures_without(const ImageEvidence& evidence,
                                               std::span<const EventLocation> wrong);

}  // namespace ctxconf::conformance
