#include "worker/comm/gloo_bootstrap.h"

#include "gtest/gtest.h"

namespace annulus {
namespace {

GlooBootstrap Sample() {
  GlooBootstrap bootstrap;
  bootstrap.rank = 1;
  bootstrap.addresses = {std::string("a\0b", 3), "", std::string(136, 'x')};
  return bootstrap;
}

TEST(GlooBootstrap, ComesBackAsItWas) {
  const auto decoded = DecodeGlooBootstrap(EncodeGlooBootstrap(Sample()), 1, 3);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->rank, 1);
  EXPECT_EQ(decoded->addresses, Sample().addresses);
}

TEST(GlooBootstrap, EveryTruncationIsRefused) {
  const std::string bytes = EncodeGlooBootstrap(Sample());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(DecodeGlooBootstrap(bytes.substr(0, length), 1, 3).ok()) << length;
  }
  EXPECT_FALSE(DecodeGlooBootstrap(bytes + "x", 1, 3).ok());
}

TEST(GlooBootstrap, AnotherRankOrSizeIsRefused) {
  const std::string bytes = EncodeGlooBootstrap(Sample());
  EXPECT_FALSE(DecodeGlooBootstrap(bytes, 0, 3).ok());
  EXPECT_FALSE(DecodeGlooBootstrap(bytes, 1, 2).ok());
  EXPECT_FALSE(DecodeGlooBootstrap("", 0, 0).ok());
}

TEST(GlooBootstrap, FingerprintsTellGroupsApart) {
  EXPECT_EQ(GroupFingerprint({"a", "b"}), GroupFingerprint({"a", "b"}));
  EXPECT_NE(GroupFingerprint({"a", "b"}), GroupFingerprint({"b", "a"}));
  EXPECT_NE(GroupFingerprint({"a", "b"}), GroupFingerprint({"a"}));
}

}  // namespace
}  // namespace annulus
