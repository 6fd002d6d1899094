#include "conformance/report/digest.h"

#include <gtest/gtest.h>

namespace ctxconf::conformance {
namespace {

// The digests were computed with `printf TEXT
// openssl dgst -sha256 -binary
// base64`.
TEST(Digest, IsWhatABrowserComputes) {
  EXPECT_EQ(policy_hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
  EXPECT_EQ(policy_hash("body { color: red }"),
            "sha256-kl6HQb5peP+QG0x7FWklMRxR/HYq4xozK9Oa6BWSDQA=");
}

}  // namespace
}  // namespace ctxconf::conformance
