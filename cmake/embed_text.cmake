# cmake -DFUNCTION=NAME -DHEADER=FILE.h -P embed_text.cmake OUT.cc FILE...: OUT.cc defines the
# function of the header that returns these files, each with its name and that of its folder;
# builtin_files returns the file names only.
math(EXPR last "${CMAKE_ARGC} - 1")
set(first 0)
while(NOT CMAKE_ARGV${first} STREQUAL "-P")
  math(EXPR first "${first} + 1")
endwhile()
math(EXPR first "${first} + 2")
set(out "${CMAKE_ARGV${first}}")
math(EXPR first "${first} + 1")
set(source "#include \"${HEADER}\"\n
// One literal a file is longer than the standard asks a compiler to accept.
#pragma GCC diagnostic ignored \"-Woverlength-strings\"
namespace ctxconf::conformance {
namespace {
constexpr BuiltinFile kFiles[] = {\n")
foreach(n RANGE ${first} ${last})
  set(file "${CMAKE_ARGV${n}}")
  get_filename_component(name "${file}" NAME)
  if(NOT FUNCTION STREQUAL "builtin_files")
    get_filename_component(folder "${file}" DIRECTORY)
    get_filename_component(folder "${folder}" NAME)
    set(name "${folder}/${name}")
  endif()
  file(READ "${file}" text)
  string(FIND "${text}" ")embedded\"" at)
  if(text STREQUAL "" OR NOT at EQUAL -1)
    message(FATAL_ERROR "${file}: cannot be embedded: empty, or it contains )embedded\"")
  endif()
  string(APPEND source "{\"${name}\", R\"embedded(${text})embedded\"},\n")
endforeach()
string(APPEND source "};
}  // namespace
std::span<const BuiltinFile> ${FUNCTION}() { return kFiles; }
}  // namespace ctxconf::conformance\n")
file(WRITE "${out}" "${source}")
