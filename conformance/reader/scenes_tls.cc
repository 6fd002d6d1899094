// Where the variable is: in the program or in libraries, under each access model.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <string>
#include <utility>

#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"
#include "sys/native_arch.h"
#include "sys/processor.h"

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

constexpr const char* kOwnThread = "tctx.reader.own-thread-pointer";
constexpr bool kHasGeneralDynamic = CTXCONF_GENERAL_DYNAMIC != 0;
constexpr const char* kLibrary = "slot_tlsdesc.so";  // which static TLS has room for

void ask_for(SceneBuilder& s, const Attached& a, const Record& r, const char* requirement,
             const std::string& otherwise) {
  s.ask(about_thread(a, {claim(requirement, {accept(ids_content(r))}, otherwise)}));
}

// Another thread than the first one, whose record is `firsts`: a reader that takes the thread
// pointer of the first one breaks another requirement.
void ask_for_other(SceneBuilder& s, const Attached& a, const Record& r, const Record& firsts,
                   const char* requirement, const std::string& otherwise) {
  auto own = not_used();
  own.push_back(accept(ids_content(r)));
  s.ask(about_thread(
      a, {claim(requirement, {accept(ids_content(r)), accept(ids_content(firsts))}, otherwise),
          claim(kOwnThread, std::move(own), "a thread is not given its own record")}));
}

Attached attach_with(puppet::Builder& b, const Value& thread, const Record& r,
                     const Value& library) {
  b.by(thread);
  Attached out = attach(b, r.encoded(), InPage::kAtTheBeginning, library);
  out.thread = thread;
  b.by_first();
  return out;
}

// The first thread, one that was there before, and one that comes after the library was loaded.
Scene in_library(const std::string& name, const std::string& about, const char* requirement,
                 const char* preload, const char* loaded) {
  SceneBuilder s("tls-" + name, about, Program::kLibc);
  const std::string file = preload != nullptr ? preload : loaded;
  s.needs_host(file);
  if (requirement == kGeneralDynamic) s.needs_host("general-dynamic");
  auto& b = s.script();
  if (preload != nullptr) b.preload(preload);
  publish(b, reference_data({}).encoded());
  const Value early = b.thread();
  const Value library = loaded == nullptr ? Value(0) : b.load_library(loaded);
  const Value late = b.thread();
  const std::string otherwise = "the variable is not found: " + about;
  const Record records[] = {numbered_record(0), numbered_record(1), numbered_record(2)};
  const Attached first = attach(b, records[0].encoded(), InPage::kAtTheBeginning, library);
  const Attached earlier = attach_with(b, early, records[1], library);
  const Attached later = attach_with(b, late, records[2], library);
  ask_for(s, first, records[0], requirement, otherwise);
  ask_for_other(s, earlier, records[1], records[0], requirement, otherwise);
  ask_for_other(s, later, records[2], records[0], requirement, otherwise);
  return std::move(s).scene();
}

Scene in_program(const std::string& name, const std::string& about, Program program) {
  SceneBuilder s("tls-" + name, about, program);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  const std::string otherwise = "the variable is not found: " + about;
  const Record records[] = {numbered_record(0), numbered_record(1)};
  const Attached first = attach(b, records[0].encoded());
  const Attached other = attach_with(b, b.thread(), records[1], 0);
  ask_for(s, first, records[0], kLocalExec, otherwise);
  ask_for_other(s, other, records[1], records[0], kLocalExec, otherwise);
  return std::move(s).scene();
}

// A process with a context that loads libraries, if the reader finds the variable in an ordinary
// one.
SceneBuilder begin_loading(std::string name, std::string about, const char* library = kLibrary,
                           const char* requirement = kTlsdesc) {
  SceneBuilder s(std::move(name), std::move(about), Program::kLibc);
  require_plain_child(
      s, {.message = reference_data({}), .library = library, .requirement = requirement});
  publish(s.script(), reference_data({}).encoded());
  return s;
}

Attached attach_to(SceneBuilder& s, const Value& library) {
  return attach(s.script(), numbered_record(0).encoded(), InPage::kAtTheBeginning, library);
}

