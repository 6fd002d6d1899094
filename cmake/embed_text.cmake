# cmake -P embed_text.cmake OUT.cc FILE...: OUT.cc defines the function of
# conformance/requirements/builtin_files.h that returns these files.
math(EXPR last "${CMAKE_ARGC} - 1")
set(out "${CMAKE_ARGV3}")
set(source "#include \"conformance/requirements/builtin_files.h\"\n
// One literal a file is longer than the standard asks a compiler to accept.
#pragma GCC diagnostic ignored \"-Woverlength-strings\"
namespace ctxconf::conformance {
namespace {
constexpr BuiltinFile kFiles[] = {\n")
foreach(n RANGE 4 ${last})
  set(file "${CMAKE_ARGV${n}}")
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" text)
  string(FIND "${text}" ")embedded\"" at)
  if(text STREQUAL "" OR NOT at EQUAL -1)
    message(FATAL_ERROR "${file}: cannot be embedded: empty, or it contains )embedded\"")
  endif()
  string(APPEND source "{\"${name}\", R\"embedded(${text})embedded\"},\n")
endforeach()
string(APPEND source "};
}  // namespace
std::span<const BuiltinFile> builtin_files() { return kFiles; }
}  // namespace ctxconf::conformance\n")
file(WRITE "${out}" "${source}")
