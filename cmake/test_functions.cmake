# Functions that make tests; they need GoogleTest.

# GoogleTest is most of what a test's compiler reads, and optimisation takes most of the time. Sanitizers would
# make it two thirds slower: the libraries under test have them, the tests do not, unless they are SANITIZED.
add_library(ctxconf_test_flags INTERFACE)
target_link_libraries(ctxconf_test_flags INTERFACE ctxconf_language GTest::gmock ctxconf_fmt
  nlohmann_json::nlohmann_json)
target_compile_options(ctxconf_test_flags INTERFACE -O0 -g1)
target_compile_definitions(ctxconf_test_flags INTERFACE
  CTXCONF_SOURCE_DIR="${PROJECT_SOURCE_DIR}" CTXCONF_BIN_DIR="${PROJECT_BINARY_DIR}/bin")
file(CONFIGURE OUTPUT empty.cc CONTENT "")
add_library(ctxconf_test_headers OBJECT "${PROJECT_BINARY_DIR}/empty.cc")
target_link_libraries(ctxconf_test_headers PRIVATE ctxconf_test_flags)
if(NOT CTXCONF_UNIT_TESTS)
  set_target_properties(ctxconf_test_headers PROPERTIES EXCLUDE_FROM_ALL TRUE)
endif()
target_precompile_headers(ctxconf_test_headers PRIVATE
  <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp> <algorithm> <functional> <map> <optional>
  <string> <vector>)

# ctxconf_test(NAME SRCS file... [DEPS target...] [SANITIZED] [LABELS unit|process|ptrace|slow...] [SHARDS N])
# SANITIZED: the code under test is in the sources and headers of the test.
# One CTest entry for the whole program, or N that share its tests and may run at the same time: the variable
# NAME_entries has their names. The working directory is scratch.
function(ctxconf_test name)
  cmake_parse_arguments(arg "SANITIZED" "SHARDS" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} ctxconf_test_flags GTest::gtest_main)
  if(arg_SANITIZED AND CTXCONF_SANITIZE)
    target_link_libraries(${name} PRIVATE ctxconf_flags)
  else()
    target_precompile_headers(${name} REUSE_FROM ctxconf_test_headers)
  endif()
  # clang-tidy must not read a test together with the code that it tests.
  if(NOT arg_SANITIZED)
    ctxconf_unity(${name})
  endif()
  ctxconf_link_quickly(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  set(entries ${name})
  if(arg_SHARDS)
    set(entries "")
    math(EXPR last "${arg_SHARDS} - 1")
    foreach(shard RANGE ${last})
      list(APPEND entries ${name}_${shard})
    endforeach()
  endif()
  set(shard 0)
  foreach(entry IN LISTS entries)
    add_test(NAME ${entry} COMMAND ${name} WORKING_DIRECTORY "${PROJECT_BINARY_DIR}")
    if(arg_SHARDS)
      set_tests_properties(${entry} PROPERTIES
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard}")
      math(EXPR shard "${shard} + 1")
    endif()
  endforeach()
  set_tests_properties(${entries} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 300)
  if(NOT CTXCONF_UNIT_TESTS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    set_tests_properties(${entries} PROPERTIES DISABLED TRUE)
  endif()
  set(${name}_entries ${entries} PARENT_SCOPE)
endfunction()

# ctxconf_script_test(NAME [LABELS ...] script argument...): a Python script of the source tree.
function(ctxconf_script_test name)
  cmake_parse_arguments(arg "" "LABELS" "" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  list(POP_FRONT arg_UNPARSED_ARGUMENTS script)
  add_test(NAME ${name}
    COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/${script}" ${arg_UNPARSED_ARGUMENTS})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 600)
endfunction()
