# Libraries and programs for `ctxconf elf`: NAME|compiler options|linker options. ctxconf reads
# them; the programs can also run. None has sanitizers.
set(export -Wl,--export-dynamic-symbol=otel_thread_ctx_v1)
list(JOIN lld " " with_lld)
list(JOIN tls_general_dynamic " " gd)
list(JOIN tls_general_dynamic_link " " with_gd)
set(elf_libraries
  "slot_tlsdesc|${desc}|"
  "slot_initial_exec|-ftls-model=initial-exec|"
  "slot_tlsdesc_large|${desc} -DSLOT_LARGE|"
  "slot_only|-DSLOT_ONLY ${desc}|"
  "slot_alias_tlsdesc|-DSLOT_HIDDEN_ALIAS ${desc}|"
  "slot_hidden|${desc} -DSLOT_VISIBILITY=hidden|"
  "slot_hidden_only|${desc} -DSLOT_ONLY -DSLOT_VISIBILITY=hidden|"
  "slot_ordinary|${desc} -DSLOT_ORDINARY|"
  "slot_undefined|${desc} -DSLOT_WEAK|"
  "slot_record|${desc} -DSLOT_RECORD|"
  "slot_no_size|${desc} -DSLOT_NO_SIZE|"
  "slot_sysv_hash|${desc}|-Wl,--hash-style=sysv"
  "slot_no_sections|${desc}|"
  "slot_versioned|${desc}|-Wl,--version-script=${PROJECT_BINARY_DIR}/tls_slot.map"
  "slot_stripped|${desc}|-s")
if(tls_has_general_dynamic)
  list(APPEND elf_libraries
    "slot_general_dynamic|${gd}|${with_gd}"
    "slot_general_dynamic_large|${gd} -DSLOT_LARGE|${with_gd}"
    "slot_local_dynamic|${gd} -DSLOT_HIDDEN_ALIAS|${with_gd}"
    "slot_hidden_general_dynamic|${gd} -DSLOT_ONLY -DSLOT_VISIBILITY=hidden|${with_gd}")
endif()
if(tls_is_written)  # ld for aarch64 keeps the name in the relocation, unless the symbol is hidden
  list(APPEND elf_libraries
    "slot_symbolic_general_dynamic|${gd} -DSLOT_HIDDEN_ALIAS -DSLOT_ALIAS_ADDRESS=TLS_ADDRESS|${with_gd}")
elseif(CTXCONF_LLD AND tls_has_general_dynamic)
  list(APPEND elf_libraries "slot_symbolic_general_dynamic|${gd}|${with_lld} -Wl,-Bsymbolic")
endif()
if(CTXCONF_LLD)
  list(APPEND elf_libraries "slot_symbolic|${desc}|${with_lld} -Wl,-Bsymbolic")
endif()
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")  # clang makes it local dynamic
  list(APPEND elf_libraries "slot_protected|${desc} -DSLOT_VISIBILITY=protected|")
  if(CTXCONF_LLD)
    list(APPEND elf_libraries
      "slot_protected_general_dynamic|${gd} -DSLOT_VISIBILITY=protected|${with_lld}")
  endif()
endif()
set(elf_programs
  "slot_pie|-fPIE|-pie ${export}"
  "slot_no_pie|-fno-pie|-no-pie ${export}"
  "slot_static_pie|-fPIE|-static-pie ${export}"
  "slot_static|-fno-pie|-static ${export}"
  "slot_not_exported|-fPIE|-pie"
  "slot_user|-fPIE -DSLOT_FOREIGN|-pie")

set(elf_testees "")
foreach(entry IN LISTS elf_libraries elf_programs)
  string(REGEX MATCH "^([^|]*)\\|([^|]*)\\|(.*)$" matched "${entry}")
  set(name "${CMAKE_MATCH_1}")
  separate_arguments(compile UNIX_COMMAND "-O2 -Wall -Wextra ${ctxconf_werror} ${CMAKE_MATCH_2}")
  separate_arguments(link UNIX_COMMAND "${CMAKE_MATCH_3}")
  if(entry IN_LIST elf_libraries)
    add_library(${name} SHARED conformance/testees/slot_library.c)
    set_target_properties(${name} PROPERTIES PREFIX "")
  else()
    add_executable(${name} conformance/testees/slot_library.c conformance/testees/slot_program.c)
  endif()
  target_compile_options(${name} PRIVATE ${compile})
  target_link_options(${name} PRIVATE ${link})
  set_target_properties(${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin"
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  list(APPEND elf_testees ${name})
endforeach()
# e_shoff, then e_shnum and e_shstrndx: no linker or strip here removes the section headers.
add_custom_command(TARGET slot_no_sections POST_BUILD
  COMMAND dd if=/dev/zero of=$<TARGET_FILE:slot_no_sections> bs=1 seek=40 count=8 conv=notrunc status=none
  COMMAND dd if=/dev/zero of=$<TARGET_FILE:slot_no_sections> bs=1 seek=60 count=4 conv=notrunc status=none)
target_link_libraries(slot_user PRIVATE slot_only)
add_custom_target(elf_testees ALL DEPENDS ${elf_testees})
