# The reference programs and the judge against the golden vectors.
ctxconf_test(writer_golden_test
  SRCS writer_ref/golden_test.cc writer_ref/otel_ctx.cc writer_ref/otel_thread_ctx.cc
       writer_ref/linux_kernel.cc
  DEPS ctxconf_golden LABELS process)
ctxconf_test(reader_golden_test SRCS reader_ref/golden_test.cc DEPS ctxconf_golden ctxconf_reader)
ctxconf_test(judge_golden_test SRCS conformance/golden_test.cc DEPS ctxconf_golden ctxconf_observe)
