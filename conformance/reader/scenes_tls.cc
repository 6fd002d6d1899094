// Where the variable is: in the program or in libraries, under each access model.
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <string>
#include <utility>

#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::LoadCopy;
using puppet::Program;
using puppet::Value;

constexpr const char* kTlsdesc = "tctx.reader.model-tlsdesc";
constexpr const char* kGeneralDynamic = "tctx.reader.model-general-dynamic";
constexpr const char* kInitialExec = "tctx.reader.model-initial-exec";
constexpr const char* kLocalExec = "tctx.reader.model-local-exec";
constexpr const char* kAllModules = "tctx.reader.all-modules";

Record numbered(unsigned number) {
  Record out;
  out.trace_id.replace(28, 4, std::to_string(2'000 + number));
  return out;
}

void ask_for(SceneBuilder& s, const Attached& a, const Record& r, const char* requirement,
             const std::string& otherwise, unsigned attempts = 1) {
  Question q = about_thread(a, {claim(requirement, {accept(record_content(r, {}))}, otherwise)});
  q.attempts = attempts;
  s.ask(std::move(q));
}

// The first thread, one that was there before, and one that comes after the library was loaded.
Scene in_library(const std::string& name, const std::string& about, const char* requirement,
                 const char* preload, const char* loaded) {
  SceneBuilder s("tls-" + name, about, Program::kLibc);
  auto& b = s.script();
  if (preload != nullptr) b.preload(preload);
  publish(b, reference_data({}).encoded());
  const Value early = b.thread();
  const Value library = loaded == nullptr ? Value(0) : b.load_library(loaded);
  const Value late = b.thread();
  const std::string otherwise = "the variable is not found: " + about;
  const Attached first = attach(b, numbered(0).encoded(), InPage::kAtTheBeginning, library);
  b.by(early);
  Attached earlier = attach(b, numbered(1).encoded(), InPage::kAtTheBeginning, library);
  earlier.thread = early;
  b.by(late);
  Attached later = attach(b, numbered(2).encoded(), InPage::kAtTheBeginning, library);
  later.thread = late;
  b.by_first();
  ask_for(s, first, numbered(0), requirement, otherwise);
  ask_for(s, earlier, numbered(1), requirement, otherwise);
  ask_for(s, later, numbered(2), requirement, otherwise);
  return std::move(s).scene();
}

Scene in_program(const std::string& name, const std::string& about, Program program) {
  SceneBuilder s("tls-" + name, about, program);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  const std::string otherwise = "the variable is not found: " + about;
  const Attached first = attach(b, numbered(0).encoded());
  const Value thread = b.thread();
  b.by(thread);
  Attached other = attach(b, numbered(1).encoded());
  other.thread = thread;
  b.by_first();
  ask_for(s, first, numbered(0), kLocalExec, otherwise);
  ask_for(s, other, numbered(1), kLocalExec, otherwise);
  return std::move(s).scene();
}

Scene copied_library(const std::string& name, const std::string& about, LoadCopy copy,
                     const std::string& to) {
  SceneBuilder s("library-" + name, about, Program::kLibc);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  const Value library = b.load_library("slot_general_dynamic.so", copy, to);
  const Attached a = attach(b, numbered(0).encoded(), InPage::kAtTheBeginning, library);
  ask_for(s, a, numbered(0), kAllModules, "the variable is not found in " + about);
  return std::move(s).scene();
}

// A file that the reader sees only through the target's root.
Scene in_mount_namespace() {
  SceneBuilder s("library-in-a-mount-namespace",
                 "a library that only the target's mount namespace has", Program::kLibc);
  s.needs_host("root");
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  b.unshare(CLONE_NEWNS);
  const Value texts = b.map_anonymous(kPage, kReadWrite, MAP_PRIVATE);
  b.write(texts, puppet::bytes_of(std::string("/", 2)));
  b.write(texts + 16, puppet::bytes_of(std::string("tmpfs", 6)));
  b.write(texts + 32, puppet::bytes_of(std::string("/mnt", 5)));
  constexpr std::uint64_t kPrivateRecursive = 0x44000;
  b.syscall(SYS_mount, {0, texts, 0, kPrivateRecursive, 0});
  b.syscall(SYS_mount, {texts + 16, texts + 32, texts + 16, 0, 0});
  const Value library =
      b.load_library("slot_general_dynamic.so", LoadCopy::kFile, "/mnt/ctxconf_slot.so");
  const Attached a = attach(b, numbered(0).encoded(), InPage::kAtTheBeginning, library);
  ask_for(s, a, numbered(0), kAllModules,
          "the variable is not found in a file of another mount namespace");
  return std::move(s).scene();
}

Scene many_libraries() {
  SceneBuilder s("three-hundred-libraries", "the variable in the last of three hundred libraries",
                 Program::kLibc);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  for (int i = 0; i < 300; ++i) {
    b.load_library("slot_undefined.so", LoadCopy::kMemfd, "library-" + std::to_string(i));
  }
  const Value library = b.load_library("slot_general_dynamic.so");
  const Attached a = attach(b, numbered(0).encoded(), InPage::kAtTheBeginning, library);
  ask_for(s, a, numbered(0), kAllModules, "the variable is not found among many libraries");
  return std::move(s).scene();
}

Scene other_symbols() {
  SceneBuilder s("symbols-that-are-no-variable",
                 "a library that refers to the variable, one with an ordinary object of that name, "
                 "and one that defines it",
                 Program::kLibc);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  b.load_library("slot_undefined.so");
  b.load_library("slot_ordinary.so");
  const Value library = b.load_library("slot_general_dynamic.so");
  const Attached a = attach(b, numbered(0).encoded(), InPage::kAtTheBeginning, library);
  ask_for(s, a, numbered(0), "tctx.reader.only-tls-definitions",
          "another symbol of that name hides the variable");
  return std::move(s).scene();
}

Scene two_definitions() {
  SceneBuilder s("two-definitions",
                 "two libraries define the variable: one is null, the other has a record",
                 Program::kLibc);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  b.load_library("slot_tlsdesc.so");
  const Value second = b.load_library("slot_general_dynamic.so");
  const Attached a = attach(b, numbered(0).encoded(), InPage::kAtTheBeginning, second);
  auto either = no_context();
  either.push_back(accept(record_content(numbered(0), {})));
  s.ask(about_thread(
      a, {claim("tctx.reader.several-definitions", either, "two definitions mislead")}));
  return std::move(s).scene();
}

Scene unallocated() {
  constexpr const char* kUnallocated = "tctx.reader.unallocated-block";
  SceneBuilder s("block-not-allocated",
                 "threads that never used the variable of a library that was loaded late",
                 Program::kLibc);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  const Value early = b.thread();
  const Value library = b.load_library("slot_general_dynamic_large.so");
  const Value late = b.thread();
  const Attached a = attach(b, numbered(0).encoded(), InPage::kAtTheBeginning, library);
  for (const Value& thread : {early, late}) {
    Question q;
    q.about = Question::About::kThread;
    q.thread = thread;
    q.claims = {
        claim(kUnallocated, no_context(), "a record is made of a block that does not exist")};
    s.ask(std::move(q));
  }
  ask_for(s, a, numbered(0), kUnallocated,
          "a block that does not exist costs another thread its record");
  return std::move(s).scene();
}

Scene late_library() {
  SceneBuilder s("late-library", "the library is loaded after the reader has looked at the process",
                 Program::kLibc);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  Question before;
  before.about = Question::About::kThread;
  s.ask(std::move(before));
  const Value library = b.load_library("slot_general_dynamic.so");
  const Attached a = attach(b, numbered(0).encoded(), InPage::kAtTheBeginning, library);
  ask_for(s, a, numbered(0), "tctx.reader.late-libraries",
          "a library that was loaded late is not seen", kAttempts);
  return std::move(s).scene();
}

}  // namespace

SceneGroup tls_scenes() {
  SceneGroup out;
  out.name = "tls";
  auto& all = out.scenes;
  all.push_back(in_library("tlsdesc-at-start", "TLSDESC, in a library that is loaded at start",
                           kTlsdesc, "slot_tlsdesc.so", nullptr));
  all.push_back(in_library("tlsdesc-loaded", "TLSDESC, in a library that is loaded later", kTlsdesc,
                           nullptr, "slot_tlsdesc.so"));
  all.push_back(in_library(
      "tlsdesc-dynamic", "TLSDESC, in a library that is loaded later and too large for static TLS",
      kTlsdesc, nullptr, "slot_tlsdesc_large.so"));
  all.push_back(in_library("general-dynamic-at-start",
                           "General Dynamic, in a library that is loaded at start", kGeneralDynamic,
                           "slot_general_dynamic.so", nullptr));
  all.push_back(in_library("general-dynamic-loaded",
                           "General Dynamic, in a library that is loaded later", kGeneralDynamic,
                           nullptr, "slot_general_dynamic.so"));
  all.push_back(in_library("general-dynamic-large",
                           "General Dynamic, in a library with a large block", kGeneralDynamic,
                           nullptr, "slot_general_dynamic_large.so"));
  all.push_back(in_library("initial-exec", "initial-exec, in a library that is loaded at start",
                           kInitialExec, "slot_initial_exec.so", nullptr));
  all.push_back(in_program("local-exec-static-pie",
                           "local-exec, in a static position-independent program", Program::kSlot));
  all.push_back(in_program("local-exec-pie", "local-exec, in a position-independent program",
                           Program::kLibcSlot));
  all.push_back(in_program("local-exec-no-pie", "local-exec, in a program at a fixed address",
                           Program::kLibcNoPie));
  all.push_back(in_program("local-exec-aligned",
                           "local-exec, in a program whose block is aligned to a page",
                           Program::kLibcAligned));
  all.push_back(
      copied_library("memfd", "a library in a memfd", LoadCopy::kMemfd, "ctxconf library"));
  all.push_back(copied_library("unusual-name", "a file whose name has spaces and no .so",
                               LoadCopy::kMemfd, "not a library at all \xc3\xbc"));
  all.push_back(
      copied_library("removed", "a library whose file was removed", LoadCopy::kRemoved, "/tmp"));
  all.push_back(in_mount_namespace());
  all.push_back(many_libraries());
  all.push_back(other_symbols());
  all.push_back(two_definitions());
  all.push_back(unallocated());
  all.push_back(late_library());
  return out;
}

}  // namespace ctxconf::conformance::reader
