# A test that judges a program with ctxconf. This file needs no other: find_package(ctxconf) includes it, and a
# project may also have a copy of it.
#
# ctxconf_add_test(NAME name COMMAND program [argument...]
#   [MODE wrap|run|reader] [OPTIONS option...] [EXPECTATIONS file] [WORKING_DIRECTORY dir] [SKIP_WITHOUT_PTRACE])
#
# COMMAND: as of add_test; a target must exist by then. MODE: the command of ctxconf, default wrap. EXPECTATIONS: the
# file of known failures, relative to the current source folder. The reports are in ctxconf/NAME of the current
# binary folder. The test passes if ctxconf exits with 0, and fails with any other exit code. With
# SKIP_WITHOUT_PTRACE it is skipped where the host refuses ptrace.
#
# The program ctxconf is -DCTXCONF_PROGRAM=FILE, or else the one of the package, or else the one in PATH.
cmake_policy(VERSION 3.21...3.31)
set(CTXCONF_PROGRAM "" CACHE FILEPATH "The program ctxconf; empty: that of the package ctxconf, or the one in PATH")
if(NOT TARGET ctxconf::ctxconf)
  unset(ctxconf_program)
  if(CTXCONF_PROGRAM)
    set(ctxconf_program "${CTXCONF_PROGRAM}")
  else()
    # Not cached: a newer ctxconf may be elsewhere.
    find_program(ctxconf_program ctxconf PATHS "${ctxconf_package_bin}" NO_DEFAULT_PATH NO_CACHE)
    find_program(ctxconf_program ctxconf NO_CACHE)
  endif()
  if(ctxconf_program)
    add_executable(ctxconf::ctxconf IMPORTED GLOBAL)
    set_target_properties(ctxconf::ctxconf PROPERTIES IMPORTED_LOCATION "${ctxconf_program}")
  endif()
  unset(ctxconf_program)
endif()

function(ctxconf_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg
    "SKIP_WITHOUT_PTRACE" "NAME;MODE;EXPECTATIONS;WORKING_DIRECTORY" "COMMAND;OPTIONS")
  if(arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR
      "ctxconf_add_test: unknown, or without a value: ${arg_UNPARSED_ARGUMENTS} ${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  if(NOT DEFINED arg_NAME OR NOT DEFINED arg_COMMAND)
    message(FATAL_ERROR "ctxconf_add_test: NAME and COMMAND are required")
  endif()
  if(NOT DEFINED arg_MODE)
    set(arg_MODE wrap)
  elseif(NOT arg_MODE MATCHES "^(wrap|run|reader)$")
    message(FATAL_ERROR "ctxconf_add_test: MODE is ${arg_MODE}, and not wrap, run or reader")
  endif()
  if(NOT TARGET ctxconf::ctxconf)
    message(FATAL_ERROR "ctxconf_add_test: there is no program ctxconf. Install a release, and add its folder to "
      "CMAKE_PREFIX_PATH or its bin to PATH, or configure with -DCTXCONF_PROGRAM=/path/to/ctxconf")
  endif()
  get_target_property(ctxconf ctxconf::ctxconf IMPORTED_LOCATION)
  if(NOT EXISTS "${ctxconf}")
    message(FATAL_ERROR "ctxconf_add_test: CTXCONF_PROGRAM is ${ctxconf}, which does not exist")
  endif()
  # Code, because a list would lose empty arguments and join those between brackets.
  set(code_COMMAND "")
  set(code_OPTIONS "")
  math(EXPR last "${ARGC} - 1")
  foreach(index RANGE ${last})
    set(word "${ARGV${index}}")
    if(word MATCHES "^(NAME|MODE|EXPECTATIONS|WORKING_DIRECTORY|SKIP_WITHOUT_PTRACE|COMMAND|OPTIONS)$")
      set(keyword "${word}")
    else()
      if(keyword STREQUAL "COMMAND" AND code_COMMAND STREQUAL "" AND TARGET "${word}")
        set(word "$<TARGET_FILE:${word}>")
      endif()
      string(REGEX REPLACE [=[["\$]]=] [[\\\0]] word "${word}")
      string(APPEND code_${keyword} " \"${word}\"")
    endif()
  endforeach()
  set(expect "")
  if(DEFINED arg_EXPECTATIONS)
    cmake_path(ABSOLUTE_PATH arg_EXPECTATIONS BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    set(expect --expect "${arg_EXPECTATIONS}")
  endif()
  if(NOT DEFINED arg_WORKING_DIRECTORY)
    set(arg_WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  endif()
  set(start "")
  if(arg_SKIP_WITHOUT_PTRACE)
    # Asked before the program starts, so that nothing which it does can skip the test.
    set(start sh -c [[
"$0" list --capabilities | grep -q '^no *ptrace ' && {
  echo 'skipped: this host refuses ptrace (ctxconf doctor)'
  exit 77
}
exec "$0" "$@"]])
  endif()
  cmake_language(EVAL CODE [[
    add_test(NAME "${arg_NAME}" WORKING_DIRECTORY "${arg_WORKING_DIRECTORY}"
      COMMAND ${start} "${ctxconf}" ${arg_MODE} --out "${CMAKE_CURRENT_BINARY_DIR}/ctxconf/${arg_NAME}" ${expect}]]
      "${code_OPTIONS} -- ${code_COMMAND})")
  set_tests_properties("${arg_NAME}" PROPERTIES LABELS ctxconf)
  if(arg_SKIP_WITHOUT_PTRACE)
    set_tests_properties("${arg_NAME}" PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endfunction()
