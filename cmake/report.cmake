# What is made from a run: reports for people and for programs.
ctxconf_library(ctxconf_report
  SRCS conformance/report/console.cc conformance/report/escape.cc conformance/report/junit.cc
       conformance/report/result_json.cc conformance/report/wording.cc
  DEPS ctxconf_golden ctxconf_verdict fmt::fmt ${json})

ctxconf_library(ctxconf_sample_runs SRCS conformance/report/sample_runs.cc DEPS ctxconf_verdict)
ctxconf_program(report_samples
  SRCS conformance/report/report_samples.cc
  DEPS ctxconf_report ctxconf_sample_runs)
ctxconf_test(report_test
  SRCS conformance/report/console_test.cc conformance/report/escape_test.cc
       conformance/report/junit_test.cc conformance/report/result_json_test.cc
  DEPS ctxconf_report ctxconf_sample_runs)
ctxconf_script_test(check_reports
  conformance/report/check_reports.py $<TARGET_FILE:report_samples>
  ${PROJECT_SOURCE_DIR}/conformance/report/result.schema.json ${PROJECT_BINARY_DIR}/report_samples)
