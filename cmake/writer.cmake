# The reference writer: libotel_ctx_writer (static and shared), the program writer_ref, their tests
# and the package for other projects.

# Compiled as in an SDK: without exceptions or RTTI. Also without sanitizers in the sanitizer
# preset, and optimised in every build, because traced programs link it.
add_library(ctxconf_writer_objects OBJECT
  writer_ref/linux_kernel.cc writer_ref/otel_ctx.cc writer_ref/otel_thread_ctx.cc)
set_target_properties(ctxconf_writer_objects PROPERTIES
  POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_compile_features(ctxconf_writer_objects PRIVATE cxx_std_23)
target_compile_options(ctxconf_writer_objects PRIVATE
  -Wall -Wextra -Wpedantic ${ctxconf_werror} -Wshadow -Wconversion -Wno-sign-conversion
  -fno-exceptions -fno-rtti -O2)
target_include_directories(ctxconf_writer_objects PRIVATE "${PROJECT_SOURCE_DIR}")
# Readers prefer TLS descriptors.
target_compile_options(ctxconf_writer_objects PRIVATE ${tls_descriptors})

# Linked as C: it contains no C++ runtime.
add_library(ctxconf_writer STATIC $<TARGET_OBJECTS:ctxconf_writer_objects>)
add_library(otel_ctx SHARED $<TARGET_OBJECTS:ctxconf_writer_objects> writer_ref/otel_ctx.map)
foreach(library IN ITEMS ctxconf_writer otel_ctx)
  set_target_properties(${library} PROPERTIES
    LINKER_LANGUAGE C OUTPUT_NAME otel_ctx_writer
    PUBLIC_HEADER "writer_ref/otel_ctx.h;writer_ref/otel_thread_ctx.h")
  target_include_directories(${library} INTERFACE
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR};${PROJECT_SOURCE_DIR}/writer_ref>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
endforeach()
set_target_properties(ctxconf_writer PROPERTIES EXPORT_NAME static)
# The slot of the thread context, for readers: needed even if nothing refers to its archive member.
target_link_options(ctxconf_writer INTERFACE
  "LINKER:--export-dynamic-symbol=otel_thread_ctx_v1" "LINKER:-u,otel_thread_ctx_v1")
set_target_properties(otel_ctx PROPERTIES
  EXPORT_NAME shared VERSION ${PROJECT_VERSION} SOVERSION 0
  LINK_DEPENDS "${PROJECT_SOURCE_DIR}/writer_ref/otel_ctx.map")
# nodelete: unloading would lose track of a context that stays visible.
target_link_options(otel_ctx PRIVATE
  "LINKER:--version-script=${PROJECT_SOURCE_DIR}/writer_ref/otel_ctx.map"
  "LINKER:-z,nodelete" "LINKER:-z,defs"
  "LINKER:--as-needed")  # CMake adds libstdc++, which nothing here needs

ctxconf_test(publisher_test SRCS writer_ref/publisher_test.cc DEPS ctxconf_abi SANITIZED)
# With the sanitizers of the preset, so it is built from the sources.
ctxconf_test(otel_ctx_test
  SRCS writer_ref/otel_ctx_test.cc writer_ref/otel_ctx.cc writer_ref/linux_kernel.cc
  DEPS ctxconf_abi SANITIZED LABELS process)

ctxconf_test(otel_thread_ctx_test
  SRCS writer_ref/otel_thread_ctx_test.cc writer_ref/otel_thread_ctx.cc
  DEPS ctxconf_abi SANITIZED LABELS process)

add_library(ctxconf_writer_encode STATIC writer_ref/encode.cc)
target_compile_features(ctxconf_writer_encode PUBLIC cxx_std_23)
target_compile_options(ctxconf_writer_encode PRIVATE -Wall -Wextra ${ctxconf_werror} -Wshadow -O2)
target_include_directories(ctxconf_writer_encode PUBLIC "${PROJECT_SOURCE_DIR}")
target_link_libraries(ctxconf_writer_encode PRIVATE ctxconf_proto)
ctxconf_test(encode_test SRCS writer_ref/encode_test.cc writer_ref/encode.cc DEPS ctxconf_proto SANITIZED)

ctxconf_program(writer_ref
  SRCS writer_ref/main.cc writer_ref/thread_contexts.cc
  DEPS ctxconf_writer_encode ctxconf_writer Threads::Threads PLAIN)

# C users of both libraries; never sanitized, because the libraries are not.
foreach(part IN ITEMS api thread)
  foreach(kind IN ITEMS static shared)
    set(test c_${part}_${kind}_test)
    add_executable(${test} writer_ref/c_${part}_test.c)
    target_compile_features(${test} PRIVATE c_std_11)
    set_target_properties(${test} PROPERTIES
      C_EXTENSIONS OFF RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
    target_compile_options(${test} PRIVATE -Wall -Wextra -Wpedantic ${ctxconf_werror} -Wconversion)
    add_test(NAME ${test} COMMAND ${test})
    set_tests_properties(${test} PROPERTIES LABELS process TIMEOUT 60)
  endforeach()
  target_link_libraries(c_${part}_static_test PRIVATE ctxconf_writer)
  target_link_libraries(c_${part}_shared_test PRIVATE otel_ctx)
  target_link_libraries(c_${part}_static_test PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  target_link_libraries(c_${part}_shared_test PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
endforeach()
add_executable(otel_ctx_cxx11_test writer_ref/cxx11_test.cc)
set_target_properties(otel_ctx_cxx11_test PROPERTIES
  CXX_STANDARD 11 CXX_EXTENSIONS OFF RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
target_compile_options(otel_ctx_cxx11_test PRIVATE
  -Wall -Wextra -Wpedantic ${ctxconf_werror} -Wconversion -Wsign-conversion -Wold-style-cast)
target_link_libraries(otel_ctx_cxx11_test PRIVATE ctxconf_writer)
add_test(NAME otel_ctx_cxx11_test COMMAND otel_ctx_cxx11_test)
set_tests_properties(otel_ctx_cxx11_test PROPERTIES LABELS process TIMEOUT 60)

# It steps the library that programs link: optimised and without sanitizers in every build.
ctxconf_test(store_order_test
  SRCS writer_ref/store_order_test.cc DEPS ctxconf_writer ctxconf_abi LABELS process)
ctxconf_test(otel_ctx_library_test SRCS writer_ref/library_test.cc DEPS ${CMAKE_DL_LIBS} LABELS process)
add_dependencies(otel_ctx_library_test otel_ctx ctxconf_writer)
target_compile_definitions(otel_ctx_library_test PRIVATE
  CTXCONF_WRITER_SHARED="$<TARGET_FILE:otel_ctx>" CTXCONF_WRITER_STATIC="$<TARGET_FILE:ctxconf_writer>")
ctxconf_test(writer_ref_test SRCS writer_ref/main_test.cc DEPS ctxconf_proto ctxconf_abi LABELS process)
add_dependencies(writer_ref_test writer_ref)

if(CTXCONF_BENCH)
  find_package(benchmark REQUIRED)
  ctxconf_program(writer_bench SRCS writer_ref/writer_bench.cc
    DEPS ctxconf_writer benchmark::benchmark PLAIN)
  # One source for each way to access the slot; the program itself uses local-exec.
  set(kernel writer_ref/thread_bench_kernel.cc)
  ctxconf_program(thread_bench SRCS writer_ref/thread_bench.cc ${kernel} DEPS ${CMAKE_DL_LIBS} PLAIN)
  foreach(model IN ITEMS IE DESC GD CALLS)
    add_library(thread_kernel_${model} MODULE ${kernel})
    target_compile_features(thread_kernel_${model} PRIVATE cxx_std_23)
    target_include_directories(thread_kernel_${model} PRIVATE "${PROJECT_SOURCE_DIR}")
    add_dependencies(thread_bench thread_kernel_${model})
    target_compile_definitions(thread_bench PRIVATE
      CTXCONF_KERNEL_${model}="$<TARGET_FILE:thread_kernel_${model}>")
  endforeach()
  target_compile_options(thread_kernel_IE PRIVATE -ftls-model=initial-exec)
  target_compile_options(thread_kernel_DESC PRIVATE ${tls_descriptors})
  if(NOT tls_is_written)  # then it has descriptors as well
    target_compile_options(thread_kernel_GD PRIVATE ${tls_general_dynamic})
  endif()
  target_compile_definitions(thread_kernel_CALLS PRIVATE CTXCONF_BENCH_CALLS)
  target_link_libraries(thread_kernel_CALLS PRIVATE otel_ctx)
endif()

include(CMakePackageConfigHelpers)
install(TARGETS ctxconf_writer otel_ctx EXPORT otel_ctx_writerTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT otel_ctx_writer
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT otel_ctx_writer
  PUBLIC_HEADER DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT otel_ctx_writer)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/otel_ctx_writer")
install(EXPORT otel_ctx_writerTargets NAMESPACE otel_ctx_writer::
  DESTINATION "${package_dir}" COMPONENT otel_ctx_writer)
configure_package_config_file(cmake/otel_ctx_writerConfig.cmake.in otel_ctx_writerConfig.cmake
  INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(otel_ctx_writerConfigVersion.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH CTXCONF_PREFIX_FROM_PKGCONFIG
  "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file(cmake/otel_ctx_writer.pc.in otel_ctx_writer.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/otel_ctx_writerConfig.cmake"
  "${PROJECT_BINARY_DIR}/otel_ctx_writerConfigVersion.cmake"
  DESTINATION "${package_dir}" COMPONENT otel_ctx_writer)
install(FILES "${PROJECT_BINARY_DIR}/otel_ctx_writer.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT otel_ctx_writer)
install(TARGETS writer_ref RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT programs)

add_test(NAME otel_ctx_install_test COMMAND "${PROJECT_SOURCE_DIR}/writer_ref/install_test.sh"
  "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}" "${CMAKE_COMMAND}" "${CMAKE_C_COMPILER}")
set_tests_properties(otel_ctx_install_test PROPERTIES LABELS slow TIMEOUT 120)
