# Reports of a run, for people and for programs. libmd: see drift.cmake.
ctxconf_embed(page_parts conformance/report/page_parts.h
  conformance/report/page.css conformance/report/page.js)
ctxconf_library(ctxconf_report
  SRCS conformance/report/console.cc conformance/report/digest.cc conformance/report/escape.cc
       conformance/report/exposition.cc
       conformance/report/fault_table.cc conformance/report/html.cc conformance/report/junit.cc
       conformance/report/markdown.cc conformance/report/operation_figure.cc
       conformance/report/process_lines.cc
       conformance/report/redact.cc conformance/report/result_json.cc conformance/report/sarif.cc
       conformance/report/wording.cc
  DEPS ctxconf_golden ctxconf_page_parts ctxconf_verdict ctxconf_fmt ${json})
target_link_libraries(ctxconf_report PRIVATE ctxconf_md)

ctxconf_library(ctxconf_sample_runs SRCS conformance/report/sample_runs.cc DEPS ctxconf_verdict)
ctxconf_program(report_samples
  SRCS conformance/report/report_samples.cc
  DEPS ctxconf_report ctxconf_sample_runs)
ctxconf_test(report_test
  SRCS conformance/report/console_test.cc conformance/report/digest_test.cc
       conformance/report/escape_test.cc conformance/report/exposition_test.cc
       conformance/report/fault_table_test.cc
       conformance/report/html_test.cc
       conformance/report/junit_test.cc conformance/report/markdown_test.cc
       conformance/report/process_lines_test.cc
       conformance/report/redact_test.cc conformance/report/result_json_test.cc
       conformance/report/sarif_test.cc
  DEPS ctxconf_report ctxconf_sample_runs)
ctxconf_script_test(check_reports
  conformance/report/check_reports.py $<TARGET_FILE:report_samples>
  ${PROJECT_SOURCE_DIR}/conformance/report/result.schema.json ${PROJECT_BINARY_DIR}/report_samples)
if(CTXCONF_SANITIZE)  # the preset asan leaves out the tests that start it
  set_target_properties(report_samples PROPERTIES EXCLUDE_FROM_ALL TRUE)
else()  # a browser is slow enough without sanitizers
  ctxconf_script_test(check_page LABELS process
    conformance/report/check_page.py $<TARGET_FILE:report_samples>
    ${PROJECT_BINARY_DIR}/page_samples)
  set_tests_properties(check_page PROPERTIES SKIP_RETURN_CODE 77)
endif()
