# conformance/testee/: talking to a program under test
ctxconf_embed(builtin_schema conformance/testee/builtin_schema.h conformance/testee/protocol.schema.json)
ctxconf_library(ctxconf_testee
  SRCS conformance/testee/checks_process.cc conformance/testee/checks_records.cc
       conformance/testee/checks_thread.cc conformance/testee/driver.cc
       conformance/testee/jobs.cc conformance/testee/line_session.cc
       conformance/testee/protocol.cc
       conformance/testee/testee.cc
       conformance/testee/thread_states.cc conformance/testee/watch_reports.cc
  DEPS ctxconf_builtin_schema ctxconf_observe ctxconf_fmt ${json})
target_include_directories(ctxconf_testee PRIVATE "${PROJECT_BINARY_DIR}")
ctxconf_library(ctxconf_repeats SRCS conformance/command/repeats.cc DEPS ctxconf_judge ctxconf_testee)
ctxconf_test(repeats_test SRCS conformance/command/repeats_test.cc DEPS ctxconf_repeats)
ctxconf_test(testee_test
  SRCS conformance/testee/driver_test.cc conformance/testee/jobs_test.cc
       conformance/testee/protocol_line_test.cc conformance/testee/thread_states_test.cc
       conformance/testee/watch_reports_test.cc
  DEPS ctxconf_judge ctxconf_testee LABELS ptrace)
add_dependencies(testee_test bad_adapter ctxconf-trampoline)
