#!/bin/sh
# Installs the library to a temporary prefix and uses it as other projects would: through
# pkg-config, and through find_package in a project with programs in C.
# install_test.sh BUILD_DIR SOURCE_DIR CMAKE C_COMPILER
set -eu
build=$1 source=$2 cmake=$3 cc=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$cmake" --install "$build" --prefix "$scratch/prefix" --component otel_ctx_writer >"$scratch/log"
mv "$scratch/prefix" "$scratch/moved" # the package does not know where it was installed

pc=$(find "$scratch/moved" -name otel_ctx_writer.pc)
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
lib=$(dirname "$(find "$scratch/moved" -name libotel_ctx_writer.so)")

# Checks that the slot of the thread context is a thread-local variable in the dynamic symbol table.
exports_slot() {
  nm -D --defined-only --format=sysv "$1" | grep -q '^otel_thread_ctx_v1 *|.*| *TLS *|' || {
    echo "$1 does not export otel_thread_ctx_v1" >&2
    exit 1
  }
}
exports_slot "$lib/libotel_ctx_writer.so"

# Tests the program and the commands exactly as in the documentation; then the same with programs
# that check themselves.
page=$source/docs/thread-context.md
cc() { "$cc" "$@"; }
cd "$scratch"
build_as_documented() {
  cp "$1" program.c
  rm -f program program-static
  grep '^cc ' "$page" >commands
  # shellcheck disable=SC1091
  . ./commands
  if ldd program | grep 'not found'; then exit 1; fi
  if ldd program-static | grep otel_ctx; then exit 1; fi
  exports_slot program-static
}
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$page" >documented.c
build_as_documented documented.c
for part in api thread; do
  build_as_documented "$source/writer_ref/c_${part}_test.c"
  ./program
  ./program-static
done
# A program that never mentions the slot must export it too.
echo 'int main(void) { return 0; }' >silent.c
build_as_documented silent.c
# shellcheck disable=SC2046 # the flags are words
for flags in '-ffunction-sections -fdata-sections -Wl,--gc-sections' '-std=c11 -Wall -Wextra -Wpedantic -Werror'; do
  # shellcheck disable=SC2086
  "$cc" $flags "$source/writer_ref/c_thread_test.c" -o thread-static $(pkg-config --cflags otel_ctx_writer) \
    -Wl,-Bstatic $(pkg-config --static --libs otel_ctx_writer) -Wl,-Bdynamic
  exports_slot thread-static
  ./thread-static
done
echo "pkg-config: ok"

mkdir "$scratch/project"
cp "$source/writer_ref/c_api_test.c" "$scratch/project/main.c"
cp "$source/writer_ref/c_thread_test.c" "$scratch/project/thread.c"
cat >"$scratch/project/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.16)
project(user ${LANGUAGES})
find_package(otel_ctx_writer 0.1 REQUIRED)
add_executable(with_static main.c)
target_link_libraries(with_static PRIVATE otel_ctx_writer::static)
add_executable(with_shared main.c)
target_link_libraries(with_shared PRIVATE otel_ctx_writer::shared)
find_package(Threads REQUIRED)
foreach(kind static shared)
  add_executable(thread_${kind} thread.c)
  target_link_libraries(thread_${kind}
    PRIVATE otel_ctx_writer::${kind} Threads::Threads ${CMAKE_DL_LIBS})
endforeach()
EOF
for languages in "C" "C;CXX"; do
  rm -rf "$scratch/project/build"
  "$cmake" -G Ninja -S "$scratch/project" -B "$scratch/project/build" "-DLANGUAGES=$languages" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$scratch/moved" >>"$scratch/log"
  "$cmake" --build "$scratch/project/build" >>"$scratch/log"
  "$scratch/project/build/with_static"
  "$scratch/project/build/with_shared"
  "$scratch/project/build/thread_static"
  "$scratch/project/build/thread_shared"
  exports_slot "$scratch/project/build/thread_static"
  if ldd "$scratch/project/build/with_static" | grep -e otel_ctx -e 'libstdc++'; then
    echo "the static program needs more than libc" >&2
    exit 1
  fi
  echo "find_package, $languages: ok"
done
