# The vectors that are built into the program, for reports.
ctxconf_embed(builtin_vectors conformance/rules/builtin_vectors.h
  golden/process-context/inline-one-page.json golden/thread-record/layout.json)

# Tests the reference programs and the judge with the golden vectors.
ctxconf_test(writer_golden_test
  SRCS writer_ref/golden_test.cc writer_ref/otel_ctx.cc writer_ref/otel_thread_ctx.cc
       writer_ref/linux_kernel.cc
  DEPS ctxconf_golden SANITIZED LABELS process)
ctxconf_test(reader_golden_test SRCS reader_ref/golden_test.cc DEPS ctxconf_golden ctxconf_reader)
ctxconf_test(judge_golden_test SRCS conformance/judge/golden_test.cc DEPS ctxconf_golden ctxconf_judge ctxconf_observe)
