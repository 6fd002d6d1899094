# The ways this project makes a target. Flags come through one interface
# target; nothing is set on directories.

add_library(ctxconf_flags INTERFACE)
target_compile_features(ctxconf_flags INTERFACE cxx_std_23 c_std_11)
target_include_directories(ctxconf_flags INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
target_compile_options(ctxconf_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wno-sign-conversion
  "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>")
if(CTXCONF_SANITIZE)
  target_compile_options(ctxconf_flags INTERFACE
    -fsanitize=${CTXCONF_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(ctxconf_flags INTERFACE -fsanitize=${CTXCONF_SANITIZE})
endif()

# ctxconf_library(NAME SRCS file... [DEPS target...])
function(ctxconf_library name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_SRCS})
  target_link_libraries(${name} PUBLIC ${arg_DEPS} PRIVATE $<BUILD_INTERFACE:ctxconf_flags>)
  target_include_directories(${name} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
  target_compile_features(${name} PUBLIC cxx_std_23)
endfunction()

# ctxconf_program(NAME SRCS file... [DEPS target...] [PLAIN] [M32])
# PLAIN keeps sanitizers out of a program: LeakSanitizer refuses to run under ptrace.
# M32 makes it a 32-bit program.
function(ctxconf_program name)
  cmake_parse_arguments(arg "PLAIN;M32" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  if(arg_PLAIN)
    target_compile_features(${name} PRIVATE cxx_std_23 c_std_11)
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
    target_compile_options(${name} PRIVATE -Wall -Wextra -Werror)
  else()
    target_link_libraries(${name} PRIVATE ctxconf_flags)
  endif()
  if(arg_M32)
    target_compile_options(${name} PRIVATE -m32)
    target_link_options(${name} PRIVATE -m32)
    set_target_properties(${name} PROPERTIES EXPORT_COMPILE_COMMANDS OFF)  # linted once
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endfunction()

# GoogleTest is most of what a test's compiler reads, and optimising most of what it does.
add_library(ctxconf_test_flags INTERFACE)
target_link_libraries(ctxconf_test_flags INTERFACE ctxconf_flags GTest::gmock fmt::fmt)
target_compile_options(ctxconf_test_flags INTERFACE -O0 -g1)
target_compile_definitions(ctxconf_test_flags INTERFACE
  CTXCONF_SOURCE_DIR="${PROJECT_SOURCE_DIR}" CTXCONF_BIN_DIR="${PROJECT_BINARY_DIR}/bin")
file(CONFIGURE OUTPUT empty.cc CONTENT "")
add_library(ctxconf_test_headers OBJECT "${PROJECT_BINARY_DIR}/empty.cc")
target_link_libraries(ctxconf_test_headers PRIVATE ctxconf_test_flags)
target_precompile_headers(ctxconf_test_headers PRIVATE
  <gmock/gmock.h> <gtest/gtest.h> <algorithm> <functional> <map> <optional> <string> <vector>)

# ctxconf_test(NAME SRCS file... [DEPS target...] [LABELS unit|process|ptrace|slow...])
# One CTest entry for the whole program; its working directory is scratch.
function(ctxconf_test name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} ctxconf_test_flags GTest::gtest_main)
  target_precompile_headers(${name} REUSE_FROM ctxconf_test_headers)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${PROJECT_BINARY_DIR}")
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 120)
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
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 120)
endfunction()
