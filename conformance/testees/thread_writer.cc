// Programs that publish thread context (OTEP 4947) next to a process context, with a slot of their
// own. Each is legal in its own way, or wrong in exactly one. `--list` names them; the .json file
// next to a topic says which requirements its cases are about.
#include "conformance/testees/thread/topics.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
const char* const kProgram = "thread_writer";
}  // namespace ctxconf::testees

int main(int argc, char** argv) {
  using namespace ctxconf::testees;
  return run_cases(argc, argv,
                   {kReferenceDataCases, kRecordCases, kIdsCases, kStoreOrderCases, kForkCases});
}
