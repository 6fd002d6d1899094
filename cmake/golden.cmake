# golden/: the vectors and their loader, encoder and hexdump.
ctxconf_library(ctxconf_golden
  SRCS golden/diff.cc golden/files.cc golden/folder.cc golden/hexdump.cc golden/members.cc golden/source.cc golden/values.cc golden/vector.cc
  DEPS ctxconf_abi ctxconf_proto ctxconf_fmt ${json})
ctxconf_test(golden_test SRCS golden/folder_test.cc golden/vector_test.cc DEPS ctxconf_golden)
add_test(NAME golden COMMAND ctxconf golden verify --dir "${PROJECT_SOURCE_DIR}/golden")
set_tests_properties(golden PROPERTIES LABELS unit TIMEOUT 120)
ctxconf_script_test(golden_command_test LABELS process
  conformance/end_to_end/golden_command_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)
