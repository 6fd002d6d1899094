# The contents of the runner image, and the images of a release.
ctxconf_script_test(runner_test
  docker/runner_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)
ctxconf_script_test(oci_archive_test
  conformance/end_to_end/oci_archive_test.py $<TARGET_FILE:ctxconf-trampoline>)
