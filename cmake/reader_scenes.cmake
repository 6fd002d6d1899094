# conformance/reader/: the scenes that are shown to a reader under test
ctxconf_library(ctxconf_scenes
  SRCS conformance/reader/call_recorder.cc conformance/reader/play_scene.cc
       conformance/reader/publish.cc conformance/reader/scene.cc conformance/reader/scenes.cc
       conformance/reader/scenes_names.cc conformance/reader/target.cc
  DEPS ctxconf_proto ctxconf_puppet ctxconf_testee)
