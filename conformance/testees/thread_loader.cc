// Programs with thread contexts that have no slot and load a library with one.
#include "conformance/testees/thread/topics.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
const char* const kProgram = "thread_loader";
}  // namespace ctxconf::testees

int main(int argc, char** argv) {
  using namespace ctxconf::testees;
  return run_cases(argc, argv, {kLoaderCases});
}
