#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "conformance/command/command.h"
#include "conformance/command/files.h"
#include "conformance/command/print.h"
#include "conformance/report/escape.h"
#include "conformance/text/counts.h"
#include "conformance/verdict/exit_code.h"
#include "golden/diff.h"
#include "golden/files.h"
#include "golden/folder.h"
#include "golden/hexdump.h"
#include "golden/source.h"
#include "golden/vector.h"
#include "sys/child.h"
#include "sys/ending_signals.h"

namespace ctxconf::conformance {
namespace {

struct GoldenCommand {
  std::string action;              // list, show, verify, regenerate, diff
  std::vector<std::string> names;  // list: globs; show: ids; diff: two ids or files
  std::string directory;           // golden/; empty: that of the source tree or the installation
  bool json = false;               // list, show
};

namespace fs = std::filesystem;
using golden::Kind;
using golden::Vector;

constexpr std::chrono::milliseconds kEncoderDeadline{60'000};
constexpr std::size_t kMostLines = 60;  // shown of a maps text
constexpr std::size_t kLongestShownLine = 160;

// Complains of each line of the text.
int complain_lines(int code, const std::string& text) {
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);) complain(code, one);
  return code;
}

std::string folder_of(const GoldenCommand& c) {
  if (!c.directory.empty()) return c.directory;
  std::error_code error;
  const fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  // The folder is installed, or build/PRESET/bin is in the source tree.
  for (const char* way : {"../share/ctxconf/golden", "../../../golden"}) {
    const fs::path folder = (bin / way).lexically_normal();
    if (fs::exists(folder / golden::kManifestFile, error) || fs::exists(folder / "src", error)) {
      return folder.string();
    }
  }
  return {};
}

std::string results_text(const Vector& v) {
  std::string out;
  for (const auto r : v.results) {
    if (!out.empty()) out += " or ";
    out += to_string(r);
  }
  return out;
}

std::expected<std::vector<Vector>, std::string> load_all(const fs::path& folder) {
  std::vector<Vector> out;
  for (const Kind kind : golden::kKinds) {
    auto vectors = golden::load_vectors(folder, kind);
    if (!vectors) return std::unexpected(std::move(vectors).error());
    std::ranges::move(*vectors, std::back_inserter(out));
  }
  return out;
}

int no_such(const std::string& name) {
  return complain(kExitUsage, "golden: no vector " + name, "`ctxconf golden list` shows the ids");
}

int list(const GoldenCommand& c, const fs::path& folder) {
  auto vectors = load_all(folder);
  if (!vectors) return complain(kExitUsage, "golden: " + vectors.error());
  for (const auto& glob : c.names) {
    if (std::ranges::none_of(*vectors, [&](const Vector& v) { return glob_matches(glob, v.id); })) {
      return no_such(glob);
    }
  }
  std::erase_if(*vectors, [&](const Vector& v) {
    return !c.names.empty() && std::ranges::none_of(c.names, [&](const auto& glob) {
      return glob_matches(glob, v.id);
    });
  });
  std::string out;
  auto json = nlohmann::ordered_json::array();
  std::size_t width = 0;
  for (const Vector& v : *vectors) width = std::max(width, v.id.size());
  std::map<Kind, std::size_t> counts;
  for (const Vector& v : *vectors) {
    add_line(out, fmt::format("{:<{}}  {:<16}  {}", v.id, width, results_text(v), v.comment));
    ++counts[v.kind];
    nlohmann::ordered_json results;
    for (const auto r : v.results) results.push_back(to_string(r));
    json.push_back({{"id", v.id},
                    {"requirements", v.requirements},
                    {"comment", v.comment},
                    {"result", std::move(results)},
                    {"file", golden::file_of(v).string()}});
  }
  if (c.json) return print(json.dump(1) + "\n", kExitClean);
  out += fmt::format("{} vectors: {} process contexts, {} thread records, {} maps texts\n",
                     vectors->size(), counts[Kind::kProcessContext], counts[Kind::kThreadRecord],
                     counts[Kind::kMaps]);
  return print(out, kExitClean);
}

// `name` is an id, or a file that ends in .json.
std::expected<Vector, std::string> load_one(const fs::path& folder, const std::string& name) {
  fs::path path = name;
  const bool is_id = !name.ends_with(".json");
  if (is_id) {
    path.clear();
    for (const Kind kind : golden::kKinds) {
      const auto prefix = golden::id_prefix(kind);
      if (!name.starts_with(prefix) || name.find('/', prefix.size()) != std::string::npos) continue;
      path = folder / golden::to_string(kind) / (name.substr(prefix.size()) + ".json");
    }
    std::error_code error;
    if (path.empty() || !fs::exists(path, error)) {
      return std::unexpected(name + " is not a vector; `ctxconf golden list` shows the ids");
    }
  }
  const auto text = golden::read_file(path, golden::kLongestVectorFile);
  if (!text) return std::unexpected(text.error());
  const auto kind = golden::kind_in(*text, path.string());
  if (!kind) return std::unexpected(kind.error());
  auto vector = golden::parse_vector(*text, path.string(), *kind);
  if (vector && is_id && vector->id != name) {
    return std::unexpected(
        fmt::format("{}: holds {}, not {}; delete it and run `ctxconf golden "
                    "regenerate`",
                    path.string(), vector->id, name));
  }
  return vector;
}

void show_maps(std::string& out, const Vector& v) {
  add_line(out, v.id + ": " + results_text(v));
  add_line(out, v.comment);
  out += "\n";
  std::istringstream lines(v.maps.maps);
  std::size_t count = 0;
  for (std::string one; std::getline(lines, one); ++count) {
    if (count < kMostLines) out += escape(one, Escape::kTerminal, kLongestShownLine) + "\n";
  }
  if (count > kMostLines) out += fmt::format("({})\n", counted(count - kMostLines, "more line"));
  if (v.maps.maps.empty()) out += "(empty)\n";
}

int show(const GoldenCommand& c, const fs::path& folder) {
  if (c.names.empty()) return complain(kExitUsage, "golden show: name a vector");
  std::string out;
  for (const auto& name : c.names) {
    const auto v = load_one(folder, name);
    if (!v) return complain(kExitUsage, "golden: " + v.error());
    if (!out.empty()) out += "\n";
    if (c.json) {
      out += golden::to_json(*v);
      continue;
    }
    if (v->kind == Kind::kMaps) show_maps(out, *v);
    std::istringstream dump(golden::hexdump(*v));
    for (std::string one; std::getline(dump, one);) add_line(out, one);
    out += "\n";
    for (const auto& field : golden::field_lines(*v)) {
      const bool said = field.starts_with("header.") || field.starts_with("payload.") ||
                        field.starts_with("record.") || field.starts_with("line") ||
                        field.starts_with("comment") || field.starts_with("mask") ||
                        field.starts_with("result") || field.starts_with("key_map");
      if (!said) out += escape(field, Escape::kTerminal, kLongestShownLine) + "\n";
    }
  }
  return print(out, kExitClean);
}

int diff(const GoldenCommand& c, const fs::path& folder) {
  if (c.names.size() != 2) return complain(kExitUsage, "golden diff: name two vectors");
  const auto a = load_one(folder, c.names[0]);
  if (!a) return complain(kExitUsage, "golden: " + a.error());
  const auto b = load_one(folder, c.names[1]);
  if (!b) return complain(kExitUsage, "golden: " + b.error());
  const auto lines = golden::diff(*a, *b);
  std::string out;
  for (const auto& one : lines) add_line(out, one);
  if (lines.empty()) add_line(out, "the same in every field");
  return print(out, lines.empty() ? kExitClean : kExitFailed);
}

// A line for each id that is not in the catalogue.
std::vector<std::string> unknown_requirements(const std::vector<Vector>& vectors) {
  const Catalogue& catalogue = Catalogue::builtin();
  std::vector<std::string> out;
  for (const Vector& v : vectors) {
    for (const auto& id : v.requirements) {
      if (catalogue.find(id) != nullptr) continue;
      const std::string nearest = catalogue.nearest(id);
      out.push_back(fmt::format("{}: the catalogue has no requirement {}{}", v.id, id,
                                nearest.empty() ? "" : ", perhaps " + nearest));
    }
  }
  return out;
}

int verify(const fs::path& folder) {
  const auto vectors = golden::encode_sources(folder);
  if (!vectors) return complain(kExitUsage, "golden: " + vectors.error());
  const auto outputs = golden::outputs_of(*vectors);
  auto problems = golden::check_folder(folder, outputs);
  if (!problems) return complain(kExitUsage, "golden: " + problems.error());
  std::ranges::move(unknown_requirements(*vectors), std::back_inserter(*problems));
  std::string out;
  for (const auto& problem : *problems) add_line(out, problem);
  if (!problems->empty()) {
    add_line(out, fmt::format("golden: {} problem{}", problems->size(),
                              problems->size() == 1 ? "" : "s"));
    return print(out, kExitFailed);
  }
  add_line(out, fmt::format("golden: {} vectors in {} files, all match their sources",
                            vectors->size(), outputs.size() - 1));
  return print(out, kExitClean);
}

// The output of the second encoder.
std::expected<std::string, std::string> encode_again(const fs::path& folder) {
  const fs::path script = folder / "second_encoder.py";
  const fs::path protos = folder / ".." / "proto";
  std::error_code error;
  for (const fs::path& needed :
       {script, protos / "opentelemetry", protos / "process_contexts.proto"}) {
    if (fs::exists(needed, error)) continue;
    return std::unexpected(needed.lexically_normal().string() +
                           ": is missing; vectors are regenerated in the source tree");
  }
  sys::ChildOptions child;
  child.argv = {"python3", script.string()};
  for (const Kind kind : golden::kKinds) {
    child.argv.push_back((folder / golden::source_file_of(kind)).string());
  }
  child.argv.insert(child.argv.end(), {"--proto", protos.string()});
  child.extra_env = {"PYTHONDONTWRITEBYTECODE=1"};
  child.deadline = kEncoderDeadline;
  const auto result = sys::run_child(child);
  if (!result) return std::unexpected(sys::to_string(result.error()));
  if (result->timed_out) return std::unexpected("it did not end within a minute");
  if (result->exit_code != 0) {
    const auto errors = result->errors.substr(result->errors.size() -
                                              std::min<std::size_t>(result->errors.size(), 2000));
    return std::unexpected("it failed (it needs python3 and protoc):\n" + errors);
  }
  if (result->truncated) return std::unexpected("it printed too much");
  return result->output;
}

// The signals of EndingSignals take effect only afterwards, so that they leave no temporary file.
auto write_whole(const fs::path& folder, const golden::Outputs& outputs) {
  const sys::EndingSignals held_back;
  return golden::write_folder(folder, outputs);
}

int regenerate(const fs::path& folder) {
  const auto vectors = golden::encode_sources(folder);
  if (!vectors) return complain(kExitUsage, "golden: " + vectors.error());
  if (const auto unknown = unknown_requirements(*vectors); !unknown.empty()) {
    for (const auto& one : unknown) complain(kExitUsage, one);
    return complain(kExitUsage, "golden: nothing was written",
                    "`ctxconf list` shows the requirements");
  }
  const auto theirs = encode_again(folder);
  if (!theirs) {
    return complain_lines(
        kExitUsage, "golden: the second encoder: " + theirs.error() + "\nnothing was written");
  }
  if (const auto agreed = golden::compare_encodings(*vectors, *theirs); !agreed) {
    return complain(kExitFailed, agreed.error(),
                    "the two encoders disagree, and nothing was written: fix golden/*.cc or "
                    "golden/second_encoder.py");
  }
  const auto written = write_whole(folder, golden::outputs_of(*vectors));
  if (!written) {
    const auto& problem = written.error();
    return complain_lines(problem.unwritten ? kExitUnreachable : kExitFailed, problem.text);
  }
  return print(fmt::format("golden: {} vectors, two encoders agree; {} files written, {} removed, "
                           "{} as they were\n",
                           vectors->size(), written->written, written->removed, written->unchanged),
               kExitClean);
}

int golden(const GoldenCommand& c) {
  const fs::path folder = folder_of(c);
  if (folder.empty()) {
    std::error_code error;
    const bool knows_place = fs::exists("/proc/self/exe", error);
    return complain(
        kExitUsage,
        knows_place ? "golden: there is no folder golden/ next to this program"
                    : "golden: without /proc the folder golden/ next to this program is not found",
        "--dir DIR names it");
  }
  if (!c.names.empty() && (c.action == "verify" || c.action == "regenerate")) {
    return complain(kExitUsage,
                    "golden " + c.action + " takes no names: it always means all vectors");
  }
  if (c.json && c.action != "list" && c.action != "show") {
    return complain(kExitUsage,
                    "golden " + c.action + " has no --json; only list and show have it");
  }
  if (c.action == "list") return list(c, folder);
  if (c.action == "show") return show(c, folder);
  if (c.action == "diff") return diff(c, folder);
  if (c.action == "verify") return verify(folder);
  return regenerate(folder);
}

}  // namespace

Command golden_command(CLI::App& app, const Words& /*command_line*/) {
  const auto o = std::make_shared<GoldenCommand>();
  CLI::App* sub = app.add_subcommand(
      "golden", "list, show, check or regenerate the golden vectors: bytes with a known meaning");
  sub->add_option("ACTION", o->action, "list, show, verify, regenerate or diff")
      ->required()
      ->check(CLI::IsMember({"list", "show", "verify", "regenerate", "diff"}));
  sub->add_option("NAME", o->names, "list: globs over ids; show: ids; diff: two ids or files");
  sub->add_option("--dir", o->directory,
                  "the folder golden/; default: the one of this installation or source tree")
      ->check([](const std::string& folder) { return folder.empty() ? "names no folder" : ""; });
  sub->add_flag("--json", o->json, "list, show: as JSON");
  sub->footer(
      "Exit codes: 0 clean, 1 verify found something, regenerate refused, or diff found a "
      "difference,\n2 usage or malformed input, 3 a file or stdout could not be written, 70 a bug "
      "in ctxconf.");

  return {
      .app = sub, .run = [o](const Words& /*program*/) { return golden(*o); }, .takes = nullptr};
}

}  // namespace ctxconf::conformance