Scene copied_library(const std::string& name, const std::string& about, LoadCopy copy,
                     const std::string& to) {
  SceneBuilder s = begin_loading("library-" + name, about);
  const Value library = s.script().load_library(kLibrary, copy, to);
  ask_for(s, attach_to(s, library), numbered_record(0), kAllModules,
          "the variable is not found in " + about);
  return std::move(s).scene();
}

// A new mount namespace with an empty file system at `folder`.
void hide(puppet::Builder& b, const std::string& folder) {
  constexpr std::uint64_t kPrivateRecursive = 0x44000;
  b.unshare(CLONE_NEWNS);
  const Value texts = b.map_anonymous(kPage, kReadWrite, MAP_PRIVATE);
  b.write(texts, puppet::bytes_of(std::string("/") + '\0'));
  b.write(texts + 16, puppet::bytes_of(std::string("tmpfs") + '\0'));
  b.write(texts + 32, puppet::bytes_of(folder + '\0'));
  b.syscall(SYS_mount, {0, texts, 0, kPrivateRecursive, 0});
  b.syscall(SYS_mount, {texts + 16, texts + 32, texts + 16, 0, 0});
}

// Files that the reader sees only through the target's root, and that go with it.
Scene in_mount_namespace(const std::string& name, const std::string& about,
                         const std::string& file) {
  SceneBuilder s = begin_loading("library-" + name, about);
  s.needs_host("root");
  auto& b = s.script();
  hide(b, "/mnt");
  const Value library = b.load_library(kLibrary, LoadCopy::kFile, "/mnt/" + file);
  ask_for(s, attach_to(s, library), numbered_record(0), kAllModules,
          "the variable is not found in " + about);
  return std::move(s).scene();
}

// As an upgrade of a package does. The new file has the variable at another place.
Scene replaced_library() {
  SceneBuilder s = begin_loading(
      "library-replaced", "a library whose file was removed and replaced by one that differs");
  s.needs_host("root");
  auto& b = s.script();
  hide(b, "/mnt");
  const std::string path = "/mnt/slot.so";
  const Value library = b.load_library(kLibrary, LoadCopy::kFile, path);
  const Value text = b.map_anonymous(kPage, kReadWrite, MAP_PRIVATE);
  b.write(text, puppet::bytes_of(path + '\0'));
  b.syscall(SYS_unlinkat, {static_cast<std::uint64_t>(AT_FDCWD), text, 0});
  // Loaded by another process, which goes on without it.
  const Value child = b.fork();
  b.by(child);
  b.load_library("slot_tlsdesc_large.so", LoadCopy::kFile, path);
  b.by_first();
  ask_for(s, attach_to(s, library), numbered_record(0), kAllModules,
          "the variable is looked for in a file that has taken the name of the library's");
  return std::move(s).scene();
}

Scene many_libraries() {
  SceneBuilder s = begin_loading("three-hundred-libraries",
                                 "the variable in the last of three hundred libraries");
  s.rests_on(Premise::kManyMappings);
  auto& b = s.script();
  for (int i = 0; i < 300; ++i) {
    b.load_library("slot_hidden_general_dynamic.so", LoadCopy::kMemfd,
                   "library-" + std::to_string(i));
  }
  const Value library = b.load_library(kLibrary);
  ask_for(s, attach_to(s, library), numbered_record(0), kAllModules,
          "the variable is not found among many libraries");
  return std::move(s).scene();
}

// The loader puts what comes later at a lower address, and at the end of its list.
Scene other_symbols(bool before) {
  SceneBuilder s = begin_loading(
      before ? "symbols-before-the-variable" : "symbols-after-the-variable",
      std::string("a library that refers to the variable, and one with an ordinary object of that "
                  "name, are loaded ") +
          (before ? "before" : "after") + " the one that defines it");
  auto& b = s.script();
  const auto load_others = [&] {
    b.load_library("slot_undefined.so");
    b.load_library("slot_ordinary.so");
  };
  if (before) load_others();
  const Value library = b.load_library(kLibrary);
  if (!before) load_others();
  ask_for(s, attach_to(s, library), numbered_record(0), "tctx.reader.only-tls-definitions",
          "another symbol of that name hides the variable");
  return std::move(s).scene();
}

