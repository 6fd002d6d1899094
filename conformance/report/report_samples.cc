// Writes the reports of the sample runs to a directory, for check_reports.py.
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "conformance/report/console.h"
#include "conformance/report/html.h"
#include "conformance/report/junit.h"
#include "conformance/report/markdown.h"
#include "conformance/report/result_json.h"
#include "conformance/report/sample_runs.h"
#include "conformance/report/sarif.h"

using ctxconf::conformance::RunResult;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: report_samples DIRECTORY\n", stderr);
    return 2;
  }
  const std::vector<std::pair<std::string, RunResult>> runs = {
      {"ordinary", ctxconf::conformance::ordinary_run()},
      {"silent", ctxconf::conformance::silent_run()},
      {"two_images", ctxconf::conformance::run_of_two_images()},
      {"expectations", ctxconf::conformance::run_with_expectations()},
      {"hostile", ctxconf::conformance::hostile_run()},
      {"huge", ctxconf::conformance::huge_run()},
      {"empty", RunResult{}},
  };
  for (const auto& [name, run] : runs) {
    const std::string base = std::string(argv[1]) + "/" + name;
    const std::vector<std::pair<std::string, std::string>> files = {
        {base + ".json", ctxconf::conformance::to_result_json(run)},
        {base + ".xml", ctxconf::conformance::to_junit(run, {})},
        {base + ".strict.xml", ctxconf::conformance::to_junit(run, {.strict = true})},
        {base + ".sarif", ctxconf::conformance::to_sarif(run)},
        {base + ".html", ctxconf::conformance::to_html(run)},
        {base + ".md", ctxconf::conformance::to_markdown(run)},
        {base + ".txt", ctxconf::conformance::to_console(run, {.verbosity = 2})},
    };
    for (const auto& [path, text] : files) {
      std::ofstream file(path, std::ios::binary);
      file << text;
      file.close();
      if (!file) {
        std::fprintf(stderr, "cannot write %s\n", path.c_str());
        return 1;
      }
    }
  }
  return 0;
}
