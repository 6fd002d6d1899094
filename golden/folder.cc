#include "golden/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "golden/files.h"
#include "golden/hexdump.h"
#include "golden/members.h"
#include "golden/source.h"

namespace ctxconf::golden {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kManifestFormat = 1;
constexpr std::string_view kTemporary = ".ctxconf-tmp";
constexpr std::string_view kRegenerate = "run `ctxconf golden regenerate`";

// The same as in zlib.
std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0xedb88320U : 0U);
  }
  return ~crc;
}

struct Stamp {
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  friend bool operator==(const Stamp&, const Stamp&) = default;
};
Stamp stamp_of(std::string_view text) { return {text.size(), crc32(text)}; }

using Manifest = std::map<std::string, Stamp>;

// One line per file, so that changes can be reviewed and merged.
std::string manifest_text(const Manifest& manifest) {
  std::string out = fmt::format("{{\n \"format\": {},\n \"files\": {{", kManifestFormat);
  const char* separator = "\n";
  for (const auto& [file, stamp] : manifest) {
    out += fmt::format("{}  \"{}\": {{\"size\": {}, \"crc32\": \"{:08x}\"}}", separator, file,
                       stamp.size, stamp.crc);
    separator = ",\n";
  }
  return out + "\n }\n}\n";
}

std::expected<Manifest, std::string> parse_manifest(std::string_view text) {
  const auto parsed = parse_json(text);
  if (!parsed) return std::unexpected(parsed.error());
  std::string error;
  Members members(*parsed, "", error);
  members.number("format", kManifestFormat);
  const Json* files = members.need("files");
  if (files == nullptr || !files->is_object()) members.wrong("files", "must be an object");
  members.finish();
  Manifest out;
  if (error.empty()) {
    for (const auto& [file, entry] : files->items()) {
      Members m(entry, "files." + file + ".", error);
      Stamp stamp{.size = m.number("size", kLongestVectorFile)};
      const auto digits = bytes_of_hex(m.text("crc32"));
      if (!digits || digits->size() != 4) m.wrong("crc32", "must be 8 hex digits");
      for (const char c : digits.value_or("")) {
        stamp.crc = (stamp.crc << 8U) | static_cast<unsigned char>(c);
      }
      m.finish();
      out[file] = stamp;
    }
  }
  if (!error.empty()) return std::unexpected(error);
  return out;
}

// The present state on disk.
struct State {
  std::map<std::string, std::string> files;  // generated files and strays, by path in the folder
  std::vector<std::string> leftovers;        // temporary files of an interrupted regenerate
  std::vector<std::string> unreadable;       // with the reason
  Manifest manifest;
  std::string manifest_problem;  // why it is invalid; empty if it is valid or missing
};

bool is_leftover(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  return path.native().ends_with(kTemporary) &&
         (fs::is_regular_file(status) || fs::is_symlink(status));
}

void read_into(State& state, const fs::path& golden, const std::string& file) {
  if (is_leftover(golden / file)) {
    state.leftovers.push_back(file);
    return;
  }
  auto text = read_file(golden / file, kLongestVectorFile);
  if (text) {
    state.files[file] = std::move(*text);
  } else {
    state.unreadable.push_back(text.error());
  }
}

std::expected<State, std::string> read_state(const fs::path& golden) {
  State state;
  for (const Kind kind : kKinds) {
    const std::string folder(to_string(kind));
    std::error_code error;
    if (!fs::exists(golden / folder, error)) continue;
    const auto names = list_files(golden / folder);
    if (!names) return std::unexpected(names.error());
    for (const auto& name : *names) read_into(state, golden, fmt::format("{}/{}", folder, name));
  }
  const std::string manifest(kManifestFile);
  const std::string temporary = manifest + std::string(kTemporary);
  std::error_code error;
  if (fs::exists(fs::symlink_status(golden / temporary, error))) {
    read_into(state, golden, temporary);
  }
  if (!fs::exists(golden / manifest, error)) return state;
  read_into(state, golden, manifest);
  const auto text = state.files.find(manifest);
  if (text == state.files.end()) return state;
  auto parsed = parse_manifest(text->second);
  if (parsed) {
    state.manifest = std::move(*parsed);
  } else {
    state.manifest_problem = parsed.error();
  }
  return state;
}

// Whether it is as it was generated, last time or now.
bool is_generated(const State& state, const Outputs& outputs, const std::string& file,
                  const std::string& text) {
  if (const auto now = outputs.find(file); now != outputs.end() && now->second == text) return true;
  const auto listed = state.manifest.find(file);
  return listed != state.manifest.end() && listed->second == stamp_of(text);
}

