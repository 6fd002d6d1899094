# One program and one library with debug information of every kind, all without sanitizers.
add_custom_target(code_testees ALL)

# ctxconf_code_program(NAME OPTIONS... ): option...; LIBRARY makes it a library.
function(ctxconf_code_program name)
  cmake_parse_arguments(arg "LIBRARY;M32" "" "OPTIONS" ${ARGN})
  if(arg_LIBRARY)
    add_library(${name} SHARED sys/code_testee.cc)
    target_compile_options(${name} PRIVATE -Wall -Wextra ${ctxconf_werror})
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

# As if the compiler had been given a relative name.
file(RELATIVE_PATH from_build "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
set(relative "-fdebug-prefix-map=${PROJECT_SOURCE_DIR}/sys=${from_build}/sys")
ctxconf_code_program(code_dwarf4 OPTIONS -O0 -g -gdwarf-4 ${relative})
ctxconf_code_program(code_dwarf5 OPTIONS -O2 -g -gdwarf-5 ${relative})
ctxconf_code_program(code_compressed OPTIONS -O2 -g -gz)
ctxconf_code_program(code_symbols OPTIONS -O2 -g0)
ctxconf_code_program(code_library.so LIBRARY OPTIONS -O2 -g)
set_target_properties(code_library.so PROPERTIES SUFFIX "")
if(CTXCONF_HAVE_M32)
  ctxconf_code_program(code_32bit M32 OPTIONS -O2 -g)
endif()
# The unit before the code is in .debug_aranges and the code is not, as in a program of two
# compilers.
set(other_unit "${PROJECT_BINARY_DIR}/code_other_unit.cc")
file(CONFIGURE OUTPUT "${other_unit}" CONTENT "int code_other_unit();\nint code_other_unit() { return 1; }\n")
set(without_aranges "${PROJECT_BINARY_DIR}/code_without_aranges.o")
add_library(code_objects OBJECT sys/code_testee.cc)
target_compile_options(code_objects PRIVATE -O2 -g -fPIE)
add_custom_command(OUTPUT "${without_aranges}" DEPENDS code_objects $<TARGET_OBJECTS:code_objects> VERBATIM
  COMMAND ${CMAKE_OBJCOPY} --remove-section=.debug_aranges $<TARGET_OBJECTS:code_objects>
          "${without_aranges}")
ctxconf_program(code_partial_aranges SRCS "${other_unit}" "${without_aranges}" PLAIN)
target_compile_options(code_partial_aranges PRIVATE -O2 -g -gdwarf-5)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(code_partial_aranges PRIVATE -gdwarf-aranges)
endif()
add_dependencies(code_testees code_partial_aranges)
ctxconf_code_copy(code_stripped code_dwarf5 ${CMAKE_OBJCOPY} --strip-all)
ctxconf_code_copy(code_stripped_library code_library.so ${CMAKE_OBJCOPY} --strip-all)
ctxconf_code_copy(code_linked.debug code_dwarf5 ${CMAKE_OBJCOPY} --only-keep-debug)
ctxconf_code_copy(code_linked code_dwarf5 ${CMAKE_OBJCOPY} --strip-all
  "--add-gnu-debuglink=${PROJECT_BINARY_DIR}/bin/code_linked.debug")
add_dependencies(code_linked_copy code_linked.debug_copy)