Scene two_definitions(bool first) {
  SceneBuilder s(first ? "two-definitions-the-first-is-set" : "two-definitions-the-second-is-set",
                 "two libraries define the variable: one is null, the other has a record",
                 Program::kLibc);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  const Value one = b.load_library(kLibrary);
  const Value other = b.load_library("slot_general_dynamic.so");
  const Attached a = attach_to(s, first ? one : other);
  auto either = no_context();
  either.push_back(accept(ids_content(numbered_record(0))));
  s.ask(about_thread(a,
                     {claim("tctx.reader.several-definitions", either,
                            "another record is reported where the variable has two definitions")}));
  return std::move(s).scene();
}

// Gives the thread a dynamic thread vector with room for 16 modules, as one has that began before
// other libraries were loaded. What follows looks like entries, which lead to a record.
void shorten_vector(puppet::Builder& b, const Value& thread, const Record& decoy) {
  constexpr std::uint64_t kEntry = 16;
  constexpr std::uint64_t kLength = 16;
  constexpr std::uint64_t kBlock = 256 << 10U;  // more than the block of any of the libraries
  b.by(thread);
  const Value vector_at = b.thread_pointer() + sys::processor_of_elf(sys::kNativeMachine).vector_at;
  b.by_first();
  const Value before = b.load(vector_at, 8);
  const Value block = b.map_anonymous(kBlock, kReadWrite, MAP_PRIVATE);
  b.store(block, 8, place(b, decoy.encoded()));
  b.copy(block + 8, block, kBlock - 8);  // repeats it
  // The length is before the first entry, which has the generation.
  const Value vector = b.map_anonymous(kPage, kReadWrite, MAP_PRIVATE) + kEntry;
  b.copy(vector - kEntry, before - kEntry, (kLength + 2) * kEntry);
  b.store(vector - kEntry, 8, kLength);
  b.store(vector + (kLength + 1) * kEntry, 8, block);
  b.copy(vector + (kLength + 2) * kEntry, vector + (kLength + 1) * kEntry, 200 * kEntry);
  b.store(vector_at, 8, vector);
}

Scene unallocated(const std::string& name, const std::string& about, const char* requirement,
                  const char* file, int others) {
  constexpr const char* kUnallocated = "tctx.reader.unallocated-block";
  SceneBuilder s = begin_loading("block-not-allocated-" + name, about, file, requirement);
  if (requirement == kGeneralDynamic) s.needs_host("general-dynamic");
  auto& b = s.script();
  const Value early = b.thread();
  for (int i = 0; i < others; ++i) {
    b.load_library("slot_hidden_general_dynamic.so", LoadCopy::kMemfd,
                   "library-" + std::to_string(i));
  }
  const Value library = b.load_library(file);
  const Value late = b.thread();
  const Record firsts = numbered_record(0);
  const Attached a = attach_to(s, library);
  if (others > 0) shorten_vector(b, early, numbered_record(1));
  for (const Value& thread : {early, late}) {
    Question q;
    q.about = Question::About::kThread;
    q.thread = thread;
    auto none = no_context();
    none.push_back(accept(ids_content(firsts)));
    AnswerClaim own = claim(kOwnThread, {}, "a thread is given the record of another one");
    own.never = {firsts.trace_id};
    q.claims = {
        claim(kUnallocated, std::move(none), "a record is made of a block that does not exist"),
        own};
    s.ask(std::move(q));
  }
  ask_for(s, a, firsts, kUnallocated,
          "the record of a thread is missing because another has no block");
  return std::move(s).scene();
}

// A reader may look for libraries when the context is updated, as an SDK does that was loaded late.
Scene late_library() {
  SceneBuilder s("late-library", "the library is loaded after the reader has looked at the process",
                 Program::kLibc);
  s.rests_on(Premise::kUpdate);
  auto& b = s.script();
  require_plain_child(
      s, {.message = reference_data({}), .library = kLibrary, .requirement = kTlsdesc});
  const Published p = publish(b, reference_data({}).encoded());
  Question before;
  before.about = Question::About::kThread;
  s.ask(std::move(before));
  const Value library = b.load_library(kLibrary);
  const Attached a = attach_to(s, library);
  const puppet::Bytes message = reference_data({"http_route"}).encoded();
  update(b, p, place(b, message), message.size());
  Question q = about_thread(
      a, {claim("tctx.reader.late-libraries", {accept(ids_content(numbered_record(0)))},
                "a library that was loaded late is not seen")});
  q.attempts = kAttempts;
  s.ask(std::move(q));
  return std::move(s).scene();
}

