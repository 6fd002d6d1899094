# clang-format and clang-tidy as tests.
find_program(CLANG_FORMAT clang-format-19 REQUIRED)
find_program(CLANG_TIDY clang-tidy-19 REQUIRED)
find_program(RUN_CLANG_TIDY run-clang-tidy-19 REQUIRED)

add_test(NAME format
  COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/scripts/check_format.py" ${CLANG_FORMAT}
          "${PROJECT_SOURCE_DIR}")
set_tests_properties(format PROPERTIES LABELS unit TIMEOUT 120)

# Every C++ source in the compilation database that is neither generated nor a test, nor a program
# that is wrong on purpose.
add_test(NAME clang_tidy
  COMMAND ${RUN_CLANG_TIDY} -quiet -j 2 -clang-tidy-binary ${CLANG_TIDY} -p "${PROJECT_BINARY_DIR}"
          "^${PROJECT_SOURCE_DIR}/(abi|sys|writer_ref|reader_ref|conformance|fuzz|golden)/(?!.*_test\\.)(?!testees/(?!adapter)).*\\.cc$")
set_tests_properties(clang_tidy PROPERTIES LABELS slow TIMEOUT 1500 PROCESSORS 2)

# All that clang-tidy needs beside the sources.
add_custom_target(lint_headers DEPENDS ctxconf_proto ctxconf_json_headers)
if(TARGET ctxconf_test_headers)
  add_dependencies(lint_headers ctxconf_test_headers)
endif()
