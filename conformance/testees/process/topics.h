// The topics of process_writer, each of which has its own source.
#pragma once

#include "conformance/testees/writer/cases.h"

namespace ctxconf::testees {

extern const Topic kHeaderCases;
extern const Topic kPayloadCases;
extern const Topic kPlacementCases;
extern const Topic kMappingCases;
extern const Topic kNamingCases;
extern const Topic kUpdateCases;
extern const Topic kWithdrawalCases;
extern const Topic kStoreOrderCases;
extern const Topic kForkCases;
extern const Topic kClockCases;
extern const Topic kFailureCases;

}  // namespace ctxconf::testees
