# conformance/puppet/: randomly generated programs
ctxconf_library(ctxconf_grammar
  SRCS conformance/puppet/content.cc conformance/puppet/deviations.cc
       conformance/puppet/generate.cc conformance/puppet/grammar.cc
       conformance/puppet/thread_deviations.cc conformance/puppet/thread_grammar.cc
       conformance/puppet/thread_records.cc
  DEPS ctxconf_puppet)
ctxconf_test(generate_test SRCS conformance/puppet/generate_test.cc DEPS ctxconf_grammar)

# Each deviation twice.
add_test(NAME generated_programs COMMAND ctxconf selftest --generate 220 --seed 4719)
add_test(NAME generated_programs_regressions
  COMMAND ctxconf selftest --script ${PROJECT_SOURCE_DIR}/conformance/puppet/regressions)
set_tests_properties(generated_programs generated_programs_regressions PROPERTIES
  LABELS ptrace TIMEOUT 300)
