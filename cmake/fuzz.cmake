# One fuzz target for each kind of hostile bytes. They have an engine, or a main
# function that replays files. clang-tidy reads all of them as one source, together with other programs, so names must
# differ.

# The oracles are not under test, so the engine must not be guided by them. Headers under test that
# the oracles use are compiled in record_walk.cc if they should guide it.
ctxconf_library(ctxconf_fuzz
  SRCS fuzz/guarded_buffer.cc fuzz/maps_oracle.cc fuzz/payload_walk_oracle.cc
       fuzz/process_header_oracle.cc fuzz/record_oracle.cc fuzz/slow_header.cc fuzz/slow_maps.cc
       fuzz/slow_payload.cc fuzz/slow_record.cc fuzz/thread_context_oracle.cc
  DEPS ctxconf_fuzz_subject ctxconf_maps ctxconf_payload_walk ctxconf_record_reader)
ctxconf_library(ctxconf_fuzz_subject SRCS fuzz/record_walk.cc DEPS ctxconf_abi)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Otherwise the checks of the sanitizers make the cursor too large for inlining.
  set(fuzz_inline "-mllvm;-inline-threshold=2000")
  set(fuzz_unguided
    -fno-sanitize-coverage=inline-8bit-counters,indirect-calls,trace-cmp,pc-table,stack-depth)
  target_compile_options(ctxconf_fuzz PRIVATE ${fuzz_unguided})
  # It compares lengths, and no words that the engine could learn.
  set_source_files_properties(fuzz/record_walk.cc PROPERTIES
    COMPILE_OPTIONS "-fno-sanitize-coverage=trace-cmp;${fuzz_inline}")
  set_source_files_properties(fuzz/record_oracle.cc PROPERTIES COMPILE_OPTIONS "${fuzz_inline}")
  # They contain only plain arrays and spans, which may cross a sanitizer boundary.
  set_source_files_properties(fuzz/guarded_buffer.cc fuzz/slow_record.cc PROPERTIES
    COMPILE_OPTIONS "-O2;-fno-sanitize=all;-fno-builtin-memcpy")
endif()
if(NOT CTXCONF_FUZZ_ONLY)
  ctxconf_library(ctxconf_fuzz_decoders
    SRCS fuzz/payload_decode_oracle.cc fuzz/process_sample_oracle.cc
    DEPS ctxconf_fuzz ctxconf_payload ctxconf_reader)
  target_compile_definitions(ctxconf_fuzz_decoders INTERFACE CTXCONF_FUZZ_PROTOBUF)
  target_compile_options(ctxconf_fuzz_decoders PRIVATE ${fuzz_unguided})
endif()

separate_arguments(fuzz_engine UNIX_COMMAND "${CTXCONF_FUZZ_ENGINE}")
if(NOT fuzz_engine)
  ctxconf_library(ctxconf_fuzz_replay SRCS fuzz/replay_main.cc)
  set(fuzz_engine ctxconf_fuzz_replay)
  set(fuzz_replays TRUE)
endif()
add_custom_target(fuzz_targets)
set(fuzz_targets "")
# ctxconf_fuzz_target(NAME DEPS target...)
function(ctxconf_fuzz_target name)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  ctxconf_program(${name} SRCS fuzz/${name}.cc DEPS ${arg_DEPS} ${fuzz_engine})
  target_compile_options(${name} PRIVATE ${fuzz_unguided})
  ctxconf_link_quickly(${name})
  add_dependencies(fuzz_targets ${name})
  set(fuzz_targets ${fuzz_targets} ${name} PARENT_SCOPE)
endfunction()
set(fuzz_decoders ctxconf_fuzz_decoders)
if(CTXCONF_FUZZ_ONLY)
  set(fuzz_decoders ctxconf_fuzz)
