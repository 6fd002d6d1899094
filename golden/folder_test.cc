#include "golden/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "golden/files.h"
#include "golden/source.h"

namespace ctxconf::golden {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A folder with sources for two vectors of each kind, and nothing generated.
class GoldenFolder : public ::testing::Test {
 protected:
  GoldenFolder() {
    std::string name = ::testing::TempDir() + "/golden_folder_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) abort();
    folder_ = name;
    fs::create_directory(folder_ / "src");
    for (const Kind kind : kKinds) write(source_file_of(kind), source(kind, {"one", "two"}));
  }
  ~GoldenFolder() override { fs::remove_all(folder_); }

  static std::string source(Kind kind, const std::vector<std::string>& names) {
    std::string out = R"({"kind": ")" + std::string(to_string(kind)) + R"(", "revision": ")" +
                      std::string(revision_of(kind)) + R"(", "vectors": [)";
    for (const auto& name : names) {
      out += (out.ends_with("[") ? R"({"id": ")" : R"(, {"id": ")") + std::string(id_prefix(kind)) +
             name + R"(", "requirements": ["r"], "comment": "c", "result": "reject")" +
             (kind == Kind::kThreadRecord ? R"(, "key_map": [])" : "") +
             (kind == Kind::kMaps ? R"(, "maps": "")" : "") + "}";
    }
    return out + "]}";
  }

  void write(const fs::path& file, const std::string& text) {
    std::ofstream(folder_ / file, std::ios::binary) << text;
  }
  std::string text_of(const fs::path& file) {
    return read_file(folder_ / file, kLongestVectorFile).value_or("(none)");
  }
  Outputs outputs() {
    const auto vectors = encode_sources(folder_);
    EXPECT_TRUE(vectors) << vectors.error();
    return outputs_of(*vectors);
  }
  std::string regenerate() {
    const auto written = write_folder(folder_, outputs());
    return written ? "" : written.error().text;
  }
  std::vector<std::string> problems() { return check_folder(folder_, outputs()).value(); }

  fs::path folder_;
};

TEST_F(GoldenFolder, IsMadeAndFoundGood) {
  EXPECT_EQ(problems().size(), 11U);  // two of each kind, four dumps, the manifest
  EXPECT_EQ(write_folder(folder_, outputs())->written, 11U);
  EXPECT_THAT(problems(), IsEmpty());
  EXPECT_EQ(write_folder(folder_, outputs())->unchanged, 11U);
}

TEST_F(GoldenFolder, FollowsItsSources) {
  EXPECT_EQ(regenerate(), "");
  write(source_file_of(Kind::kMaps), source(Kind::kMaps, {"two", "three"}));
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("maps/one.json: has no source any more"),
                                      HasSubstr("maps/three.json: is missing")));
  const auto written = write_folder(folder_, outputs());
  ASSERT_TRUE(written) << written.error().text;
  EXPECT_EQ(written->removed, 1U);
  EXPECT_EQ(written->written, 2U);
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(GoldenFolder, IsNotOverwrittenWhereItWasEdited) {
  EXPECT_EQ(regenerate(), "");
  const std::string mine = text_of("thread-record/one.hex") + "mine\n";
  write("thread-record/one.hex", mine);
  write(source_file_of(Kind::kMaps), source(Kind::kMaps, {"one", "two", "three"}));
  EXPECT_THAT(regenerate(), HasSubstr("thread-record/one.hex: was edited by hand"));
  EXPECT_EQ(text_of("thread-record/one.hex"), mine);
  EXPECT_EQ(text_of("maps/three.json"), "(none)");
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("one.hex: was edited by hand"),
                                      HasSubstr("three.json: is missing")));
  fs::remove(folder_ / "thread-record/one.hex");
  EXPECT_EQ(regenerate(), "");
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(GoldenFolder, ToleratesAnEditThatIsWhatTheSourceSays) {
  EXPECT_EQ(regenerate(), "");
  write(source_file_of(Kind::kMaps), source(Kind::kMaps, {"one", "two", "three"}));
  write("maps/three.json", outputs().at("maps/three.json"));
  EXPECT_EQ(regenerate(), "");
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(GoldenFolder, SaysWhenAnEditedFileIsNoVector) {
  EXPECT_EQ(regenerate(), "");
  write("maps/one.json", "{}");
  EXPECT_THAT(problems(), ElementsAre(::testing::AllOf(HasSubstr("was edited by hand"),
                                                       HasSubstr("kind: is missing"))));
}

TEST_F(GoldenFolder, FindsStrays) {
  EXPECT_EQ(regenerate(), "");
  write("maps/stray.txt", "x");
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("stray.txt: was not made by")));
  EXPECT_THAT(regenerate(), HasSubstr("stray.txt: was not made by"));
  fs::remove(folder_ / "maps/stray.txt");
  fs::create_directory(folder_ / "maps/folder");
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("folder: is not a regular file")));
  fs::remove(folder_ / "maps/folder");
  write("src/more.json", "{}");
  EXPECT_THAT(encode_sources(folder_).error(), HasSubstr("more.json: is not a known source"));
}

