#include "writer_ref/thread_bench_kernel.h"

#ifdef CTXCONF_BENCH_CALLS
#define BENCH(function) function
#else
#define BENCH(function) function##_inline
// In the module that uses it, as in an SDK that embeds the static library.
extern "C" {
__thread otel_thread_ctx_record* otel_thread_ctx_v1 = nullptr;
}
#endif

// Exported like the slot, so that it is accessed like the slot.
extern "C" {
extern __attribute__((visibility("default"))) __thread void* volatile thread_bench_plain;
__thread void* volatile thread_bench_plain = nullptr;
}

namespace ctxconf::writer {
namespace {

void nothing(const KernelInput&) {}
void plain_store(const KernelInput& in) { thread_bench_plain = in.record; }
void attach(const KernelInput& in) { BENCH(otel_thread_ctx_attach)(in.record); }
void attach_detach(const KernelInput& in) {
  BENCH(otel_thread_ctx_attach)(in.record);
  BENCH(otel_thread_ctx_attach)(nullptr);
}
void attach_restore(const KernelInput& in) {
  BENCH(otel_thread_ctx_attach)(BENCH(otel_thread_ctx_attach)(in.record));
}
void update(const KernelInput& in) {
  BENCH(otel_thread_ctx_begin)(in.record, in.trace_id.data(), in.span_id.data(), 1);
  for (int i = 0; i < 2; ++i) {
    BENCH(otel_thread_ctx_append)
    (in.record, sizeof *in.record, i, in.values[i], in.lengths[i]);
  }
  BENCH(otel_thread_ctx_end)(in.record);
}
// Appends to a record that one store empties.
void append(const KernelInput& in) {
  in.record->attrs_data_size = 0;
  BENCH(otel_thread_ctx_append)(in.record, sizeof *in.record, 2, in.values[1], in.lengths[1]);
}
void append_shrink(const KernelInput& in) {
  const std::uint16_t mark = in.record->attrs_data_size;
  BENCH(otel_thread_ctx_append)(in.record, sizeof *in.record, 2, in.values[1], in.lengths[1]);
  BENCH(otel_thread_ctx_shrink)(in.record, mark);
}

constexpr Kernel kKernel = {nothing,        plain_store, attach, attach_detach,
                            attach_restore, update,      append, append_shrink};

}  // namespace
}  // namespace ctxconf::writer

const ctxconf::writer::Kernel* thread_kernel() { return &ctxconf::writer::kKernel; }
