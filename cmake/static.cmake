# Libraries for programs that use shared libraries, and for those that need no other file: a target says by its property
# CTXCONF_STATIC which of them it is linked to.
set(if_static "$<BOOL:$<TARGET_PROPERTY:CTXCONF_STATIC>>")
find_library(CTXCONF_LIBMD md REQUIRED)  # SHA-256 without a cryptography library
foreach(name IN ITEMS bz2 dw elf lzma md protobuf z capstone)
  find_library(CTXCONF_STATIC_${name} lib${name}.a)
  list(APPEND static_libraries "${CTXCONF_STATIC_${name}}")
endforeach()
# The builds of which a release is made: those with g++, and for another processor if its libraries are here. Another
# link would make `scripts/test` slower.
set(CTXCONF_CAN_LINK_STATICALLY OFF)
if("${static_libraries}" MATCHES "NOTFOUND")
  message(STATUS "No ctxconf-static: a static library is not installed (${static_libraries})")
elseif(CTXCONF_SANITIZE)  # not of what users run
elseif(CMAKE_CROSSCOMPILING)
  string(FIND "${CTXCONF_STATIC_dw}" "/${CMAKE_LIBRARY_ARCHITECTURE}/" found)
  if(NOT found EQUAL -1)
    set(CTXCONF_CAN_LINK_STATICALLY ON)
  endif()
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(CTXCONF_CAN_LINK_STATICALLY ON)
endif()

add_library(ctxconf_elfutils INTERFACE)
target_link_libraries(ctxconf_elfutils INTERFACE dw elf "$<${if_static}:lzma;bz2;z>")
add_library(ctxconf_md INTERFACE)
target_link_libraries(ctxconf_md INTERFACE "$<IF:${if_static},${CTXCONF_STATIC_md},${CTXCONF_LIBMD}>")
add_library(ctxconf_protobuf INTERFACE)
target_link_libraries(ctxconf_protobuf INTERFACE
  "$<IF:${if_static},${CTXCONF_STATIC_protobuf},protobuf::libprotobuf>")
add_library(ctxconf_fmt INTERFACE)
if(CTXCONF_CAN_LINK_STATICALLY)  # Debian's package has no library for this.
  add_library(ctxconf_static_fmt STATIC cmake/static_fmt.cc)
  target_compile_features(ctxconf_static_fmt PRIVATE cxx_std_20)
endif()
target_link_libraries(ctxconf_fmt INTERFACE "$<IF:${if_static},ctxconf_static_fmt,fmt::fmt>")

# ctxconf_link_statically(TARGET): the linker warns of dlopen, by which libdw would load libdebuginfod; ctxconf never
# asks it to. Position-independent, because the start-up code of other static programs makes the first exception sort
# the unwind tables of the whole program, which takes longer than the rest of `ctxconf --version`.
function(ctxconf_link_statically target)
  set_target_properties(${target} PROPERTIES CTXCONF_STATIC ON)
  target_link_options(${target} PRIVATE -static-pie -Wl,-z,pack-relative-relocs -Wl,--build-id=sha1)
endfunction()
