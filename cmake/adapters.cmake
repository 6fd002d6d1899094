# The protocol with programs under test, and the adapters that speak it, all without sanitizers.
ctxconf_script_test(protocol_test conformance/testee/protocol_test.py ${PROJECT_SOURCE_DIR})

add_library(ctxconf_adapter_loop STATIC conformance/testees/adapter_loop.cc)
ctxconf_plain(ctxconf_adapter_loop)
target_compile_features(ctxconf_adapter_loop PUBLIC cxx_std_23)
target_compile_options(ctxconf_adapter_loop PRIVATE -Wshadow)
target_include_directories(ctxconf_adapter_loop PUBLIC "${PROJECT_SOURCE_DIR}")
target_link_libraries(ctxconf_adapter_loop PUBLIC ${json} Threads::Threads)

ctxconf_program(adapter_cpp SRCS conformance/testees/adapter_cpp.cc
  DEPS ctxconf_adapter_loop ctxconf_proto ctxconf_writer PLAIN)
ctxconf_program(adapter_c SRCS conformance/testees/adapter_c.c
  DEPS ctxconf_writer Threads::Threads PLAIN)
foreach(script IN ITEMS adapter.py adapter.sh reader.py reader_stub.py
    reader_threads.py)
  configure_file(conformance/testees/${script} bin/${script} COPYONLY)
endforeach()

ctxconf_script_test(run_test LABELS ptrace
  conformance/end_to_end/run_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)
ctxconf_script_test(run_expectations_test LABELS ptrace
  conformance/end_to_end/run_expectations_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)
ctxconf_script_test(reader_command_test LABELS ptrace
  conformance/end_to_end/reader_command_test.py ${PROJECT_BINARY_DIR}/bin)
ctxconf_script_test(run_reports_test LABELS ptrace
  conformance/end_to_end/run_reports_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)
ctxconf_script_test(on_fail_test LABELS ptrace
  conformance/end_to_end/on_fail_test.py ${PROJECT_BINARY_DIR}/bin)
ctxconf_script_test(replay_test LABELS ptrace conformance/end_to_end/replay_test.py ${PROJECT_BINARY_DIR}/bin)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")  # the test uses options of the compiler that others lack
  ctxconf_script_test(musl_test LABELS ptrace conformance/end_to_end/musl_test.py
    ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin $<TARGET_FILE:ctxconf_writer>)
  set_tests_properties(musl_test PROPERTIES SKIP_RETURN_CODE 77 COST 700)
endif()
ctxconf_script_test(adapters_test LABELS process
  conformance/testees/adapters_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)

ctxconf_script_test(reader_adapters_test LABELS ptrace
  conformance/end_to_end/reader_adapters_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)

# Mutants and legal variants for run
ctxconf_testee_sources(driven_process_sources driven_process children content context sdk)
ctxconf_program(driven_process_writer
  SRCS conformance/testees/driven_process_writer.cc ${driven_process_sources} ${writer_objects}
  DEPS ctxconf_adapter_loop ctxconf_proto PLAIN)
ctxconf_unity(driven_process_writer)
target_compile_options(driven_process_writer PRIVATE ${exclusive_atomics})
ctxconf_program(driven_record_writer SRCS conformance/testees/driven_record_writer.cc
  DEPS ctxconf_adapter_loop ctxconf_proto ctxconf_writer PLAIN)
set_target_properties(driven_record_writer PROPERTIES ENABLE_EXPORTS ON)
ctxconf_testee_sources(driven_thread_sources driven_thread record reference_data threads)
ctxconf_program(driven_thread_writer
  SRCS conformance/testees/driven_thread_writer.cc ${driven_thread_sources} ${writer_objects}
  DEPS ctxconf_adapter_loop PLAIN)
ctxconf_unity(driven_thread_writer)
target_link_options(driven_thread_writer PRIVATE ${export})
ctxconf_script_test(driven_process_testees_test LABELS process
  conformance/testees/driven_process_testees_test.py
  ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)
ctxconf_script_test(driven_thread_testees_test LABELS process
  conformance/testees/driven_thread_testees_test.py
  ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)

# Readers: a correct one, its mutants and legal variants
ctxconf_testee_sources(reader_sources reader
  agent answer_json context_copy context_reader elf_module header mappings memory payload record
  reference_data ring stopped_thread text thread_sample variable)
add_library(ctxconf_testee_reader OBJECT ${reader_sources})
ctxconf_plain(ctxconf_testee_reader)
target_link_libraries(ctxconf_testee_reader PUBLIC ${json})
ctxconf_unity(ctxconf_testee_reader)
ctxconf_program(bad_reader SRCS conformance/testees/bad_reader.cc
  DEPS ctxconf_testee_reader ctxconf_adapter_loop PLAIN)
ctxconf_script_test(reader_testees_test LABELS process
  conformance/testees/reader_testees_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)
# Testees that end badly
ctxconf_program(bad_adapter SRCS conformance/testees/bad_adapter.cc
  DEPS ctxconf_testee_reader Threads::Threads ctxconf_writer PLAIN)
ctxconf_script_test(bad_adapter_test LABELS ptrace
  conformance/end_to_end/bad_adapter_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin
  BadAdapters Jobs ByHand)
ctxconf_script_test(bad_reader_test LABELS ptrace
  conformance/end_to_end/bad_adapter_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin
  BadReaders)
ctxconf_script_test(signals_test LABELS ptrace
  conformance/end_to_end/signals_test.py ${PROJECT_BINARY_DIR}/bin)
ctxconf_script_test(exec_race_test LABELS ptrace
  conformance/end_to_end/exec_race_test.py ${PROJECT_BINARY_DIR}/bin)
set_tests_properties(exec_race_test PROPERTIES PROCESSORS 2)  # It keeps all processors busy.

if(CTXCONF_SANITIZE)  # No sanitizer is in these, and the tests that run them are in the preset gcc12.
  set_target_properties(adapter_c adapter_cpp bad_adapter bad_reader ctxconf_adapter_loop ctxconf_testee_reader
    driven_process_writer driven_record_writer driven_thread_writer
    thread_go thread_loader thread_static thread_static_pie thread_unexported
    PROPERTIES EXCLUDE_FROM_ALL TRUE)
endif()
