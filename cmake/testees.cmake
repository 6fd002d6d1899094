# conformance/testees/: mutants and legal variants for wrap, attach and elf
include(cmake/elf_testees.cmake)

# ctxconf_testee_sources(VARIABLE FOLDER NAME...): the paths of sources
function(ctxconf_testee_sources variable folder)
  list(TRANSFORM ARGN PREPEND "conformance/testees/${folder}/")
  list(TRANSFORM ARGN APPEND ".cc")
  set(${variable} ${ARGN} PARENT_SCOPE)
endfunction()

# ctxconf_testee_objects(NAME source...): what several programs have in common, compiled once
function(ctxconf_testee_objects name)
  add_library(${name} OBJECT ${ARGN})
  ctxconf_plain(${name})
  target_compile_options(${name} PRIVATE -fPIE)
  ctxconf_unity(${name})
endfunction()

# Atomics by load-exclusive and store-exclusive, as where the processor has no others.
set(exclusive_atomics "")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(exclusive_atomics -march=armv8-a -mno-outline-atomics)
endif()

ctxconf_testee_sources(writer_sources writer cases clock header memory program protobuf)
ctxconf_testee_objects(testee_writer ${writer_sources})
set(writer_objects $<TARGET_OBJECTS:testee_writer>)

# Process context
ctxconf_testee_sources(process_sources process
  clock failure fork header mapping naming payload placement store_order update usual withdrawal)
list(APPEND process_sources conformance/testees/process_writer.cc)
ctxconf_program(process_writer SRCS ${process_sources} ${writer_objects} DEPS Threads::Threads PLAIN)
ctxconf_unity(process_writer)
target_compile_options(process_writer PRIVATE ${exclusive_atomics})
if(CTXCONF_HAVE_M32)
  ctxconf_program(process_writer_32 SRCS ${process_sources} ${writer_sources} DEPS Threads::Threads PLAIN M32)
  ctxconf_unity(process_writer_32)
endif()

# Thread context. The programs differ in where the slot comes from, and in how they are linked.
ctxconf_testee_sources(thread_sources thread scene usual)
ctxconf_testee_objects(testee_thread ${thread_sources})
ctxconf_testee_sources(thread_case_sources thread
  fork ids own_slot record reference_data store_order)
ctxconf_testee_objects(testee_thread_cases ${thread_case_sources} conformance/testees/thread_writer.cc)
set(thread_objects $<TARGET_OBJECTS:testee_thread> ${writer_objects})
foreach(name IN ITEMS thread_writer thread_unexported thread_static thread_static_pie)
  ctxconf_program(${name}
    SRCS $<TARGET_OBJECTS:testee_thread_cases> ${thread_objects} DEPS Threads::Threads PLAIN)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
endforeach()
target_link_options(thread_writer PRIVATE ${export})
target_link_options(thread_static PRIVATE -static)
target_link_options(thread_static_pie PRIVATE -static-pie ${export})
foreach(name IN ITEMS loader go)
  ctxconf_testee_sources(case_sources thread ${name} loaded_slot)
  ctxconf_program(thread_${name}
    SRCS conformance/testees/thread_${name}.cc ${case_sources} ${thread_objects}
    DEPS Threads::Threads ${CMAKE_DL_LIBS} PLAIN)
endforeach()

configure_file(conformance/testees/ctypes_writer.py bin/ctypes_writer.py COPYONLY)

# What `ctxconf selftest` runs, from the tables of cases and the files next to them
set(zoo mutants driven_process_mutants driven_record_mutants driven_thread_mutants reader_mutants)
list(TRANSFORM zoo APPEND ".json")
list(TRANSFORM zoo PREPEND "${PROJECT_BINARY_DIR}/bin/")
file(GLOB tables CONFIGURE_DEPENDS
  conformance/testees/*.json conformance/testees/*/*.json conformance/testees/*/*.cc)
add_custom_command(OUTPUT ${zoo}
  COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/conformance/testees/mutants.py"
          "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/bin"
  DEPENDS conformance/testees/mutants.py conformance/testees/driven_record_writer.cc ${tables}
          ${catalogue_files}
  VERBATIM)
add_custom_target(mutants ALL DEPENDS ${zoo})
if(NOT CMAKE_CROSSCOMPILING)  # it does not run there, and some of these are for x86-64
  add_dependencies(ctxconf mutants)  # it reads these
  add_dependencies(ctxconf elf_testees)  # targets of `reader` load these
endif()
