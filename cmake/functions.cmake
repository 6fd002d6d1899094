# The ways this project makes a target. Flags come through one interface
# target; nothing is set on directories.

add_library(ctxconf_flags INTERFACE)
target_compile_features(ctxconf_flags INTERFACE cxx_std_23 c_std_11)
target_include_directories(ctxconf_flags INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
target_compile_options(ctxconf_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>")
if(NOT CTXCONF_FUZZ_ONLY)  # that one is built with compilers of others
  target_compile_options(ctxconf_flags INTERFACE -Werror)
endif()
if(CTXCONF_SANITIZE)
  target_compile_options(ctxconf_flags INTERFACE
    -fsanitize=${CTXCONF_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(ctxconf_flags INTERFACE -fsanitize=${CTXCONF_SANITIZE})
endif()

# ctxconf_unity(TARGET): with CTXCONF_UNITY about ten sources at a time are compiled, and linted, as
# one. No two sources of a target may define the same name, even where nobody else sees it.
function(ctxconf_unity target)
  if(NOT CTXCONF_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  # Nobody lints these.
  set(generated "${sources}")
  list(FILTER generated INCLUDE REGEX "^${PROJECT_BINARY_DIR}/")
  set_source_files_properties(${generated} PROPERTIES SKIP_UNITY_BUILD_INCLUSION TRUE)
  # Batches of one size keep both CPUs of a small machine busy.
  list(LENGTH sources count)
  math(EXPR batches "(${count} + 9) / 10")
  math(EXPR size "(${count} + ${batches} - 1) / ${batches}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  # g++ takes all but the source it was given for headers, which two programs might share.
  target_compile_options(${target} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")
endfunction()

# ctxconf_library(NAME SRCS file... [DEPS target...])
function(ctxconf_library name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_SRCS})
  target_link_libraries(${name} PUBLIC ${arg_DEPS} PRIVATE $<BUILD_INTERFACE:ctxconf_flags>)
  target_include_directories(${name} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
  target_compile_features(${name} PUBLIC cxx_std_23)
  ctxconf_unity(${name})
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

# ctxconf_precompile_json(target...)
# What the compiler mostly reads for these is read once, also by clang-tidy. A missing #include
# shows with g++, which gains nothing from it.
function(ctxconf_precompile_json)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    return()
  endif()
  file(CONFIGURE OUTPUT json_headers.cc CONTENT "")
  ctxconf_library(ctxconf_json_headers
    SRCS "${PROJECT_BINARY_DIR}/json_headers.cc" DEPS fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(ctxconf_json_headers PRIVATE
    <fmt/format.h> <nlohmann/json.hpp> <algorithm> <functional> <map> <optional> <set> <span>
    <string> <variant> <vector>)
  foreach(target IN LISTS ARGN)
    target_precompile_headers(${target} REUSE_FROM ctxconf_json_headers)
  endforeach()
endfunction()
