# clang-tidy as a test.
find_program(CLANG_TIDY clang-tidy-19 REQUIRED)
find_program(RUN_CLANG_TIDY run-clang-tidy-19 REQUIRED)

add_test(NAME clang_tidy
  COMMAND nice -n 19 $<TARGET_FILE:Python3::Interpreter>
          "${PROJECT_SOURCE_DIR}/scripts/check_tidy.py" ${RUN_CLANG_TIDY}
          ${CLANG_TIDY} "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
set_tests_properties(clang_tidy PROPERTIES LABELS slow TIMEOUT 1500 PROCESSORS 2 COST 2000)

# Everything that clang-tidy needs in addition to the sources.
add_custom_target(lint_headers DEPENDS ctxconf_proto ctxconf_json_headers)
if(TARGET ctxconf_test_headers)
  add_dependencies(lint_headers ctxconf_test_headers)
endif()
