# conformance/reader/: the scenes that are shown to a reader under test
file(GLOB scene_vectors CONFIGURE_DEPENDS
  RELATIVE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/golden/process-context/*.json ${PROJECT_SOURCE_DIR}/golden/thread-record/*.json)
ctxconf_embed(scene_vectors conformance/reader/builtin_vectors.h ${scene_vectors})
ctxconf_library(ctxconf_scenes
  SRCS conformance/reader/call_recorder.cc conformance/reader/play_scene.cc
       conformance/reader/premises.cc
       conformance/reader/message_content.cc
       conformance/reader/publish.cc conformance/reader/scene.cc conformance/reader/scenes.cc
       conformance/reader/scenes_early.cc conformance/reader/scenes_generated.cc
       conformance/reader/scenes_headers.cc
       conformance/reader/scenes_lifetimes.cc conformance/reader/scenes_names.cc
       conformance/reader/scenes_payloads.cc conformance/reader/scenes_records.cc
       conformance/reader/scenes_reference_data.cc
       conformance/reader/scenes_threads.cc conformance/reader/scenes_tls.cc
       conformance/reader/scenes_vectors.cc
       conformance/reader/scenes_windows.cc
       conformance/reader/target.cc conformance/reader/target_harm.cc
       conformance/reader/usable_time.cc
  DEPS ctxconf_golden ctxconf_grammar ctxconf_proto ctxconf_puppet ctxconf_scene_vectors ctxconf_testee)
target_compile_definitions(ctxconf_scenes PRIVATE CTXCONF_GENERAL_DYNAMIC=${tls_has_general_dynamic})
ctxconf_test(call_recorder_test SRCS conformance/reader/call_recorder_test.cc DEPS ctxconf_scenes)
ctxconf_test(message_content_test SRCS conformance/reader/message_content_test.cc DEPS ctxconf_scenes)
ctxconf_test(target_harm_test SRCS conformance/reader/target_harm_test.cc DEPS ctxconf_scenes
  LABELS ptrace)
ctxconf_test(scenes_test SRCS conformance/reader/scenes_test.cc DEPS ctxconf_judge ctxconf_scenes
  LABELS ptrace)
ctxconf_test(play_scene_test
  SRCS conformance/reader/play_scene_test.cc conformance/reader/usable_time_test.cc
  DEPS ctxconf_scenes
  LABELS ptrace)
if(TARGET ctxconf-puppet)
  add_dependencies(scenes_test ${puppet_programs} ctxconf-trampoline elf_testees)
  add_dependencies(play_scene_test ${puppet_programs} bad_reader ctxconf-trampoline reader_ref)
endif()
