#include "conformance/faults/injection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <time.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

namespace ctxconf::conformance {
namespace {

using testing::HasSubstr;

InjectionSpec parsed(std::string_view text) {
  auto spec = parse_injection(text);
  EXPECT_TRUE(spec) << sys::to_string(spec.error());
  return spec.value_or(InjectionSpec{});
}

std::string complaint(std::string_view text) {
  const auto spec = parse_injection(text);
  EXPECT_FALSE(spec) << text;
  return spec ? "" : spec.error().detail;
}

TEST(ParseInjection, KnowsErrorsValuesAndCounts) {
  const auto plain = parsed("memfd_create:error=EPERM");
  EXPECT_EQ(plain.call, "memfd_create");
  EXPECT_EQ(plain.kind, InjectionSpec::Kind::kError);
  EXPECT_EQ(plain.value, EPERM);
  EXPECT_EQ(plain.first, 1U);
  EXPECT_EQ(plain.last, UINT64_MAX);
  EXPECT_EQ(to_injection(plain).result, -EPERM);

  const auto second = parsed("prctl(PR_SET_VMA):error=EINVAL:when=2");
  EXPECT_EQ(second.call, "prctl");
  EXPECT_EQ(second.first, 2U);
  EXPECT_EQ(second.last, 2U);
  const auto later = parsed("ftruncate:when=3+:error=EWOULDBLOCK");
  EXPECT_EQ(later.first, 3U);
  EXPECT_EQ(later.last, UINT64_MAX);
  EXPECT_EQ(later.value, EAGAIN);
  EXPECT_EQ(parsed("prctl:value=0").kind, InjectionSpec::Kind::kValue);
  EXPECT_TRUE(parsed("prctl:error=EPERM:when=update").updates);
  EXPECT_FALSE(later.updates);
}

TEST(ParseInjection, KnowsSelectors) {
  EXPECT_EQ(parsed("memfd_create(MFD_NOEXEC_SEAL):error=EINVAL").flags, 8U);
  EXPECT_EQ(parsed("memfd_create:error=EINVAL:flags=MFD_CLOEXEC|MFD_NOEXEC_SEAL").flags, 9U);
  EXPECT_TRUE(parsed("mmap(MAP_ANONYMOUS):error=ENOMEM").anonymous);
  EXPECT_FALSE(parsed("mmap:error=ENOMEM").anonymous);
  EXPECT_EQ(parsed("clock_gettime:value=0").clock, CLOCK_BOOTTIME);
  EXPECT_EQ(parsed("clock_gettime(CLOCK_REALTIME):value=back").clock, CLOCK_REALTIME);
  EXPECT_EQ(parsed("clock_gettime:value=frozen").kind, InjectionSpec::Kind::kFrozen);
  parsed("madvise(MADV_DONTFORK):error=EINVAL");
  parsed("mremap:error=ENOMEM");
}

TEST(ParseInjection, SaysWhatIsWrong) {
  EXPECT_EQ(complaint(""), "--inject \"\": it is empty, and names no call");
  EXPECT_THAT(complaint(":error=EPERM"), HasSubstr("cannot inject into call"));
  EXPECT_FALSE(std::string_view(kInjectionGrammar).contains('\n'));
  EXPECT_THAT(complaint("open:error=EPERM"), HasSubstr("cannot inject into call open"));
  EXPECT_THAT(complaint("memfd_create"), HasSubstr("does not say what the call returns"));
  EXPECT_THAT(complaint("memfd_create:"), HasSubstr("does not say what the call returns"));
  EXPECT_THAT(complaint("memfd_create:error=EPREM"), HasSubstr("unknown errno EPREM"));
  EXPECT_THAT(complaint("memfd_create:error=1"), HasSubstr("unknown errno 1"));
  EXPECT_THAT(complaint("memfd_create:error=EPERM:value=3"), HasSubstr("and only once"));
  EXPECT_THAT(complaint("memfd_create:error=EPERM:error=EIO"), HasSubstr("and only once"));
  EXPECT_THAT(complaint("memfd_create:error=EPERM:when=0"), HasSubstr("when=0 is not a count"));
  EXPECT_THAT(complaint("memfd_create:error=EPERM:when=+"), HasSubstr("not a count"));
  EXPECT_THAT(complaint("memfd_create:error=EPERM:when=-1"), HasSubstr("not a count"));
  EXPECT_THAT(complaint("memfd_create:error=EPERM:when=1:when=2"),
              HasSubstr("when= is given twice"));
  EXPECT_THAT(complaint("memfd_create:error=EPERM:"), HasSubstr("ends with a :"));
  EXPECT_THAT(complaint("memfd_create:error=EPERM:nth=1"), HasSubstr("nth is not one of"));
  EXPECT_THAT(complaint("memfd_create(:error=EPERM"), HasSubstr("no )"));
  EXPECT_THAT(complaint("memfd_create(8):error=EPERM"), HasSubstr("unknown flag 8"));
  EXPECT_THAT(complaint("memfd_create(MFD_EXEC):error=EPERM:flags=MFD_EXEC"), HasSubstr("twice"));
  EXPECT_THAT(complaint("prctl(PR_SET_NAME):error=EPERM"),
              HasSubstr("only into prctl(PR_SET_VMA)"));
  EXPECT_THAT(complaint("ftruncate(3):error=EPERM"), HasSubstr("takes no selector"));
  EXPECT_THAT(complaint("clock_gettime(7):value=0"), HasSubstr("unknown clock 7"));
  EXPECT_THAT(complaint("clock_gettime:value=-1"), HasSubstr("not a time"));
  EXPECT_THAT(complaint("clock_gettime:value=soon"), HasSubstr("not a time"));
  EXPECT_THAT(complaint("prctl:value=frozen"), HasSubstr("not a number"));
  EXPECT_THAT(complaint("prctl:value=-22"), HasSubstr("error=ERRNO"));
  EXPECT_THAT(complaint("prctl:value=99999999999999999999"), HasSubstr("not a number"));
}

class InjectorTest : public testing::Test {
 protected:
  void with(std::initializer_list<std::string_view> texts) {
    for (const auto text : texts) specs_.push_back(parsed(text));
    injector_.emplace(specs_);
  }
  static SystemCall call(std::string name, std::vector<std::uint64_t> args, std::string text = {},
                         std::int32_t tid = 7) {
    SystemCall c;
    c.tid = tid;
    c.name = std::move(name);
    std::ranges::copy(args, c.args.begin());
    (c.name == "memfd_create" || c.name == "prctl" ? c.text : c.file) = std::move(text);
    return c;
  }
  // The result of the call: injected, or `otherwise` from the kernel.
  std::int64_t result_of(const SystemCall& c, std::int64_t otherwise) {
    const auto answer = injector_->entered(c);
    const std::int64_t result = answer ? answer->result : otherwise;
    injector_->left(c.tid, result, std::nullopt);
    return result;
  }
  std::uint64_t time_of(std::uint64_t otherwise, std::uint64_t clock = CLOCK_BOOTTIME) {
    const auto answer = injector_->entered(call("clock_gettime", {clock, 0x1000}));
    const auto time = answer ? answer->clock_ns.value_or(0) : otherwise;
    injector_->left(7, 0, time);
    return time;
  }
  static SystemCall memfd(std::string name = "OTEL_CTX", std::uint64_t flags = 11) {
    return call("memfd_create", {0x1000, flags}, std::move(name));
  }
  static SystemCall anonymous(std::int32_t tid = 7) {
    return call("mmap", {0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX}, {}, tid);
  }
  static SystemCall advice(std::uint64_t at) { return call("madvise", {at, 4096, MADV_DONTFORK}); }

