# Compares the catalogue with a newer text of an OTEP. libmd: SHA-256 without a cryptography
# library.
ctxconf_library(ctxconf_drift
  SRCS conformance/requirements/drift.cc conformance/requirements/source_text.cc
  DEPS ctxconf_catalogue)
target_link_libraries(ctxconf_drift PRIVATE ctxconf_md)
ctxconf_test(drift_test
  SRCS conformance/requirements/drift_test.cc conformance/requirements/source_text_test.cc
  DEPS ctxconf_drift ctxconf_catalogue)
ctxconf_script_test(drift_command_test
  conformance/end_to_end/drift_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)
