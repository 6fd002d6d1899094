// The slot of programs that define it. The linker decides whether it is exported.
#include "conformance/testees/thread/slot.h"

extern "C" {
__attribute__((visibility("default"))) __thread void* otel_thread_ctx_v1 = nullptr;
}

namespace ctxconf::testees {

void** slot() { return &otel_thread_ctx_v1; }

}  // namespace ctxconf::testees