endif()
ctxconf_fuzz_target(record_fuzzer DEPS ctxconf_fuzz)
ctxconf_fuzz_target(thread_context_fuzzer DEPS ctxconf_fuzz)
ctxconf_fuzz_target(process_header_fuzzer DEPS ${fuzz_decoders})
ctxconf_fuzz_target(maps_fuzzer DEPS ctxconf_fuzz)
ctxconf_fuzz_target(payload_fuzzer DEPS ${fuzz_decoders})
# These need other libraries.
if(NOT CTXCONF_FUZZ_ONLY)
  set(fuzz_json "")
  if(NOT fuzz_replays)
    # An object library: the engine finds the mutator through a weak name, which takes nothing from
    # an archive.
    add_library(ctxconf_fuzz_json OBJECT fuzz/json_mutator.cc)
    target_link_libraries(ctxconf_fuzz_json PRIVATE ctxconf_flags nlohmann_json::nlohmann_json)
    set(fuzz_json ctxconf_fuzz_json)
  endif()
  ctxconf_fuzz_target(timeline_fuzzer DEPS ctxconf_judge ctxconf_report ${fuzz_json})
  ctxconf_fuzz_target(result_fuzzer DEPS ctxconf_report ${fuzz_json})
  ctxconf_fuzz_target(protocol_fuzzer DEPS ctxconf_testee ${fuzz_json})
  ctxconf_fuzz_target(session_fuzzer DEPS ctxconf_judge ctxconf_report ${fuzz_json})
  ctxconf_fuzz_target(expectations_fuzzer DEPS ctxconf_verdict)
  ctxconf_fuzz_target(elf_fuzzer DEPS ctxconf_elf_facts)
  ctxconf_fuzz_target(modules_fuzzer DEPS ctxconf_elf ctxconf_abi)
  ctxconf_fuzz_target(code_location_fuzzer DEPS ctxconf_elf)
  ctxconf_fuzz_target(proc_text_fuzzer DEPS ctxconf_fuzz ctxconf_sys)
  ctxconf_fuzz_target(loaded_at_fuzzer DEPS ctxconf_elf)
  ctxconf_fuzz_target(loaded_file_fuzzer DEPS ctxconf_elf)
  ctxconf_fuzz_target(callers_fuzzer DEPS ctxconf_elf)
  ctxconf_fuzz_target(vector_fuzzer DEPS ctxconf_golden ${fuzz_json})
  ctxconf_fuzz_target(catalogue_fuzzer DEPS ctxconf_catalogue ${fuzz_json})
  ctxconf_fuzz_target(reader_answer_fuzzer DEPS ctxconf_testee ${fuzz_json})
  ctxconf_fuzz_target(script_fuzzer DEPS ctxconf_puppet)
  ctxconf_fuzz_target(otep_fuzzer DEPS ctxconf_drift)
  ctxconf_fuzz_target(printed_ids_fuzzer DEPS ctxconf_evidence)
  ctxconf_fuzz_target(thread_state_fuzzer DEPS ctxconf_testee)
endif()
if(NOT fuzz_replays AND NOT CTXCONF_FUZZ_ONLY)
  foreach(work IN ITEMS record empty)
    ctxconf_program(${work}_bench_fuzzer SRCS fuzz/bench_fuzzer.cc DEPS ctxconf_fuzz ${fuzz_engine})
    add_dependencies(fuzz_targets ${work}_bench_fuzzer)
  endforeach()
  target_compile_definitions(record_bench_fuzzer PRIVATE CTXCONF_BENCH_RECORD=1)
  target_compile_definitions(empty_bench_fuzzer PRIVATE CTXCONF_BENCH_RECORD=0)
endif()

if(NOT CTXCONF_FUZZ_ONLY)
  # For scripts/hostile-files.
  add_library(many_runs MODULE fuzz/many_runs.c)
  target_compile_options(many_runs PRIVATE -Wall -Wextra ${ctxconf_werror})
  set_target_properties(many_runs PROPERTIES
    PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endif()
if(NOT CTXCONF_FUZZ_ONLY)
  set(fuzz_seeds "${PROJECT_BINARY_DIR}/fuzz_seeds")
  ctxconf_script_test(fuzz_seeds fuzz/make_seeds.py ${PROJECT_SOURCE_DIR}/golden ${fuzz_seeds})
  set_tests_properties(fuzz_seeds PROPERTIES FIXTURES_SETUP fuzz_seeds)
  set(fuzz_no_more "")
  if(NOT fuzz_replays)
    set(fuzz_no_more -runs=0)
  endif()
  foreach(target IN LISTS fuzz_targets)
    add_test(NAME ${target}_replay COMMAND ${target} ${fuzz_no_more}
      "${fuzz_seeds}/${target}" "${PROJECT_SOURCE_DIR}/fuzz/regressions/${target}")
    set_tests_properties(${target}_replay PROPERTIES
      LABELS unit TIMEOUT 120 FIXTURES_REQUIRED fuzz_seeds)
  endforeach()
  if(fuzz_replays)
    ctxconf_script_test(fuzz_scripts_test
      fuzz/scripts_test.py ${PROJECT_SOURCE_DIR} $<TARGET_FILE:record_fuzzer>)
  endif()
  if(CTXCONF_SANITIZE AND fuzz_replays)
    ctxconf_script_test(hostile_files scripts/hostile-files
      10 --program $<TARGET_FILE:ctxconf> --keep ${PROJECT_BINARY_DIR}/hostile_files)
  endif()
  ctxconf_test(fuzz_test
    SRCS fuzz/guarded_buffer_test.cc fuzz/slow_header_test.cc fuzz/slow_maps_test.cc
         fuzz/slow_payload_test.cc fuzz/slow_record_test.cc
    DEPS ctxconf_fuzz)
endif()
