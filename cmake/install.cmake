# ctxconf with its helpers; the reference library installs itself (writer.cmake).
install(TARGETS ctxconf reader_ref RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT programs)
install(TARGETS ctxconf-trampoline process_writer
  adapter_cpp bad_reader driven_process_writer driven_record_writer driven_thread_writer
  thread_writer thread_unexported thread_static thread_static_pie thread_loader thread_go
  RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/ctxconf" COMPONENT programs)
if(TARGET ctxconf-puppet)
  install(TARGETS ${puppet_programs}
    RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/ctxconf" COMPONENT programs)
  install(DIRECTORY conformance/puppet/samples
    DESTINATION "${CMAKE_INSTALL_DATADIR}/ctxconf" COMPONENT programs)
endif()
if(CTXCONF_HAVE_M32)
  install(TARGETS process_writer_32
    RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/ctxconf" COMPONENT programs)
endif()
install(TARGETS ${elf_testees}
  RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/ctxconf" COMPONENT programs
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/ctxconf" COMPONENT programs)
install(FILES ${zoo}
  DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/ctxconf" COMPONENT programs)
install(PROGRAMS conformance/testees/ctypes_writer.py
  DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/ctxconf" COMPONENT programs)
install(DIRECTORY golden/maps golden/process-context golden/schema golden/src golden/thread-record
  DESTINATION "${CMAKE_INSTALL_DATADIR}/ctxconf/golden" COMPONENT programs)
install(FILES golden/manifest.json
  DESTINATION "${CMAKE_INSTALL_DATADIR}/ctxconf/golden" COMPONENT programs)
# The CMake package of the program. Both components install it: the program is in the same place in both.
include(CMakePackageConfigHelpers)
set(package_dir lib/cmake/ctxconf)
configure_package_config_file(cmake/ctxconfConfig.cmake.in ctxconfConfig.cmake
  INSTALL_DESTINATION "${package_dir}" PATH_VARS CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(ctxconfConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
set(package_files "${PROJECT_BINARY_DIR}/ctxconfConfig.cmake" "${PROJECT_BINARY_DIR}/ctxconfConfigVersion.cmake"
  cmake/ctxconf_add_test.cmake)
install(FILES ${package_files} DESTINATION "${package_dir}" COMPONENT programs)
# What scripts/release packs: the static program, and what `ctxconf reader` and `ctxconf puppet` start, if this
# processor has that.
if(TARGET ctxconf-static)
  set(reader_libraries "")
  foreach(testee IN LISTS elf_testees)
    get_target_property(type ${testee} TYPE)
    if(type STREQUAL "SHARED_LIBRARY")
      list(APPEND reader_libraries ${testee})
    endif()
  endforeach()
  add_custom_target(release_programs DEPENDS ${puppet_programs} ${reader_libraries})
  install(PROGRAMS $<TARGET_FILE:ctxconf-static> DESTINATION bin RENAME ctxconf COMPONENT release EXCLUDE_FROM_ALL)
  install(PROGRAMS $<TARGET_FILE:ctxconf-trampoline> DESTINATION libexec/ctxconf COMPONENT release EXCLUDE_FROM_ALL)
  install(FILES ${package_files} DESTINATION "${package_dir}" COMPONENT release EXCLUDE_FROM_ALL)
  foreach(program IN LISTS puppet_programs reader_libraries)
    install(PROGRAMS $<TARGET_FILE:${program}> DESTINATION libexec/ctxconf COMPONENT release EXCLUDE_FROM_ALL)
  endforeach()
endif()
install(FILES LICENSE README.md DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT programs)

ctxconf_script_test(ctxconf_install_test LABELS ptrace
  conformance/end_to_end/install_test.py ${PROJECT_BINARY_DIR} ${CMAKE_COMMAND})
ctxconf_script_test(examples_test LABELS ptrace
  conformance/end_to_end/examples_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${CMAKE_COMMAND})
set_tests_properties(examples_test PROPERTIES COST 700)