std::string edited(const fs::path& golden, const State& state, const std::string& file) {
  const std::string path = (golden / file).string();
  if (!state.manifest_problem.empty() || !state.files.contains(std::string(kManifestFile))) {
    return fmt::format(
        "{}: differs from its source, and without {} it cannot be told from a hand-edited file; "
        "delete it, too, and {}",
        path, kManifestFile, kRegenerate);
  }
  if (!state.manifest.contains(file)) {
    return path + ": was not made by `ctxconf golden regenerate`; vectors are written in " +
           (golden / "src").string() + ". Move the file away, or delete it";
  }
  return path + ": was edited by hand. Put lasting changes into " + (golden / "src").string() +
         "; delete the file and " + std::string(kRegenerate);
}

// Empty, or why the manifest cannot be trusted.
std::string manifest_trouble(const fs::path& golden, const State& state, const Outputs& outputs) {
  const std::string manifest(kManifestFile);
  const std::string path = (golden / manifest).string();
  if (!state.manifest_problem.empty()) {
    return fmt::format("{}: {}; delete it and {}", path, state.manifest_problem, kRegenerate);
  }
  const auto text = state.files.find(manifest);
  if (text == state.files.end() || text->second == outputs.at(manifest)) return {};
  if (text->second != manifest_text(state.manifest)) {
    return fmt::format("{}: was edited by hand; delete it and {}", path, kRegenerate);
  }
  return {};
}

bool is_vector_file(const std::string& file) {
  return file != kManifestFile && file.ends_with(".json");
}

Kind kind_of(const std::string& file) {
  for (const Kind kind : kKinds) {
    if (file.starts_with(std::string(to_string(kind)) + "/")) return kind;
  }
  return Kind::kMaps;
}

std::expected<void, std::string> write_text(const fs::path& path, const std::string& text) {
  // A file, link or FIFO that is there already is not written through.
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::noreplace);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  const bool is_ours = out.is_open();
  out.close();
  if (out) return {};
  const int reason = errno;
  std::error_code ignored;
  if (is_ours) fs::remove(path, ignored);
  return std::unexpected(fmt::format("{}: cannot be written{}", path.string(),
                                     reason != 0 ? fmt::format(": {}", strerror(reason)) : ""));
}

// Temporary files and new folders, which the destructor removes unless they were renamed or are in
// use.
struct Pending {
  std::vector<std::pair<fs::path, fs::path>> files;  // temporary, final
  std::vector<fs::path> folders;
  Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() {
    std::error_code ignored;
    for (const auto& [temporary, file] : files) fs::remove(temporary, ignored);
    for (const auto& folder : folders) fs::remove(folder, ignored);  // fails if it contains files
  }
};

std::expected<void, std::string> make_folders(const fs::path& golden, Pending& pending) {
  for (const Kind kind : kKinds) {
    const fs::path folder = golden / to_string(kind);
    std::error_code error;
    if (fs::create_directory(folder, error)) pending.folders.push_back(folder);
    if (error) return std::unexpected(folder.string() + ": " + error.message());
  }
  return {};
}

// False if there is no such file any more.
std::expected<bool, std::string> remove_file(const fs::path& file) {
  std::error_code error;
  const bool removed = fs::remove(file, error);
  if (error) return std::unexpected(fmt::format("{}: {}", file.string(), error.message()));
  return removed;
}

}  // namespace

std::expected<std::vector<Vector>, std::string> encode_sources(const fs::path& golden) {
  std::vector<Vector> out;
  std::set<std::string> expected_files;
  for (const Kind kind : kKinds) {
    const fs::path path = golden / source_file_of(kind);
    expected_files.insert(path.filename().string());
    const auto text = read_file(path, kLongestSourceFile);
    if (!text) return std::unexpected(text.error());
    auto vectors = encode_source(*text, path.string(), kind);
    if (!vectors) return std::unexpected(std::move(vectors).error());
    std::ranges::move(*vectors, std::back_inserter(out));
  }
  const auto names = list_files(golden / "src");
  if (!names) return std::unexpected(names.error());
  for (const auto& name : *names) {
    if (expected_files.contains(name)) continue;
    return std::unexpected((golden / "src" / name).string() +
                           ": is not a known source; move it away");
  }
  std::ranges::sort(out, {}, &Vector::id);
  return out;
}

Outputs outputs_of(const std::vector<Vector>& vectors) {
  Outputs out;
  Manifest manifest;
  const auto add = [&](const fs::path& file, std::string text) {
    manifest[file.string()] = stamp_of(text);
    out[file.string()] = std::move(text);
  };
  for (const Vector& v : vectors) {
    fs::path file = file_of(v);
    add(file, to_json(v));
    if (auto dump = hexdump(v); !dump.empty()) add(file.replace_extension(".hex"), std::move(dump));
  }
  out[std::string(kManifestFile)] = manifest_text(manifest);
  return out;
}

