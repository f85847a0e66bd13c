#include "attention/numerics/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "attention/numerics/philox.h"

namespace annulus {
namespace {

TEST(DropoutTest, AsDocumented) {
  std::vector<int> kept;
  const DropoutRule half({0.5, 1});
  for (int key = 0; key < 16; ++key)
    if (half.Keeps(0, 0, 0, key)) kept.push_back(key);
  EXPECT_EQ(kept,
            // The same numbers are in docs/reference/numerics.md.
            (std::vector<int>{0, 2, 6, 7, 11, 12, 14}));
}

TEST(DropoutTest, EachWordOfTheDocumentedBlockDecidesOneKey) {
  const DropoutRule rule({0.3, 0x123456789abcdef0u});
  EXPECT_EQ(rule.threshold(), static_cast<uint32_t>(std::floor(0.3 * std::ldexp(1.0, 32))));
  for (int64_t block = 0; block < 50; ++block) {
    const auto words =
        Philox4x32({static_cast<uint32_t>(block), 77, 3 + (1u << 31), 9}, {0x9abcdef0, 0x12345678});
    for (int64_t word = 0; word < 4; ++word)
      EXPECT_EQ(rule.Keeps(9, 3, 77, 4 * block + word), words[word] >= rule.threshold());
  }
}

TEST(DropoutTest, ARateOf0KeepsAllAndOthersTheirPart) {
  for (const double rate : {0.0, 0.1, 0.5, 0.99}) {
    const DropoutRule rule({rate, 7});
    int kept = 0;
    for (int row = 0; row < 100; ++row)
      for (int key = 0; key < 400; ++key) kept += rule.Keeps(2, 1, row, key) ? 1 : 0;
    EXPECT_NEAR(kept / 40000.0, 1 - rate, rate == 0 ? 0 : 0.01) << rate;
  }
  EXPECT_EQ(DropoutRule({1 - 1e-16, 1}).threshold(), 0xffffffffu);
}

TEST(DropoutTest, SeedSequenceHeadAndRowEachMatter) {
  std::set<std::vector<bool>> patterns;
  const auto add = [&](uint64_t seed, int64_t sequence, int32_t head, int64_t row) {
    std::vector<bool> kept;
    for (int key = 0; key < 64; ++key)
      kept.push_back(DropoutRule({0.5, seed}).Keeps(sequence, head, row, key));
    patterns.insert(kept);
  };
  add(1, 0, 0, 0);
  add(uint64_t{1} << 32, 0, 0, 0);
  add(2, 0, 0, 0);
  add(1, 1, 0, 0);
  add(1, 0, 1, 0);
  add(1, 0, 0, 1);
  EXPECT_EQ(patterns.size(), 6u);
}

}  // namespace
}  // namespace annulus
