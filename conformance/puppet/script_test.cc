#include "conformance/puppet/script.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <signal.h>
#include <sys/mman.h>

#include <sstream>
#include <string>

namespace ctxconf::conformance::puppet {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr std::string_view kFirst = "{\"ctxconf-script\":1,\"program\":\"slot\"}\n";

std::expected<Script, ScriptProblem> read(std::string_view lines) {
  return script_from_json(std::string(kFirst) + std::string(lines));
}

std::string problem(std::string_view lines) {
  const auto script = read(lines);
  if (script) return "none";
  return std::to_string(script.error().line) + ": " + script.error().text;
}

// One of each operation, with every member.
Script everything() {
  Builder b(Program::kLibc);
  b.preload("slot_tlsdesc.so");
  b.preload("/opt/other.so");
  const Value fd = b.memfd("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING | 8U);
  b.truncate(fd, 4096);
  b.seal(fd, F_SEAL_GROW | F_SEAL_SHRINK);
  const Value header = b.as("header").map_file(fd, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  b.note("the descriptor is not needed any more").close(fd);
  b.map({.size = 8192,
         .prot = PROT_READ,
         .flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE | 0x80000000U,
         .fd = {},
         .offset = 4096,
         .at = header + 65536});
  const Value other = b.may_fail().secret(O_CLOEXEC);
  b.unless_set(other).open("/tmp", O_RDWR | O_TMPFILE, 0644);
  b.if_set(other).close(other);
  b.advise(header, 4096, MADV_DONTFORK);
  b.advise(header, 4096, 4711);
  b.protect(header, Value::of("page"), PROT_NONE);
  const Value moved = b.remap(header, 4096, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, header + 4096);
  b.name(moved, 8192, "OTEL_CTX");
  b.name(moved, 8192, std::nullopt);
  const Value held = b.withhold(moved, 4096);
  b.give(held, moved, 4096);
  b.store(header + 8, 4, 2);
  b.store(header + 16, 8, b.clock(1), StoreOrder::kSeqCst);
  b.store_bytes(header, bytes_of("OTEL_CTX12345678"));
  b.write(header, bytes_of("OTEL"), CopyHow::kRepBytes);
  b.fill(header, 64, bytes_of("ab"), CopyHow::kVector);
  b.copy(header + 8, moved - 8, header - moved, CopyHow::kProcessVm);
  b.alternate(header, moved, moved + 32, 32, 1000, CopyHow::kVector);
  b.repeat(5, {header + 16, 8, 7, 1, header, 4, 0, 0});
  b.split(header, 8192);
  b.crowd({.count = 3, .records = moved, .stride = 64, .tids = header, .stacks = moved});
  b.fence(FenceKind::kMembarrier);
  b.load(header, 8);
  b.read_back(header, 32);
  b.sleep(1000);
  b.spin(10);
  b.await(header, 4, -1);
  const Value thread = b.thread(false);
  b.by(thread).handle(SIGUSR1, SignalAction::kServe);
  b.mask(SIGUSR1, false);
  b.slot(header, StoreOrder::kRelease);
  b.store(b.slot_address(), 8, 0);
  b.load(b.thread_pointer(), 8);
  const Value library = b.load_library("slot_tlsdesc.so", LoadCopy::kMemfd, "a \xc3\xbc");
  b.slot(header, StoreOrder::kPlain, library);
  b.slot_address(library);
  b.unload_library(library);
  b.by_first().signal(SIGUSR1, thread);
  b.by(thread).return_from_handler();
  b.later().sleep(5);
  b.join();
  b.exit_thread();
  b.by_first();
  const Value child = b.fork(ForkHow::kClone, 0x80);
  b.by(child).exec("/bin/true", {"-v", "\x01\xff"});
  b.exec("slot");
  b.unshare(0x20000000);
  b.exit(3);
  b.by_first().wait(child);
  b.signal(SIGTERM, child, /*process=*/true);
  b.unmap(header, 4096);
  b.print("text\n");
  b.syscall(39, {1, header, -2});
  b.look();
  return std::move(b).script();
}

TEST(ScriptTest, EveryOperationIsTheSameAfterItsLine) {
  const Script script = everything();
  std::set<std::string_view> seen;
  for (const auto& o : script.operations) seen.insert(o.name());
  EXPECT_THAT(seen, SizeIs(std::variant_size_v<What>));
  const std::string text = to_json(script);
  const auto again = script_from_json(text);
  ASSERT_TRUE(again) << again.error().line << ": " << again.error().text << "\n" << text;
  for (std::size_t i = 0; i < script.operations.size(); ++i) {
    EXPECT_EQ(again->operations[i], script.operations[i]) << to_json(script.operations[i]);
  }
  EXPECT_EQ(*again, script);
  EXPECT_EQ(to_json(*again), text);
}

TEST(ScriptTest, LinesAreAsAPersonWritesThem) {
  Builder b;
  const Value fd = b.as("fd").memfd("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const Value header = b.as("header").map_file(fd, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  const Value now = b.as("now").clock();
  b.store(header + 16, 8, now);
  b.name(header, 4096, std::nullopt);
  EXPECT_EQ(to_json(b.script()),
            "{\"ctxconf-script\":1,\"program\":\"plain\"}\n"
            R"({"op":"memfd","name":"OTEL_CTX","flags":["CLOEXEC","ALLOW_SEALING"],"as":"fd"})"
            "\n"
            R"({"op":"map","size":4096,"prot":"rw","flags":["PRIVATE"],"fd":"$fd","as":"header"})"
            "\n"
            R"({"op":"clock","clock":"BOOTTIME","as":"now"})"
            "\n"
            R"({"op":"store","at":"$header+16","width":8,"value":"$now"})"
            "\n"
            R"({"op":"name","at":"$header","size":4096,"name":null})"
            "\n");
}

TEST(ScriptTest, ValuesAreSums) {
  EXPECT_EQ(to_string(Value::of("a") + 16 - Value::of("b")), "$a-$b+16");
  EXPECT_EQ(to_string(Value::of("a") - 8), "$a-8");
  EXPECT_EQ(value_from("$a-$b+0x10"), Value::of("a") - Value::of("b") + 16);
  EXPECT_EQ(value_from("-1"), Value(-1));
  EXPECT_EQ(value_from("18446744073709551615"), Value(UINT64_MAX));
  for (const char* bad : {"", "$", "a", "+1", "1+", "$a++1", "$a 1", "0x", "1$a", "$a*2",
                          "18446744073709551616", "$a+$a+$a+$a+$a+$a+$a+$a+$a"}) {
    EXPECT_EQ(value_from(bad), std::nullopt) << bad;
  }
}

TEST(ScriptTest, NumbersMayBeHexTextsAndNegative) {
  const auto script =
      read(R"({"op":"map","size":"0x1000","prot":3,"flags":["PRIVATE","0x20"],"as":"m"}
# what a person says to others

{"op":"store","at":"$m","width":4,"value":-1}
)");
  ASSERT_TRUE(script) << script.error().text;
  const auto& map = std::get<Map>(script->operations[0].what);
  EXPECT_EQ(map.size, Value(4096));
  EXPECT_EQ(map.prot, std::uint64_t{PROT_READ | PROT_WRITE});
  EXPECT_EQ(map.flags, std::uint64_t{MAP_PRIVATE | MAP_ANONYMOUS});
  EXPECT_EQ(std::get<Store>(script->operations[1].what).value, Value(-1));
}

TEST(ScriptTest, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_EQ(problem(R"({"op":"fly"})"), "2: there is no operation \"fly\"");
  EXPECT_EQ(problem("\n# a comment\n{\"op\":\"close\"}"), "4: close: \"fd\" is missing");
  EXPECT_EQ(problem(R"({"op":"close","fd":3,"df":4})"),
            "2: close: the operation has no member \"df\"");
  EXPECT_EQ(problem(R"({"op":"close","fd":"$fd"})"),
            "2: close: no earlier operation has a result \"fd\"");
  EXPECT_EQ(problem(R"({"op":"close","fd":1.5})"), "2: close: \"fd\" is not an integer");
  EXPECT_THAT(problem(R"({"op":"close","fd":"three"})"), HasSubstr("neither a number nor like"));
  EXPECT_EQ(problem(R"({"op":"memfd","name":"a","flags":["CLOSE"]})"),
            "2: memfd: \"flags\" does not accept CLOSE");
  EXPECT_EQ(problem(R"({"op":"map","size":1,"prot":"rq"})"),
            "2: map: \"prot\" has a letter other than r, w and x");
  EXPECT_THAT(problem(R"({"op":"store","at":1,"width":3,"value":0})"),
              HasSubstr("not one of 1, 2, 4, 8, 16"));
  EXPECT_THAT(problem(R"({"op":"store","at":1,"width":4,"hex":"00"})"), HasSubstr("does not have"));
  EXPECT_THAT(problem(R"({"op":"store","at":1,"width":1,"hex":"0"})"), HasSubstr("odd number"));
  EXPECT_THAT(problem(R"({"op":"store","at":1,"width":1,"hex":"0x"})"), HasSubstr("hex digits"));
  EXPECT_THAT(problem(R"({"op":"look","on":"t1"})"), HasSubstr("made a thread \"t1\""));
  EXPECT_THAT(problem(R"({"op":"look","in":"c1"})"), HasSubstr("made a child \"c1\""));
  EXPECT_THAT(problem(R"({"op":"thread"})"), HasSubstr("it needs a name"));
  EXPECT_THAT(problem("{\"op\":\"thread\",\"as\":\"t\"}\n{\"op\":\"fork\",\"as\":\"t\"}"),
              HasSubstr("3: fork: \"as\": another thread or child"));
  EXPECT_THAT(problem(R"({"op":"clock","clock":"BOOTTIME","as":"a-b"})"), HasSubstr("a name has"));
  EXPECT_THAT(problem(R"({"op":"exec","program":"ls"})"),
              HasSubstr("a path or one of plain, slot,"));
  EXPECT_THAT(problem(R"({"op":"load_library","path":"slot_tlsdesc.so","as":"l"})"),
              HasSubstr("only programs with a loader"));
  EXPECT_THAT(problem(R"({"op":"memfd","name":{"hex":"6100"}})"), HasSubstr("zero byte"));
  EXPECT_THAT(problem(R"({"op":"syscall","number":1,"args":[1,2,3,4,5,6,7]})"), HasSubstr("6"));
  EXPECT_EQ(problem("[]"), "2: the line is not a JSON object");
  EXPECT_EQ(problem("{\"op\":"), "2: the line is not a JSON object");
  EXPECT_EQ(problem(std::string(100'000, '[')), "2: the line is not a JSON object");
  EXPECT_EQ(problem("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
            "2: the line is not a JSON object");
}

TEST(ScriptTest, TheFirstLineSaysTheVersion) {
  const auto said = [](std::string_view text) {
    const auto script = script_from_json(text);
    return script ? std::string("none") : script.error().text;
  };
  EXPECT_THAT(said(""), HasSubstr("is empty"));
  EXPECT_THAT(said("{\"op\":\"look\"}"), HasSubstr("\"ctxconf-script\" is missing"));
  EXPECT_THAT(said("{\"ctxconf-script\":2}"), HasSubstr("is not 1"));
  EXPECT_THAT(said("{\"ctxconf-script\":1,\"program\":\"x\"}"),
              HasSubstr("not one of plain, slot"));
  EXPECT_EQ(said("{\"ctxconf-script\":1}"), "none");
  EXPECT_THAT(said("{\"ctxconf-script\":1}\n{\"op\":\"slot\",\"value\":0}"),
              HasSubstr("the program \"plain\" does not have this operation"));
  EXPECT_THAT(said("{\"ctxconf-script\":1,\"preload\":[\"slot_tlsdesc.so\"]}"),
              HasSubstr("only programs with a loader"));
  constexpr std::string_view kLibc = "{\"ctxconf-script\":1,\"program\":\"libc\"}\n";
  EXPECT_EQ(said(std::string(kLibc) + R"({"op":"load_library","path":"a.so","as":"l"})"), "none");
  EXPECT_THAT(
      said(std::string(kLibc) + R"({"op":"load_library","path":"a.so","copy":"memfd","as":"l"})"),
      HasSubstr("a copy needs \"to\""));
}

TEST(ScriptTest, EachProgramHasANameAndAFile) {
  std::set<std::string_view> files;
  for (const char* name : {"plain", "slot", "libc", "libc_slot", "libc_no_pie", "libc_aligned",
                           "libc_aligned_64", "libc_static_pie"}) {
    const auto program = program_named(name);
    ASSERT_TRUE(program) << name;
    files.insert(file_of(*program));
    Script script;
    script.program = *program;
    EXPECT_EQ(script_from_json(to_json(script))->program, *program);
  }
  EXPECT_THAT(files, SizeIs(8));
  EXPECT_EQ(program_named("libc-slot"), std::nullopt);
}

TEST(ScriptTest, ScriptsAreBounded) {
  std::string many(kFirst);
  for (std::size_t i = 0; i <= kMaxOperations; ++i) many += "{\"op\":\"look\"}\n";
  const auto script = script_from_json(many);
  ASSERT_FALSE(script);
  EXPECT_EQ(script.error().line, kMaxOperations + 2);
}

}  // namespace
}  // namespace ctxconf::conformance::puppet
