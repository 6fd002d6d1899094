// The code that thread_bench measures, built once for each way to access a thread-local variable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "writer_ref/otel_thread_ctx.h"

namespace ctxconf::writer {

// Unknown to the compiler of the kernel.
struct KernelInput {
  otel_thread_ctx_record* record;
  std::array<std::uint8_t, 16> trace_id;
  std::array<std::uint8_t, 8> span_id;
  std::array<const char*, 2> values;
  std::array<std::size_t, 2> lengths;
};

using Operation = void (*)(const KernelInput&);

inline constexpr std::array<const char*, 8> kOperations = {"nothing",
                                                           "plain TLS store",
                                                           "attach",
                                                           "attach and detach",
                                                           "attach, restore outer",
                                                           "in place, 2 attributes",
                                                           "append",
                                                           "append and shrink"};
using Kernel = std::array<Operation, kOperations.size()>;

}  // namespace ctxconf::writer

extern "C" __attribute__((visibility("default"))) const ctxconf::writer::Kernel* thread_kernel();
