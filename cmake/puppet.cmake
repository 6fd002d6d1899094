# conformance/puppet/: the scripted process
ctxconf_library(ctxconf_puppet
  SRCS conformance/puppet/player.cc conformance/puppet/record_script.cc conformance/puppet/script.cc
  DEPS ctxconf_observe ${json})
ctxconf_test(script_test SRCS conformance/puppet/script_test.cc DEPS ctxconf_puppet)

set(puppet_programs "")
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|aarch64)$")
  return()  # conformance/puppet/machine_*.h
endif()

set(puppet_machine "")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(puppet_machine -fcf-protection=none)
endif()
# The process itself: without libraries, start files and relocations.
set(puppet_compile -std=gnu11 -D_GNU_SOURCE -O2 -g -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables
  "$<$<C_COMPILER_ID:GNU>:-fno-tree-loop-distribute-patterns>" -fvisibility=hidden ${puppet_machine} -Wall -Wextra ${ctxconf_werror}
  -Wno-unused-parameter)
function(ctxconf_puppet_program name)
  add_executable(${name} conformance/puppet/puppet.c)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE ${puppet_compile})
  target_link_options(${name} PRIVATE -nostdlib -Wl,--build-id=sha1 -Wl,-z,noexecstack)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endfunction()
ctxconf_puppet_program(ctxconf-puppet)
target_compile_options(ctxconf-puppet PRIVATE -fno-pie)
target_link_options(ctxconf-puppet PRIVATE -static)
ctxconf_puppet_program(ctxconf-puppet-slot)
target_compile_options(ctxconf-puppet-slot PRIVATE -fPIE -DPUPPET_SLOT)
target_link_options(ctxconf-puppet-slot PRIVATE -static-pie
  -Wl,--export-dynamic-symbol=otel_thread_ctx_v1)
# The same with a C library: NAME|compiler options|linker options.
set(export_slot -Wl,--export-dynamic-symbol=otel_thread_ctx_v1)
set(puppet_programs ctxconf-puppet ctxconf-puppet-slot)
foreach(entry IN ITEMS
    "ctxconf-puppet-libc|-fPIE|-pie"
    "ctxconf-puppet-libc-slot|-fPIE -DPUPPET_SLOT|-pie ${export_slot}"
    "ctxconf-puppet-libc-no-pie|-fno-pie -DPUPPET_SLOT|-no-pie ${export_slot}"
    "ctxconf-puppet-libc-aligned|-fPIE -DPUPPET_SLOT -DPUPPET_ALIGNMENT=4096|-pie ${export_slot}"
    "ctxconf-puppet-libc-aligned-64|-fPIE -DPUPPET_SLOT -DPUPPET_ALIGNMENT=64|-pie ${export_slot}"
    "ctxconf-puppet-libc-static-pie|-fPIE -DPUPPET_SLOT -DPUPPET_STATIC|-static-pie ${export_slot}")
  string(REGEX MATCH "^([^|]*)\\|([^|]*)\\|(.*)$" matched "${entry}")
  set(name "${CMAKE_MATCH_1}")
  separate_arguments(compile UNIX_COMMAND "-std=gnu11 -D_GNU_SOURCE -DPUPPET_LIBC -O2 -g -Wall -Wextra ${ctxconf_werror} -Wno-unused-parameter ${CMAKE_MATCH_2}")
  separate_arguments(link UNIX_COMMAND "${CMAKE_MATCH_3}")
  add_executable(${name} conformance/puppet/puppet.c)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE ${compile})
  target_link_options(${name} PRIVATE ${link} -Wl,--build-id=sha1)
  target_link_libraries(${name} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin"
    EXPORT_COMPILE_COMMANDS OFF)
  list(APPEND puppet_programs ${name})
endforeach()
ctxconf_test(puppet_test
  SRCS conformance/puppet/record_script_test.cc DEPS ctxconf_puppet LABELS ptrace)
add_dependencies(puppet_test ${puppet_programs} ctxconf-trampoline elf_testees)
ctxconf_script_test(puppet_command_test LABELS ptrace
  conformance/puppet/puppet_command_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)
