#include "abi/process_header.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace ctxconf::abi {
namespace {

// The published example of a header, as a little-endian machine stores it.
constexpr unsigned char kExample[] = {'O',  'T',  'E',  'L',  '_',  'C',  'T', 'X',  // signature
                                      2,    0,    0,    0,                           // version
                                      0x50, 1,    0,    0,  // payload_size 336
                                      0x15, 0xcd, 0x5b, 0x07, 0,    0,    0,   0,   // 123456789 ns
                                      0xa0, 0x82, 0x6d, 0x7e, 0x6a, 0x5f, 0,   0};  // payload

ProcessHeader example() {
  return decode_process_header(std::as_bytes(std::span(kExample))).value();
}

TEST(ProcessHeader, HasTheFieldsAtTheOffsetsOfTheTable) {
  const ProcessHeader h = example();
  EXPECT_EQ(h.signature, kSignature);
  EXPECT_EQ(h.version, 2U);
  EXPECT_EQ(h.payload_size, 336U);
  EXPECT_EQ(h.monotonic_published_at_ns, 123456789U);
  EXPECT_EQ(h.payload, 0x5f6a7e6d82a0U);
  EXPECT_TRUE(is_valid(h));
}

TEST(ProcessHeader, NeedsAll32Bytes) {
  EXPECT_FALSE(decode_process_header(std::as_bytes(std::span(kExample)).first(31)));
}

TEST(ProcessHeader, IsNotValidWithAnyOfTheThreeWrong) {
  ProcessHeader h = example();
  h.monotonic_published_at_ns = 0;
  EXPECT_FALSE(is_valid(h));
  EXPECT_TRUE(is_zeroed(h));
  h.version = kDevelopmentVersion;
  EXPECT_FALSE(is_zeroed(h));
  h = example();
  EXPECT_FALSE(is_zeroed(h));
  h.version = kDevelopmentVersion;
  EXPECT_FALSE(is_valid(h));
  h = example();
  h.signature[4] = '-';
  EXPECT_FALSE(is_valid(h));
}

TEST(ProcessHeader, SwapsEveryNumberAndNoLetter) {
  const ProcessHeader h = byte_swapped(example());
  EXPECT_EQ(h.signature, kSignature);
  EXPECT_EQ(h.version, 0x02000000U);
  EXPECT_EQ(h.payload_size, 0x50010000U);
  EXPECT_EQ(byte_swapped(h).payload, example().payload);
}

TEST(CandidateName, MatchesTheThreeNamesAtTheStart) {
  EXPECT_TRUE(is_candidate_name("[anon_shmem:OTEL_CTX]"));
  EXPECT_TRUE(is_candidate_name("[anon:OTEL_CTX]"));
  EXPECT_TRUE(is_candidate_name("/memfd:OTEL_CTX (deleted)"));
  EXPECT_TRUE(is_candidate_name("/memfd:OTEL_CTX_2 (deleted)"));
  EXPECT_FALSE(is_candidate_name("/tmp/memfd:OTEL_CTX"));
  EXPECT_FALSE(is_candidate_name("[anon:OTEL_CTX2]"));
  EXPECT_FALSE(is_candidate_name("[anon:otel_ctx]"));
  EXPECT_FALSE(is_candidate_name(""));
}

}  // namespace
}  // namespace ctxconf::abi
