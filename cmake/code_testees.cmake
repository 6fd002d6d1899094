# One program and library with debug information of every kind. None is sanitized.
add_custom_target(code_testees ALL)

# ctxconf_code_program(NAME OPTIONS... ): option...; LIBRARY makes it a library.
function(ctxconf_code_program name)
  cmake_parse_arguments(arg "LIBRARY;M32" "" "OPTIONS" ${ARGN})
  if(arg_LIBRARY)
    add_library(${name} SHARED sys/code_testee.cc)
    target_compile_options(${name} PRIVATE -Wall -Wextra -Werror)
    set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  elseif(arg_M32)
    ctxconf_program(${name} SRCS sys/code_testee.cc PLAIN M32)
  else()
    ctxconf_program(${name} SRCS sys/code_testee.cc PLAIN)
  endif()
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  target_link_options(${name} PRIVATE -Wl,--build-id=sha1)
  add_dependencies(code_testees ${name})
endfunction()

# ctxconf_code_copy(NAME OF TOOL option...): the same code, changed by strip or objcopy.
function(ctxconf_code_copy name of tool)
  set(bin "${PROJECT_BINARY_DIR}/bin")
  add_custom_command(OUTPUT "${bin}/${name}" DEPENDS ${of} VERBATIM
    COMMAND ${tool} ${ARGN} "$<TARGET_FILE:${of}>" "${bin}/${name}")
  add_custom_target(${name}_copy DEPENDS "${bin}/${name}")
  add_dependencies(code_testees ${name}_copy)
endfunction()

ctxconf_code_program(code_dwarf4 OPTIONS -O0 -g -gdwarf-4)
ctxconf_code_program(code_dwarf5 OPTIONS -O2 -g -gdwarf-5)
ctxconf_code_program(code_compressed OPTIONS -O2 -g -gz)
ctxconf_code_program(code_symbols OPTIONS -O2 -g0)
ctxconf_code_program(code_library.so LIBRARY OPTIONS -O2 -g)
set_target_properties(code_library.so PROPERTIES SUFFIX "")
if(CTXCONF_HAVE_M32)
  ctxconf_code_program(code_32bit M32 OPTIONS -O2 -g)
endif()
ctxconf_code_copy(code_stripped code_dwarf5 ${CMAKE_OBJCOPY} --strip-all)
ctxconf_code_copy(code_stripped_library code_library.so ${CMAKE_OBJCOPY} --strip-all)
ctxconf_code_copy(code_linked.debug code_dwarf5 ${CMAKE_OBJCOPY} --only-keep-debug)
ctxconf_code_copy(code_linked code_dwarf5 ${CMAKE_OBJCOPY} --strip-all
  "--add-gnu-debuglink=${PROJECT_BINARY_DIR}/bin/code_linked.debug")
add_dependencies(code_linked_copy code_linked.debug_copy)
