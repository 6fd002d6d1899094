# The catalogue with its JSON files built in, and the version of this build.
ctxconf_embed(builtin_files conformance/requirements/builtin_files.h
  conformance/requirements/4719-2026-04-07.json conformance/requirements/4947-2026-07-17.json)
ctxconf_library(ctxconf_catalogue
  SRCS conformance/requirements/catalogue.cc conformance/requirements/catalogue_json.cc
       conformance/requirements/render.cc
  DEPS ctxconf_abi ctxconf_builtin_files)
target_link_libraries(ctxconf_catalogue PRIVATE $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)

# If the sources have no history, as in an image, pass the commit with -DCTXCONF_COMMIT.
if(NOT CTXCONF_COMMIT)
  execute_process(COMMAND git -C "${PROJECT_SOURCE_DIR}" describe --always --dirty
    OUTPUT_VARIABLE CTXCONF_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT CTXCONF_COMMIT)
  set(CTXCONF_COMMIT "no commit")
endif()
configure_file(conformance/version.h.in conformance/version.h @ONLY)
