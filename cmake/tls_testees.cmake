# Libraries that define a thread-local variable with every access model, and programs that use one
# or have their own, all without sanitizers.
if(NOT CTXCONF_LLD)
  message(WARNING "no lld (Debian: lld-19): the testees that it links are not built, and the tests that need them are disabled")
endif()

# ctxconf_slot_library(NAME [OPTIONS compiler option...] [LINK linker option...])
function(ctxconf_slot_library name)
  cmake_parse_arguments(arg "" "" "OPTIONS;LINK" ${ARGN})
  add_library(${name} SHARED sys/tls_slot.c)
  target_compile_options(${name} PRIVATE -Wall -Wextra ${ctxconf_werror} -fvisibility=hidden ${arg_OPTIONS})
  target_link_options(${name} PRIVATE -nostdlib ${arg_LINK})
  set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  add_dependencies(tls_testees ${name})
endfunction()

# ctxconf_slot_program(NAME [SRCS file...] [OPTIONS compiler option...] [LINK linker option...])
function(ctxconf_slot_program name)
  cmake_parse_arguments(arg "" "" "SRCS;OPTIONS;LINK" ${ARGN})
  ctxconf_program(${name} SRCS sys/tls_testee.c ${arg_SRCS} DEPS Threads::Threads PLAIN)
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  target_link_options(${name} PRIVATE ${arg_LINK})
  add_dependencies(tls_testees ${name})
endfunction()

set(desc ${tls_descriptors})
if(CTXCONF_LLD)
  # gcc searches for a program ld.lld, and for none with a version in its name.
  file(REAL_PATH "${CTXCONF_LLD}" lld_program)
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/lld")
  file(CREATE_LINK "${lld_program}" "${PROJECT_BINARY_DIR}/lld/ld.lld" SYMBOLIC)
endif()
set(lld "-B${PROJECT_BINARY_DIR}/lld" -fuse-ld=lld)
file(WRITE "${PROJECT_BINARY_DIR}/tls_slot.map" "CTX_1 { global: *; };\n")

add_custom_target(tls_testees ALL)
ctxconf_slot_library(tls_desc OPTIONS ${desc}
  LINK "-Wl,--version-script=${PROJECT_BINARY_DIR}/tls_slot.map" -Wl,--build-id=0x0123456789abcdef)
# Larger than the space that the loader reserves in the static block for descriptors of late
# libraries.
ctxconf_slot_library(tls_desc_large OPTIONS ${desc} -DSLOT_FILLER=4096)
if(tls_has_general_dynamic)
  ctxconf_slot_library(tls_gd OPTIONS ${tls_general_dynamic} LINK ${tls_general_dynamic_link} -Wl,--hash-style=sysv)
endif()
ctxconf_slot_library(tls_ie OPTIONS -ftls-model=initial-exec)
ctxconf_slot_library(tls_only OPTIONS -DSLOT_ONLY)
if(CTXCONF_LLD)
  ctxconf_slot_library(tls_desc_symbolic OPTIONS ${desc} LINK ${lld} -Wl,-Bsymbolic)
  if(tls_has_general_dynamic AND NOT tls_is_written)
    ctxconf_slot_library(tls_gd_symbolic OPTIONS ${tls_general_dynamic} LINK ${lld} -Wl,-Bsymbolic)
  endif()
  ctxconf_slot_library(tls_ie_protected
    OPTIONS -ftls-model=initial-exec "-DSLOT_VISIBILITY=\"protected\"" LINK ${lld})
  ctxconf_slot_library(tls_desc_large_symbolic
    OPTIONS ${desc} -DSLOT_FILLER=4096 LINK ${lld} -Wl,-Bsymbolic)
  ctxconf_slot_library(tls_desc_protected OPTIONS ${desc} "-DSLOT_VISIBILITY=\"protected\"" LINK ${lld})
endif()
ctxconf_slot_program(tls_testee)
ctxconf_slot_program(tls_foreign OPTIONS -DFOREIGN_SLOT)
target_link_libraries(tls_foreign PRIVATE tls_only)
ctxconf_slot_program(tls_own SRCS sys/tls_slot.c OPTIONS -DOWN_SLOT -fPIE LINK -pie -rdynamic)
ctxconf_slot_program(tls_own_no_pie SRCS sys/tls_slot.c OPTIONS -DOWN_SLOT -fno-pie LINK -no-pie -rdynamic)
ctxconf_slot_program(tls_own_aligned SRCS sys/tls_slot.c
  OPTIONS -DOWN_SLOT -DSLOT_ALIGNMENT=256 -fPIE LINK -pie -rdynamic)
ctxconf_slot_program(tls_own_static SRCS sys/tls_slot.c OPTIONS -DOWN_SLOT -fPIE
  LINK -static-pie -Wl,--export-dynamic-symbol=ctx_test_slot)
