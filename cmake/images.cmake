# docker/: the contents of the runner image.
ctxconf_script_test(runner_test
  docker/runner_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)
