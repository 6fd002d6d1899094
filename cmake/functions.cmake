# Functions that make targets. Flags come through one interface target; nothing is set on
# directories.

set(ctxconf_werror "")
if(CTXCONF_WERROR)
  set(ctxconf_werror -Werror)
endif()
add_library(ctxconf_language INTERFACE)
target_compile_features(ctxconf_language INTERFACE cxx_std_23 c_std_11)
target_include_directories(ctxconf_language INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
target_compile_options(ctxconf_language INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual;-Wsuggest-override;-Wzero-as-null-pointer-constant>"
  ${ctxconf_werror})
add_library(ctxconf_flags INTERFACE)
target_link_libraries(ctxconf_flags INTERFACE ctxconf_language)
if(CTXCONF_SANITIZE)
  target_compile_options(ctxconf_flags INTERFACE
    -fsanitize=${CTXCONF_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(ctxconf_flags INTERFACE -fsanitize=${CTXCONF_SANITIZE})
endif()

# ctxconf_unity(TARGET): with CTXCONF_UNITY, up to CTXCONF_UNITY_SIZE sources at a time are compiled and linted as
# one. Two sources of a target must not define the same name, even a local one.
function(ctxconf_unity target)
  if(NOT CTXCONF_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  # Generated sources are not linted.
  set(generated "${sources}")
  list(FILTER generated INCLUDE REGEX "^${PROJECT_BINARY_DIR}/")
  set_source_files_properties(${generated} PROPERTIES SKIP_UNITY_BUILD_INCLUSION TRUE)
  # Batches of the same size keep both CPUs of a small machine busy.
  list(LENGTH sources count)
  math(EXPR batches "(${count} + ${CTXCONF_UNITY_SIZE} - 1) / ${CTXCONF_UNITY_SIZE}")
  math(EXPR size "(${count} + ${batches} - 1) / ${batches}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  # g++ treats an included source as a header that two programs might share. It takes a tenth less time,
  # and more memory, if it collects no garbage below 512 MiB (the parameter is in KiB).
  target_compile_options(${target} PRIVATE
    "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;--param=ggc-min-heapsize=524288>")
endfunction()

# ctxconf_link_quickly(TARGET): with clang's own linker, which programs under test must not use unasked
find_program(CTXCONF_LLD NAMES ld.lld-19 ld.lld)
function(ctxconf_link_quickly target)
  if(CTXCONF_LLD AND CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND NOT CMAKE_CROSSCOMPILING)
    target_link_options(${target} PRIVATE "--ld-path=${CTXCONF_LLD}")
  endif()
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

# ctxconf_embed(FUNCTION HEADER FILE...): the library ctxconf_FUNCTION, whose only function is declared in HEADER and
# returns these files. It is a library of its own because nothing that uses a library with generated sources is
# compiled before that library is complete.
function(ctxconf_embed function header)
  set(script "${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake")
  set(source "${PROJECT_BINARY_DIR}/${function}.cc")
  list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/" OUTPUT_VARIABLE files)
  add_custom_command(OUTPUT "${source}"
    COMMAND "${CMAKE_COMMAND}" -DFUNCTION=${function} -DHEADER=${header} -P "${script}" "${source}" ${files}
    DEPENDS "${script}" ${files} VERBATIM)
  ctxconf_library(ctxconf_${function} SRCS "${source}")
endfunction()

# ctxconf_plain(TARGET): code that is traced. It is not sanitized, and optimised in every build as in a
# release, so that the tests see what an optimiser makes of its stores.
function(ctxconf_plain target)
  target_compile_features(${target} PRIVATE cxx_std_23 c_std_11)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE -Wall -Wextra ${ctxconf_werror} -O2)
endfunction()

# ctxconf_program(NAME SRCS file... [DEPS target...] [PLAIN] [M32])
# PLAIN keeps sanitizers out of a program: LeakSanitizer refuses to run under ptrace.
# M32 makes it a 32-bit program.
function(ctxconf_program name)
  cmake_parse_arguments(arg "PLAIN;M32" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  if(arg_PLAIN)
    ctxconf_plain(${name})
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
# Precompiles most of what the compiler reads for these, also for clang-tidy, and links them to templates for JSON that
# are compiled once, optimised. g++ does not compile faster with precompiled headers, so a build with g++ shows a missing
# #include.
function(ctxconf_precompile_json)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    return()
  endif()
  file(CONFIGURE OUTPUT json_headers.cc CONTENT "")
  ctxconf_library(ctxconf_json_headers
    SRCS "${PROJECT_BINARY_DIR}/json_headers.cc" DEPS ctxconf_fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(ctxconf_json_headers PRIVATE
    <fmt/format.h> "${PROJECT_SOURCE_DIR}/cmake/json_instances.h" <algorithm> <functional> <map> <optional> <set>
    <span> <string> <variant> <vector>)
  # With AddressSanitizer, which finds what hostile JSON could do, and without checks of undefined behaviour.
  add_library(ctxconf_json_instances STATIC cmake/json_instances.cc)
  target_link_libraries(ctxconf_json_instances PUBLIC nlohmann_json::nlohmann_json PRIVATE ctxconf_language)
  target_compile_options(ctxconf_json_instances PRIVATE -O2)
  string(REPLACE ",undefined" "" sanitizers "${CTXCONF_SANITIZE}")
  if(sanitizers)
    target_compile_options(ctxconf_json_instances PRIVATE -fsanitize=${sanitizers} -fno-omit-frame-pointer)
  endif()
  foreach(target IN LISTS ARGN)
    target_precompile_headers(${target} REUSE_FROM ctxconf_json_headers)
    target_link_libraries(${target} PRIVATE ctxconf_json_instances)
  endforeach()
endfunction()
