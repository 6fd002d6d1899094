# The vectors that are built into the program, for reports.
set(builtin_vectors
  ${PROJECT_SOURCE_DIR}/golden/process-context/inline-one-page.json
  ${PROJECT_SOURCE_DIR}/golden/thread-record/layout.json)
add_custom_command(
  OUTPUT ${PROJECT_BINARY_DIR}/builtin_vectors.cc
  COMMAND ${CMAKE_COMMAND} -DFUNCTION=builtin_vectors
          -DHEADER=conformance/rules/builtin_vectors.h
          -P ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake
          ${PROJECT_BINARY_DIR}/builtin_vectors.cc ${builtin_vectors}
  DEPENDS ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake ${builtin_vectors}
  VERBATIM)

# Tests the reference programs and the judge with the golden vectors.
ctxconf_test(writer_golden_test
  SRCS writer_ref/golden_test.cc writer_ref/otel_ctx.cc writer_ref/otel_thread_ctx.cc
       writer_ref/linux_kernel.cc
  DEPS ctxconf_golden SANITIZED LABELS process)
ctxconf_test(reader_golden_test SRCS reader_ref/golden_test.cc DEPS ctxconf_golden ctxconf_reader)
ctxconf_test(judge_golden_test SRCS conformance/judge/golden_test.cc DEPS ctxconf_golden ctxconf_judge ctxconf_observe)