Scene unloaded_library() {
  SceneBuilder s("library-unloaded", "a library is unloaded, and another one loaded",
                 Program::kLibc);
  s.rests_on(Premise::kUpdate);
  auto& b = s.script();
  const Published p = publish(b, reference_data({}).encoded());
  const Value first = b.load_library(kLibrary);
  const Attached a = attach_to(s, first);
  Question q = about_thread(a, {});
  q.premise = claim(kTlsdesc, {accept(ids_content(numbered_record(0)))},
                    "the reader does not find the variable in a library that was loaded");
  s.ask(std::move(q));
  b.slot(0, puppet::StoreOrder::kRelease, first);
  b.unload_library(first);
  const Value second = b.load_library("slot_sysv_hash.so");
  const Record r = numbered_record(1);
  const Attached later = attach(b, r.encoded(), InPage::kAtTheBeginning, second);
  const puppet::Bytes message = reference_data({"http_route"}).encoded();
  update(b, p, place(b, message), message.size());
  s.ask(about_thread(later, {claim("tctx.reader.late-libraries", {accept(ids_content(r))},
                                   "the variable is looked for in a library that is gone")}));
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
  all.push_back(in_library("tlsdesc-bound", "TLSDESC, in a library that binds its own symbols",
                           kTlsdesc, nullptr, "slot_symbolic.so"));
  all.push_back(in_library("general-dynamic-bound",
                           "General Dynamic, in a library that binds its own symbols",
                           kGeneralDynamic, nullptr, "slot_symbolic_general_dynamic.so"));
  all.push_back(in_program("local-exec-freestanding",
                           "local-exec, in a program without a C library", Program::kSlot));
  all.push_back(in_program("local-exec-pie", "local-exec, in a position-independent program",
                           Program::kLibcSlot));
  all.push_back(in_program("local-exec-no-pie", "local-exec, in a program at a fixed address",
                           Program::kLibcNoPie));
  all.push_back(in_program("local-exec-static-pie",
                           "local-exec, in a static position-independent program",
                           Program::kLibcStaticPie));
  all.push_back(in_program("local-exec-aligned-64",
                           "local-exec, in a program whose block is aligned to 64 bytes",
                           Program::kLibcAligned64));
  all.push_back(in_program("local-exec-aligned",
                           "local-exec, in a program whose block is aligned to a page",
                           Program::kLibcAligned));
  all.push_back(copied_library("memfd", "a library in a memfd", LoadCopy::kMemfd, "slot.so"));
  all.push_back(copied_library("memfd-unusual-name", "a memfd whose name is not that of a library",
                               LoadCopy::kMemfd, "not a library \xc3\xbc"));
  all.push_back(
      copied_library("removed", "a library whose file was removed", LoadCopy::kRemoved, "/tmp"));
  all.push_back(in_mount_namespace("in-a-mount-namespace",
                                   "a file that only the target's mount namespace has", "slot.so"));
  all.push_back(in_mount_namespace(
      "unusual-name", "a file whose name has spaces, a letter that is not ASCII, and no .so",
      "plug in \xc3\xbc.bin 1"));
  all.push_back(replaced_library());
  all.push_back(many_libraries());
  all.push_back(other_symbols(true));
  all.push_back(other_symbols(false));
  all.push_back(two_definitions(true));
  all.push_back(two_definitions(false));
  all.push_back(unallocated("general-dynamic",
                            "threads that never used the variable of a library under General "
                            "Dynamic that was loaded late",
                            kGeneralDynamic, "slot_general_dynamic_large.so", 0));
  all.push_back(unallocated("tlsdesc",
                            "threads that never used the variable of a library under TLSDESC that "
                            "was loaded late",
                            kTlsdesc, "slot_tlsdesc_large.so", 0));
  all.push_back(unallocated(
      "short-vector", "the same, where the vector of a thread is too short for the library",
      kHasGeneralDynamic ? kGeneralDynamic : kTlsdesc,
      kHasGeneralDynamic ? "slot_general_dynamic_large.so" : "slot_tlsdesc_large.so", 40));
  all.push_back(late_library());
  all.push_back(unloaded_library());
  return out;
}

}  // namespace ctxconf::conformance::reader