  std::vector<InjectionSpec> specs_;
  std::optional<Injector> injector_;
};

TEST_F(InjectorTest, MeansOnlyWhatConcernsAContext) {
  with({"memfd_create:error=EPERM", "ftruncate:error=EIO", "mmap:error=ENOMEM",
        "prctl:error=EINVAL"});
  EXPECT_EQ(result_of(memfd("wayland"), 3), 3);
  EXPECT_EQ(result_of(memfd("OTEL_CTX"), 3), -EPERM);
  EXPECT_EQ(result_of(memfd("OTEL_CTX-2"), 3), -EPERM);
  EXPECT_EQ(result_of(call("ftruncate", {3, 1}, "/memfd:wayland (deleted)"), 0), 0);
  EXPECT_EQ(result_of(call("ftruncate", {3, 1}, "/memfd:OTEL_CTX (deleted)"), 0), -EIO);
  EXPECT_EQ(result_of(call("mmap", {0, 4096, 3, 2, 3}, "/memfd:OTEL_CTX"), 1), -ENOMEM);
  EXPECT_EQ(result_of(anonymous(), 0x1000), 0x1000);
  EXPECT_EQ(result_of(call("prctl", {1, 0, 0x7000, 1}, "stack"), 0), 0);
  EXPECT_EQ(result_of(call("prctl", {1, 0, 0x7000, 1}, "OTEL_CTX"), 0), -EINVAL);
}

TEST_F(InjectorTest, CountsWhatMatches) {
  with({"memfd_create(MFD_NOEXEC_SEAL):error=EINVAL:when=2", "memfd_create:error=EPERM:when=4+"});
  EXPECT_EQ(result_of(memfd(), 3), 3);
  EXPECT_EQ(result_of(memfd("OTEL_CTX", 3), 3), 3);
  EXPECT_EQ(result_of(memfd(), 3), -EINVAL);
  EXPECT_EQ(result_of(memfd(), 3), -EPERM);
  EXPECT_EQ(result_of(memfd("OTEL_CTX", 3), 3), -EPERM);
}

TEST_F(InjectorTest, KnowsTheMemoryOfAContext) {
  with({"madvise:error=EINVAL", "mremap:error=ENOMEM"});
  EXPECT_EQ(result_of(anonymous(), 0x10000), 0x10000);
  EXPECT_EQ(result_of(advice(0x10000), 0), 0);
  result_of(call("mmap", {0, 4096, 3, 2, 3}, "/memfd:OTEL_CTX (deleted)"), 0x20000);
  EXPECT_EQ(result_of(advice(0x20000), 0), -EINVAL);
  EXPECT_EQ(result_of(advice(0x21000), 0), 0);
  EXPECT_EQ(result_of(call("mremap", {0x20000, 4096, 8192}), 0x20000), -ENOMEM);
}

TEST_F(InjectorTest, MemoryThatIsGoneIsNoContextsAnyMore) {
  with({"madvise:error=EINVAL"});
  const auto map_at = [&](std::int64_t at) {
    result_of(call("mmap", {0, 4096, 3, 2, 3}, "/memfd:OTEL_CTX (deleted)"), at);
  };
  map_at(0x20000);
  result_of(call("munmap", {0x20000, 4096}), -EINVAL);
  EXPECT_EQ(result_of(advice(0x20000), 0), -EINVAL) << "it was not unmapped";
  result_of(call("munmap", {0x30000, 4096}), 0);
  EXPECT_EQ(result_of(advice(0x20000), 0), -EINVAL) << "other memory was unmapped";
  result_of(call("munmap", {0x20000, 4096}), 0);
  EXPECT_EQ(result_of(advice(0x20000), 0), 0);

  map_at(0x20000);
  result_of(call("mremap", {0x20000, 4096, 8192}), 0x40000);
  EXPECT_EQ(result_of(advice(0x20000), 0), 0) << "it was moved away";
  EXPECT_EQ(result_of(advice(0x41000), 0), -EINVAL);
  result_of(call("mremap", {0x40000, 8192, 4096}), 0x40000);
  EXPECT_EQ(result_of(advice(0x40000), 0), -EINVAL);
  EXPECT_EQ(result_of(advice(0x41000), 0), 0);
}

TEST_F(InjectorTest, AnonymousMemoryIsAContextsAfterARefusedMemfd) {
  with({"memfd_create:error=EPERM:when=1", "madvise:error=EINVAL"});
  result_of(memfd(), 3);
  result_of(anonymous(8), 0x10000);
  EXPECT_EQ(result_of(advice(0x10000), 0), 0) << "of another thread";
  result_of(anonymous(), 0x20000);
  EXPECT_EQ(result_of(advice(0x20000), 0), -EINVAL);
  result_of(memfd(), 3);
  result_of(anonymous(), 0x30000);
  EXPECT_EQ(result_of(advice(0x30000), 0), 0) << "the second memfd was not refused";
}

TEST_F(InjectorTest, AFrozenClockRepeatsItsFirstReading) {
  with({"clock_gettime:value=frozen"});
  EXPECT_EQ(time_of(500), 500U);
  EXPECT_EQ(time_of(600), 500U);
  EXPECT_EQ(time_of(700, CLOCK_MONOTONIC), 700U);
  EXPECT_EQ(time_of(800), 500U);
}

TEST_F(InjectorTest, AClockThatGoesBackNeverGoesBelowZero) {
  with({"clock_gettime:value=back"});
  EXPECT_EQ(time_of(2'500'000'000), 2'500'000'000U);
  EXPECT_EQ(time_of(2'600'000'000), 1'500'000'000U);
  EXPECT_EQ(time_of(2'700'000'000), 500'000'000U);
  EXPECT_EQ(time_of(2'800'000'000), 0U);
}

TEST_F(InjectorTest, ACoarseClockGoesInSteps) {
  with({"clock_gettime:value=coarse"});
  const auto at = [&](std::uint64_t ns) {
    SystemCall c = call("clock_gettime", {CLOCK_BOOTTIME, 0x1000});
    c.entered_ns = ns;
    return injector_->entered(c)->clock_ns;
  };
  EXPECT_EQ(at(8'000'000), 8'000'000U);
  EXPECT_EQ(at(11'999'999), 8'000'000U);
  EXPECT_EQ(at(12'000'000), 12'000'000U);
}

TEST_F(InjectorTest, UpdatesComeAfterTheFirstNamingCall) {
  with({"prctl:error=EPERM:when=update", "clock_gettime:value=0:when=update"});
  const SystemCall naming = call("prctl", {1, 0, 0x7000, 1}, "OTEL_CTX");
  EXPECT_EQ(time_of(500), 500U);
  EXPECT_EQ(result_of(call("prctl", {1, 0, 0x7000, 1}, "stack"), 0), 0);
  EXPECT_EQ(time_of(500), 500U) << "the named memory is not a context";
  EXPECT_EQ(result_of(naming, -EINVAL), -EINVAL);
  EXPECT_EQ(time_of(600), 0U);
  EXPECT_EQ(result_of(naming, -EINVAL), -EPERM);
}

TEST_F(InjectorTest, AClockShowsTheTimeThatIsAskedFor) {
  with({"clock_gettime:value=1234567890123:when=2"});
  EXPECT_EQ(time_of(500), 500U);
  EXPECT_EQ(time_of(500), 1'234'567'890'123U);
  EXPECT_EQ(time_of(500), 500U);
}

TEST(Injection, RefusedMemoryIsToldFromOtherFaults) {
  const auto refused = [](std::string spec, std::string call, std::int64_t result,
                          std::uint64_t times = 1) {
    return has_refused_memory({std::move(spec), std::move(call), result, times});
  };
  EXPECT_TRUE(refused("mmap(MAP_ANONYMOUS):error=ENOMEM", "mmap", -ENOMEM));
  EXPECT_TRUE(refused("mmap(MAP_ANONYMOUS):error=EAGAIN:when=2+", "mmap", -EAGAIN));
  EXPECT_FALSE(refused("mmap(MAP_ANONYMOUS):error=ENOMEM", "mmap", -ENOMEM, 0));
  EXPECT_FALSE(refused("mmap:error=ENOMEM", "mmap", -ENOMEM));
  EXPECT_FALSE(refused("memfd_create:error=ENOMEM", "memfd_create", -ENOMEM));
  EXPECT_FALSE(refused("mmap(MAP_ANONYMOUS)", "mmap", -ENOMEM));
}

}  // namespace
}  // namespace ctxconf::conformance
