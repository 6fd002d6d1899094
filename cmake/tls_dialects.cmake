# Compiler options for descriptors and for General Dynamic. Empty: the compiler's default. Only x86-64 has General
# Dynamic as its default; clang for aarch64 knows nothing but descriptors.
set(tls_descriptors "")
set(tls_general_dynamic "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-mtls-dialect=gnu2 CTXCONF_HAVE_TLSDESC)
  if(CTXCONF_HAVE_TLSDESC)
    set(tls_descriptors -mtls-dialect=gnu2)
    set(tls_general_dynamic -mtls-dialect=gnu)
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(tls_general_dynamic -mtls-dialect=trad)
endif()
