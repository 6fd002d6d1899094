// The topics of the programs with thread contexts, each of which has its own source.
#pragma once

#include "conformance/testees/writer/cases.h"

namespace ctxconf::testees {

extern const Topic kReferenceDataCases;
extern const Topic kRecordCases;
extern const Topic kIdsCases;
extern const Topic kStoreOrderCases;
extern const Topic kForkCases;
extern const Topic kLoaderCases;
extern const Topic kGoCases;

}  // namespace ctxconf::testees