TEST_F(GoldenFolder, DistrustsAManifestThatWasEdited) {
  EXPECT_EQ(regenerate(), "");
  const std::string good = text_of("manifest.json");
  for (const std::string& bad : {std::string("{}"), good + " ", good.substr(5),
                                 std::string(R"({"format": 2, "files": {}})")}) {
    write("manifest.json", bad);
    EXPECT_THAT(problems(), ::testing::Contains(HasSubstr("manifest.json: "))) << bad;
    EXPECT_THAT(regenerate(), HasSubstr("manifest.json: ")) << bad;
    EXPECT_EQ(text_of("manifest.json"), bad);
  }
  // One that matches an edited file, as somebody might make it.
  const std::string edited = text_of("maps/one.json") + "\n";
  write("maps/one.json", edited);
  fs::remove(folder_ / "manifest.json");
  EXPECT_THAT(regenerate(), HasSubstr("without manifest.json"));
  fs::remove(folder_ / "maps/one.json");
  EXPECT_EQ(regenerate(), "");
  EXPECT_EQ(text_of("manifest.json"), good);
}

TEST_F(GoldenFolder, IsFinishedAfterAnInterruption) {
  for (const char* left : {"maps/one.json.ctxconf-tmp", "manifest.json.ctxconf-tmp"}) {
    EXPECT_EQ(regenerate(), "");
    write(left, "half a tex");
    EXPECT_THAT(problems(), ElementsAre(HasSubstr(std::string(left) + ": is in the way of")));
    EXPECT_EQ(regenerate(), "");
    EXPECT_FALSE(fs::exists(folder_ / left));
    EXPECT_THAT(problems(), IsEmpty());
  }
}

TEST_F(GoldenFolder, WritesThroughNoLink) {
  for (const char* left : {"maps/one.json.ctxconf-tmp", "manifest.json.ctxconf-tmp"}) {
    EXPECT_EQ(regenerate(), "");
    fs::remove(folder_ / "maps/one.json");
    fs::remove(folder_ / "manifest.json");
    const fs::path target = folder_ / "src/target";
    fs::create_symlink(target, folder_ / left);
    EXPECT_EQ(regenerate(), "");
    EXPECT_FALSE(fs::exists(target)) << left;
    EXPECT_FALSE(fs::is_symlink(fs::symlink_status(folder_ / left))) << left;
  }
  // One that appears later, as one does here that is in no folder of vectors.
  Outputs more = outputs();
  more["a"] = "x";
  const fs::path target = folder_ / "src/target";
  fs::create_symlink(target, folder_ / "a.ctxconf-tmp");
  const auto problem = write_folder(folder_, more).error();
  EXPECT_THAT(problem.text,
              ::testing::AllOf(HasSubstr("a.ctxconf-tmp: cannot be written: File exists"),
                               EndsWith("\nnothing was written")));
  EXPECT_TRUE(problem.unwritten);
  EXPECT_FALSE(fs::exists(target));
  EXPECT_TRUE(fs::is_symlink(fs::symlink_status(folder_ / "a.ctxconf-tmp")));
}

TEST_F(GoldenFolder, KeepsLeftoversWhereItRefuses) {
  EXPECT_EQ(regenerate(), "");
  write("maps/one.json", "{}");
  write("maps/two.json.ctxconf-tmp", "");
  EXPECT_THAT(regenerate(), ::testing::AllOf(HasSubstr("maps/one.json: was edited by hand"),
                                             EndsWith("\nnothing was written")));
  EXPECT_TRUE(fs::exists(folder_ / "maps/two.json.ctxconf-tmp"));
}

// A file cannot replace the folder src or a folder "a"; renames go by name.
TEST_F(GoldenFolder, SaysWhatWasDoneBeforeAFailure) {
  Outputs broken = outputs();
  fs::create_directory(folder_ / "a");
  broken["a"] = "x";
  auto problem = write_folder(folder_, broken).error();
  EXPECT_THAT(problem.text, ::testing::AllOf(HasSubstr("/a: "), EndsWith("\nnothing was written")));
  EXPECT_TRUE(problem.unwritten);
  EXPECT_FALSE(fs::exists(folder_ / "maps"));
  EXPECT_FALSE(fs::exists(folder_ / "a.ctxconf-tmp"));

  broken = outputs();
  broken["src"] = "x";
  problem = write_folder(folder_, broken).error();
  EXPECT_TRUE(problem.unwritten);
  EXPECT_THAT(problem.text, ::testing::AllOf(HasSubstr("/src: "), HasSubstr("6 files were written"),
                                             HasSubstr("run `ctxconf golden regenerate`"),
                                             Not(HasSubstr("nothing was written"))));
  EXPECT_EQ(regenerate(), "");
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(GoldenFolder, NeedsAllSources) {
  fs::remove(folder_ / source_file_of(Kind::kThreadRecord));
  EXPECT_THAT(encode_sources(folder_).error(), HasSubstr("thread-records.json"));
}

}  // namespace
}  // namespace ctxconf::golden
