# conformance/puppet/: programs that nobody thought of
ctxconf_library(ctxconf_grammar
  SRCS conformance/puppet/content.cc conformance/puppet/deviations.cc
       conformance/puppet/generate.cc conformance/puppet/grammar.cc
  DEPS ctxconf_puppet)
ctxconf_test(generate_test SRCS conformance/puppet/generate_test.cc DEPS ctxconf_grammar)

# Without the deviations of which some are missed: docs/generated-programs.md names them.
set(generated_kinds legal signature-* version-* big-endian size-* pointer-* header-inside clock-*
  resource-* attribute-* nested-* value-* key-* field-* no-message bare-resource payload-* memfd-*
  mapping-* two-contexts timestamp-* named-otherwise named-in-part other-advice forkable
  forkable-in-part advice-* update-without-zero update-size-late update-pointer-late zero-in-halves
  update-timestamp-* encoded-in-window old-payload-* signature-blanked)
list(TRANSFORM generated_kinds PREPEND --only=)
add_test(NAME generated_programs
  COMMAND ctxconf selftest --generate 100 --seed 4719 ${generated_kinds})
add_test(NAME generated_programs_regressions
  COMMAND ctxconf selftest --script ${PROJECT_SOURCE_DIR}/conformance/puppet/regressions)
set_tests_properties(generated_programs generated_programs_regressions PROPERTIES
  LABELS ptrace TIMEOUT 300)
