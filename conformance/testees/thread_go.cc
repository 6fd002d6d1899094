// Programs that pass for Go programs, which may load a library with a slot.
#include "conformance/testees/thread/topics.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
const char* const kProgram = "thread_go";
}  // namespace ctxconf::testees

int main(int argc, char** argv) {
  using namespace ctxconf::testees;
  return run_cases(argc, argv, {kGoCases});
}
