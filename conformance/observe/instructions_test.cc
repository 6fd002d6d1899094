#include "conformance/observe/instructions.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

namespace ctxconf::conformance {
namespace {

TEST(X86_64Instructions, KnowsFencesAndLockedInstructions) {
  const InstructionDecoder decoder(EM_X86_64);
  const auto text = [&](std::initializer_list<int> code) {
    std::vector<std::byte> bytes;
    for (const int c : code) bytes.push_back(static_cast<std::byte>(c));
    const auto barrier = decoder.decode(bytes, 0x1000).barrier;
    return barrier.empty() ? "none" : barrier;
  };
  EXPECT_EQ(text({0x0f, 0xae, 0xf0}), "mfence");
  EXPECT_EQ(text({0x0f, 0xae, 0xf8}), "sfence");
  EXPECT_EQ(text({0x0f, 0xae, 0xe8}), "none") << "lfence orders loads";
  EXPECT_THAT(text({0xf0, 0x83, 0x0c, 0x24, 0x00}), testing::StartsWith("lock or"));
  EXPECT_THAT(text({0x48, 0x87, 0x07}), testing::StartsWith("xchg"));
  EXPECT_EQ(text({0x48, 0x87, 0xc3}), "none") << "between registers";
  EXPECT_EQ(text({0x48, 0x89, 0x07}), "none") << "a plain store";
  EXPECT_EQ(text({0x0f}), "none") << "half an instruction";
  EXPECT_EQ(text({}), "none");
}

TEST(X86_64Instructions, TellsWhatWasLeftAlone) {
  constexpr std::uint64_t kPc = 0x1000;
  constexpr std::uint64_t kRecord = 0x550000011000;
  const InstructionDecoder decoder(EM_X86_64);
  const auto record = *sys::RemoteRange::from_size(sys::RemoteAddr(kRecord), 64);
  std::array<std::uint64_t, 17> after{};
  const auto left_alone = [&](std::initializer_list<int> code, std::uint64_t rdi,
                              std::uint64_t behind = 0) {
    std::vector<std::byte> bytes;
    for (const int c : code) bytes.push_back(static_cast<std::byte>(c));
    after = {};
    after[5] = rdi;
    after[7] = rdi;  // rsp
    after[16] = behind == 0 ? kPc + bytes.size() : behind;
    return decoder.left_alone(bytes, kPc, after, record);
  };
  constexpr std::uint64_t kElsewhere = kRecord + 4096;
  EXPECT_TRUE(left_alone({0x48, 0x89, 0x07}, kElsewhere)) << "mov [rdi], rax";
  EXPECT_FALSE(left_alone({0x48, 0x89, 0x07}, kRecord + 24));
  EXPECT_FALSE(left_alone({0x48, 0x89, 0x07}, kRecord - 4)) << "it overlaps the record";
  EXPECT_FALSE(left_alone({0x48, 0x89, 0x47, 0xf8}, kRecord + 64)) << "mov [rdi - 8], rax";
  EXPECT_TRUE(left_alone({0x48, 0x89, 0x47, 0xf8}, kRecord + 72));
  EXPECT_TRUE(left_alone({0x48, 0x8b, 0x07}, kRecord)) << "mov rax, [rdi]";
  EXPECT_TRUE(left_alone({0x0f, 0x05}, kRecord)) << "syscall";
  EXPECT_FALSE(left_alone({0x0f, 0x05}, kRecord, kPc + 5)) << "syscall and one more instruction";
  EXPECT_TRUE(left_alone({0x74, 0x02}, kRecord, kPc + 4)) << "je";
  EXPECT_TRUE(left_alone({0x50}, kElsewhere)) << "push rax";
  EXPECT_FALSE(left_alone({0x50}, kRecord + 8));
  EXPECT_TRUE(left_alone({0xe8, 0x00, 0x01, 0x00, 0x00}, kElsewhere, kPc + 0x105)) << "call";
  EXPECT_FALSE(left_alone({0x48, 0x0f, 0xc1, 0x3f}, kElsewhere)) << "xadd [rdi], rdi";
  EXPECT_FALSE(left_alone({0xf3, 0xa4}, kElsewhere)) << "rep movsb";
  EXPECT_FALSE(left_alone({0x64, 0x48, 0x89, 0x07}, kElsewhere)) << "mov fs:[rdi], rax";
  EXPECT_FALSE(left_alone({0x0f, 0xae, 0x27}, kElsewhere)) << "xsave [rdi]";
  EXPECT_FALSE(left_alone({0x0f}, kElsewhere)) << "half an instruction";
  EXPECT_FALSE(left_alone({}, kElsewhere));
}

TEST(X86_64Instructions, TellsWhatMayStore) {
  const InstructionDecoder decoder(EM_X86_64);
  const auto may_store = [&](std::initializer_list<int> code) {
    std::vector<std::byte> bytes;
    for (const int c : code) bytes.push_back(static_cast<std::byte>(c));
    return decoder.decode(bytes, 0x1000).may_store;
  };
  EXPECT_FALSE(may_store({0x48, 0x89, 0xc3})) << "mov rbx, rax";
  EXPECT_FALSE(may_store({0x48, 0x8b, 0x07})) << "mov rax, [rdi]";
  EXPECT_FALSE(may_store({0x48, 0x39, 0x07})) << "cmp [rdi], rax";
  EXPECT_FALSE(may_store({0x48, 0x8d, 0x07})) << "lea rax, [rdi]";
  EXPECT_FALSE(may_store({0x74, 0x02})) << "je";
  EXPECT_FALSE(may_store({0x58})) << "pop rax";
  EXPECT_FALSE(may_store({0xc3})) << "ret";
  EXPECT_FALSE(may_store({0x0f, 0x1f, 0x44, 0x00, 0x00})) << "nop [rax + rax]";
  EXPECT_TRUE(may_store({0x48, 0x89, 0x07})) << "mov [rdi], rax";
  EXPECT_TRUE(may_store({0x48, 0x01, 0x07})) << "add [rdi], rax";
  EXPECT_TRUE(may_store({0x48, 0x87, 0x07})) << "xchg [rdi], rax";
  EXPECT_TRUE(may_store({0x48, 0x0f, 0xc1, 0x07})) << "xadd [rdi], rax";
  EXPECT_TRUE(may_store({0x0f, 0x95, 0x07})) << "setne [rdi]";
  EXPECT_TRUE(may_store({0x8f, 0x07})) << "pop [rdi]";
  EXPECT_TRUE(may_store({0x50})) << "push rax";
  EXPECT_TRUE(may_store({0xe8, 0x00, 0x00, 0x00, 0x00})) << "call";
  EXPECT_TRUE(may_store({0x0f, 0x05})) << "syscall";
  EXPECT_TRUE(may_store({0xf3, 0xa4})) << "rep movsb";
  EXPECT_TRUE(may_store({0xc5, 0xfe, 0x7f, 0x07})) << "vmovdqu [rdi], ymm0";
  EXPECT_FALSE(may_store({0xc5, 0xfe, 0x6f, 0x07})) << "vmovdqu ymm0, [rdi]";
  EXPECT_TRUE(may_store({0x66, 0x0f, 0xf7, 0xc1})) << "maskmovdqu xmm0, xmm1";
  EXPECT_TRUE(may_store({0x0f})) << "half an instruction";
}

std::array<std::byte, 4> code_of(std::uint32_t word) {
  return std::bit_cast<std::array<std::byte, 4>>(word);
}

TEST(Aarch64Instructions, KnowsFencesAndReleases) {
  const InstructionDecoder decoder(EM_AARCH64);
  const auto text = [&](std::uint32_t word) {
    const auto barrier = decoder.decode(code_of(word), 0x1000).barrier;
    return barrier.empty() ? "none" : barrier;
  };
  EXPECT_EQ(text(0xd5033bbf), "dmb ish");
  EXPECT_EQ(text(0xd5033f9f), "dsb sy");
  EXPECT_EQ(text(0xd5033fdf), "none") << "isb";
  EXPECT_EQ(text(0xc89ffca0), "stlr x0, [x5]");
  EXPECT_EQ(text(0xc800fc22), "stlxr w0, x2, [x1]");
  EXPECT_EQ(text(0xf8e00041), "ldaddal");
  EXPECT_EQ(text(0xf8200041), "none") << "ldadd";
  EXPECT_EQ(text(0x38608041), "swplb");
  EXPECT_EQ(text(0xc8e0fc41), "casal");
  EXPECT_EQ(text(0x4820fc82), "caspl");
  EXPECT_EQ(text(0xf8bfc020), "none") << "ldapr";
  EXPECT_EQ(text(0xf9000020), "none") << "a plain store";
  EXPECT_TRUE(decoder.decode({}, 0x1000).barrier.empty());
}

TEST(Aarch64Instructions, TellsWhatMayStore) {
  const InstructionDecoder decoder(EM_AARCH64);
  const auto may_store = [&](std::uint32_t word) {
    return decoder.decode(code_of(word), 0x1000).may_store;
  };
  EXPECT_FALSE(may_store(0x8b020020)) << "add x0, x1, x2";
  EXPECT_FALSE(may_store(0xca020020)) << "eor x0, x1, x2";
  EXPECT_FALSE(may_store(0x1e622820)) << "fadd d0, d1, d2";
  EXPECT_FALSE(may_store(0x4ea28420)) << "add v0.4s, v1.4s, v2.4s";
  EXPECT_FALSE(may_store(0xf9400020)) << "ldr x0, [x1]";
  EXPECT_FALSE(may_store(0x3dc00000)) << "ldr q0, [x0]";
  EXPECT_FALSE(may_store(0x4c407000)) << "ld1 {v0.16b}, [x0]";
  EXPECT_FALSE(may_store(0xa8c10440)) << "ldp x0, x1, [x2], #16";
  EXPECT_FALSE(may_store(0xf8bfc020)) << "ldapr x0, [x1]";
  EXPECT_FALSE(may_store(0xf9800000)) << "prfm pldl1keep, [x0]";
  EXPECT_FALSE(may_store(0xd65f03c0)) << "ret";
  EXPECT_FALSE(may_store(0x94000002)) << "bl";
  EXPECT_FALSE(may_store(0xb4000040)) << "cbz";
  EXPECT_FALSE(may_store(0xd503201f)) << "nop";
  EXPECT_FALSE(may_store(0xd53bd040)) << "mrs x0, tpidr_el0";
  EXPECT_TRUE(may_store(0xf9000020)) << "str x0, [x1]";
  EXPECT_TRUE(may_store(0x3ca26820)) << "str q0, [x1, x2]";
  EXPECT_TRUE(may_store(0x4c007000)) << "st1 {v0.16b}, [x0]";
  EXPECT_TRUE(may_store(0xa9010440)) << "stp x0, x1, [x2, #16]";
  EXPECT_TRUE(may_store(0xa8000440)) << "stnp x0, x1, [x2]";
  EXPECT_TRUE(may_store(0xc89ffc20)) << "stlr x0, [x1]";
  EXPECT_TRUE(may_store(0xc8007c22)) << "stxr w0, x2, [x1]";
  EXPECT_TRUE(may_store(0xc87f8440)) << "ldaxp x0, x1, [x2]: stepped with its store";
  EXPECT_TRUE(may_store(0xf8e00041)) << "ldaddal x0, x1, [x2]";
  EXPECT_TRUE(may_store(0xc8e0fc41)) << "casal x0, x1, [x2]";
  EXPECT_TRUE(may_store(0xd50b7420)) << "dc zva, x0";
  EXPECT_TRUE(may_store(0xd9a00820)) << "st2g x0, [x1]";
  EXPECT_TRUE(may_store(0xd4000001)) << "svc #0";
  EXPECT_TRUE(may_store(0xe400e000)) << "a vector store of SVE";
  EXPECT_TRUE(decoder.decode({}, 0x1000).may_store);
}

TEST(Aarch64Instructions, KnowsExclusiveAccesses) {
  const InstructionDecoder decoder(EM_AARCH64);
  const auto kind = [&](std::uint32_t word) {
    const auto i = decoder.decode(code_of(word), 0x1000);
    return std::string(i.loads_exclusively ? "load" : "") + (i.stores_exclusively ? "store" : "");
  };
  EXPECT_EQ(kind(0xc85f7c20), "load") << "ldxr x0, [x1]";
  EXPECT_EQ(kind(0x885ffc20), "load") << "ldaxr w0, [x1]";
  EXPECT_EQ(kind(0xc87f8440), "load") << "ldaxp x0, x1, [x2]";
  EXPECT_EQ(kind(0xc8007c22), "store") << "stxr w0, x2, [x1]";
  EXPECT_EQ(kind(0xc8230440), "store") << "stxp w3, x0, x1, [x2]";
  EXPECT_EQ(kind(0xc8dffc20), "") << "ldar x0, [x1]";
  EXPECT_EQ(kind(0xc89ffc20), "") << "stlr x0, [x1]";
  EXPECT_EQ(kind(0xc8e0fc41), "") << "casal x0, x1, [x2]";
  EXPECT_EQ(kind(0x48247ca6), "") << "casp x4, x5, x6, x7, [x5]";
  EXPECT_EQ(kind(0xf9400020), "") << "ldr x0, [x1]";
  EXPECT_EQ(kind(0xd5033f5f), "") << "clrex";
}

TEST(Aarch64Instructions, TellsWhatWasLeftAlone) {
  constexpr std::uint64_t kPc = 0x1000;
  constexpr std::uint64_t kRecord = 0x550000011000;
  constexpr std::uint64_t kElsewhere = kRecord + 4096;
  const InstructionDecoder decoder(EM_AARCH64);
  const auto record = *sys::RemoteRange::from_size(sys::RemoteAddr(kRecord), 64);
  std::array<std::uint64_t, 33> after{};
  const auto left_alone = [&](std::uint32_t word, std::uint64_t x5, std::uint64_t behind = 0) {
    after[5] = x5;
    after[31] = x5;  // sp
    after[32] = behind == 0 ? kPc + 4 : behind;
    return decoder.left_alone(code_of(word), kPc, after, record);
  };
  EXPECT_TRUE(left_alone(0xc89ffca0, kElsewhere)) << "stlr x0, [x5]";
  EXPECT_FALSE(left_alone(0xc89ffca0, kRecord + 56));
  EXPECT_FALSE(left_alone(0xc89ffca0, kRecord - 4)) << "it overlaps the record";
  EXPECT_FALSE(left_alone(0xf8008ca0, kRecord)) << "str x0, [x5, #8]!";
  EXPECT_TRUE(left_alone(0xf8008ca0, kRecord + 64));
  EXPECT_FALSE(left_alone(0xf80084a0, kRecord + 64)) << "str x0, [x5], #8";
  EXPECT_TRUE(left_alone(0xf80084a0, kRecord + 72));
  EXPECT_FALSE(left_alone(0xf81f80a0, kRecord + 64)) << "stur x0, [x5, #-8]";
  EXPECT_TRUE(left_alone(0xf81f80a0, kRecord + 72));
  EXPECT_FALSE(left_alone(0xa90104a0, kRecord - 16)) << "stp x0, x1, [x5, #16]";
  EXPECT_TRUE(left_alone(0xa90104a0, kRecord + 48));
  EXPECT_FALSE(left_alone(0xadbf07e0, kRecord)) << "stp q0, q1, [sp, #-32]!";
  EXPECT_FALSE(left_alone(0x3d8004a0, kRecord - 16)) << "str q0, [x5, #16]";
  EXPECT_TRUE(left_alone(0x3d8004a0, kRecord + 48));
  after[6] = 2;
  EXPECT_FALSE(left_alone(0xf82678a0, kRecord - 16)) << "str x0, [x5, x6, lsl #3]";
  EXPECT_TRUE(left_alone(0xf82678a0, kRecord + 48));
  after[6] = 0xffff'ffc0;
  EXPECT_FALSE(left_alone(0xb826c8a0, kRecord + 64)) << "str w0, [x5, w6, sxtw]";
  EXPECT_TRUE(left_alone(0xb826c8a0, kRecord + 128));
  EXPECT_FALSE(left_alone(0xf82080a5, kElsewhere)) << "swp x0, x5, [x5]: the address is lost";
  EXPECT_FALSE(left_alone(0x48247ca6, kElsewhere)) << "casp x4, x5, x6, x7, [x5]: the same";
  EXPECT_TRUE(left_alone(0xf9400020, kRecord)) << "ldr x0, [x1]";
  EXPECT_TRUE(left_alone(0xd4000001, kRecord)) << "svc #0";
  EXPECT_FALSE(left_alone(0xd4000001, kRecord, kPc + 8)) << "svc #0 and one more instruction";
  EXPECT_TRUE(left_alone(0x94000002, kRecord, kPc + 8)) << "bl";
  EXPECT_FALSE(left_alone(0xd50b7420, kElsewhere)) << "dc zva, x0";
  EXPECT_FALSE(left_alone(0xc85f7c20, kElsewhere)) << "ldxr x0, [x1], with its store";
  EXPECT_FALSE(decoder.left_alone({}, kPc, after, record));
  EXPECT_FALSE(decoder.left_alone(code_of(0xf9400020), kPc, std::span(after).first(17), record));
}

}  // namespace
}  // namespace ctxconf::conformance