std::expected<std::vector<std::string>, std::string> check_folder(const fs::path& golden,
                                                                  const Outputs& outputs) {
  const auto state = read_state(golden);
  if (!state) return std::unexpected(state.error());
  std::vector<std::string> problems = state->unreadable;
  if (auto trouble = manifest_trouble(golden, *state, outputs); !trouble.empty()) {
    problems.push_back(std::move(trouble));
  }
  for (const auto& file : state->leftovers) {
    problems.push_back(
        fmt::format("{}: is in the way of `ctxconf golden regenerate`, which removes it; run it",
                    (golden / file).string()));
  }
  for (const auto& [file, text] : state->files) {
    if (file == kManifestFile) continue;
    const auto now = outputs.find(file);
    if (now != outputs.end() && now->second == text) continue;
    if (is_generated(*state, outputs, file, text)) {
      problems.push_back(fmt::format(
          "{}: {}; {}", (golden / file).string(),
          now == outputs.end() ? "has no source any more" : "does not say what its source says",
          kRegenerate));
      continue;
    }
    std::string problem = edited(golden, *state, file);
    if (is_vector_file(file) && state->manifest.contains(file)) {
      const auto parsed = parse_vector(text, file, kind_of(file));
      if (!parsed) problem += ". It is not a vector either: " + parsed.error();
    }
    problems.push_back(std::move(problem));
  }
  for (const auto& [file, text] : outputs) {
    if (state->files.contains(file)) continue;
    problems.push_back(fmt::format("{}: is missing; {}", (golden / file).string(), kRegenerate));
  }
  const std::string manifest(kManifestFile);
  const auto listed = state->files.find(manifest);
  if (problems.empty() && listed != state->files.end() && listed->second != outputs.at(manifest)) {
    problems.push_back(fmt::format("{}: does not list the present files; {}",
                                   (golden / manifest).string(), kRegenerate));
  }
  return problems;
}

std::expected<Written, WriteProblem> write_folder(const fs::path& golden, const Outputs& outputs) {
  Written done;
  const auto refuse = [](const std::string& why) {
    return std::unexpected(WriteProblem{.text = why + "\nnothing was written"});
  };
  const auto fail = [&](const std::string& why) {
    std::string then = "nothing was written";
    if (done.written + done.removed > 0) {
      then = fmt::format(
          "{} files were written and {} removed before that; after you have fixed this, {}",
          done.written, done.removed, kRegenerate);
    }
    return std::unexpected(WriteProblem{.text = why + "\n" + then, .unwritten = true});
  };
  const auto state = read_state(golden);
  if (!state) return refuse(state.error());
  std::vector<std::string> refused = state->unreadable;
  if (auto trouble = manifest_trouble(golden, *state, outputs); !trouble.empty()) {
    refused.push_back(std::move(trouble));
  }
  for (const auto& [file, text] : state->files) {
    if (file != kManifestFile && !is_generated(*state, outputs, file, text)) {
      refused.push_back(edited(golden, *state, file));
    }
  }
  if (!refused.empty()) return refuse(fmt::format("{}", fmt::join(refused, "\n")));

  for (const auto& file : state->leftovers) {
    if (const auto removed = remove_file(golden / file); !removed) return fail(removed.error());
  }
  Pending pending;
  if (auto made = make_folders(golden, pending); !made) return fail(made.error());
  for (const auto& [file, text] : outputs) {
    const auto now = state->files.find(file);
    if (now != state->files.end() && now->second == text) {
      ++done.unchanged;
      continue;
    }
    const fs::path path = golden / file;
    const fs::path temporary = path.string() + std::string(kTemporary);
    if (auto written = write_text(temporary, text); !written) return fail(written.error());
    pending.files.emplace_back(temporary, path);
  }
  // The manifest comes last: until then it matches the old texts, and a new text counts as
  // generated.
  const auto rename_all = [&](bool manifest) -> std::expected<void, std::string> {
    for (const auto& [temporary, file] : pending.files) {
      if ((file.filename() == kManifestFile) != manifest) continue;
      std::error_code failed;
      fs::rename(temporary, file, failed);
      if (failed) return std::unexpected(file.string() + ": " + failed.message());
      ++done.written;
    }
    return {};
  };
  if (auto renamed = rename_all(false); !renamed) return fail(renamed.error());
  for (const auto& [file, text] : state->files) {
    if (outputs.contains(file)) continue;
    const auto removed = remove_file(golden / file);
    if (!removed) return fail(removed.error());
    if (*removed) ++done.removed;
  }
  if (auto renamed = rename_all(true); !renamed) return fail(renamed.error());
  return done;
}

}  // namespace ctxconf::golden
