// Programs that publish process context (OTEP 4719). Each is legal in its own way, or wrong in
// exactly one. `--list` names them; the .json file next to a topic says which requirements its
// cases are about.
#include "conformance/testees/process/topics.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
const char* const kProgram = "process_writer";
}  // namespace ctxconf::testees

int main(int argc, char** argv) {
  using namespace ctxconf::testees;
  return run_cases(
      argc, argv,
      {kHeaderCases, kPayloadCases, kPlacementCases, kMappingCases, kNamingCases, kUpdateCases,
       kWithdrawalCases, kStoreOrderCases, kForkCases, kClockCases, kFailureCases});
}
