#include "attention/spec/parallel_degrees.h"

#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "attention/planning/choose_execution.h"
#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

Execution Of(Strategy strategy) {
  Execution execution;
  execution.strategy = strategy;
  return execution;
}

TEST(DegreesTest, FollowFromTheStrategyWhereItLeavesNoChoice) {
  for (const Strategy strategy :
       {Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kRotateKv, Strategy::kHalo,
        Strategy::kRingPassQ, Strategy::kTree}) {
    const auto degrees = ParallelDegreesOf(Of(strategy), 6);
    ASSERT_TRUE(degrees.ok()) << degrees.status();
    EXPECT_EQ(std::tie(degrees->ulysses, degrees->ring, degrees->inner_ring),
              std::make_tuple(1, 6, 6));
  }
  Execution ulysses = Of(Strategy::kUlysses);
  ulysses.head_deal = HeadAssignment::kUnits;
  EXPECT_EQ(ParallelDegreesOf(ulysses, 6)->ulysses, 6);
  EXPECT_EQ(ParallelDegreesOf(ulysses, 6)->deal, HeadAssignment::kUnits);
}

TEST(DegreesTest, ADealOfHeadsThatAreNotExchangedIsNamed) {
  Execution ring = Of(Strategy::kRingPassKv);
  ring.head_deal = HeadAssignment::kUnits;
  EXPECT_EQ(ParallelDegreesOf(ring, 4).status().message(),
            "execution.head_deal: is units, but ring-pass-kv does not exchange heads");
}

TEST(DegreesTest, WhatIsLeftOpenMustBeResolved) {
  const auto field = [](const Execution& execution) {
    return DetailOf(ParallelDegreesOf(execution, 4).status()).fields.at(0).field;
  };
  EXPECT_EQ(field(Of(Strategy::kUlyssesRing)), "execution.ulysses_degree");
  EXPECT_EQ(field(Of(Strategy::kUlysses)), "execution.head_deal");
  EXPECT_EQ(field(Of(Strategy::kDoubleRing)), "execution.inner_ring_degree");
  Execution grid = Of(Strategy::kUlyssesRing);
  grid.ring_degree = 2;
  grid.head_deal = HeadAssignment::kWholeHeads;
  EXPECT_EQ(ParallelDegreesOf(grid, 4)->ulysses, 2);
  grid.ring_degree = 3;
  EXPECT_EQ(field(grid), "execution.ring_degree");
}

TEST(DegreesTest, EveryResolutionStandsAndNoneIsLost) {
  using S = Strategy;
  for (const S strategy : {S::kRingPassKv, S::kUlysses, S::kUlyssesRing, S::kDoubleRing}) {
    for (int32_t world = 1; world <= 12; ++world) {
      std::set<std::tuple<int32_t, int32_t, HeadAssignment>> seen;
      for (const Execution& execution : ResolveDegrees(Of(strategy), world, 4)) {
        const auto degrees = ParallelDegreesOf(execution, world);
        ASSERT_TRUE(degrees.ok()) << degrees.status();
        EXPECT_EQ(degrees->ulysses * degrees->ring, world);
        EXPECT_EQ(degrees->ring % degrees->inner_ring, 0);
        EXPECT_TRUE(seen.insert({degrees->ulysses, degrees->inner_ring, degrees->deal}).second);
      }
      size_t wanted = 1;
      if (strategy == S::kUlysses) wanted = 4 % world == 0 ? 1 : 2;
      if (strategy == S::kUlyssesRing || strategy == S::kDoubleRing) {
        wanted = 0;
        const bool prime = world < 4 || world == 5 || world == 7 || world == 11;
        for (int32_t d = 1; d <= world; ++d) {
          const bool units = strategy == S::kUlyssesRing && 4 % d != 0;
          const bool chosen = prime || (d > 1 && d < world);
          if (world % d == 0 && chosen) wanted += units ? 2 : 1;
        }
      }
      EXPECT_EQ(seen.size(), wanted) << StrategyName(strategy) << " " << world;
    }
  }
}

TEST(DegreesTest, WhatIsAskedForIsMetOrThereIsNone) {
  Execution grid = Of(Strategy::kUlyssesRing);
  grid.ulysses_degree = 3;
  EXPECT_TRUE(ResolveDegrees(grid, 4, 6).empty());
  ASSERT_EQ(ResolveDegrees(grid, 6, 6).size(), 1u);
  EXPECT_EQ(ResolveDegrees(grid, 6, 6)[0].ring_degree, 2);
  grid.head_deal = HeadAssignment::kUnits;
  EXPECT_EQ(ResolveDegrees(grid, 6, 6)[0].head_deal, HeadAssignment::kUnits);
  grid.ring_degree = 3;
  EXPECT_TRUE(ResolveDegrees(grid, 6, 6).empty());
  // One row or column is never chosen if there is a grid, but may be requested.
  grid = Of(Strategy::kUlyssesRing);
  grid.ring_degree = 6;
  ASSERT_EQ(ResolveDegrees(grid, 6, 6).size(), 1u);
  EXPECT_EQ(ResolveDegrees(grid, 6, 6)[0].ulysses_degree, 1);
  // A square double ring comes first.
  EXPECT_EQ(ResolveDegrees(Of(Strategy::kDoubleRing), 12, 1)[0].inner_ring_degree, 3);
}

TEST(DegreesTest, InnerRingsDecideTheSize) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = spec.kv_heads = 1;
  spec.head_dim = 64;
  spec.sequences = {{1 << 20, 1 << 20, "", 0, 0}};
  Execution wanted = Of(Strategy::kDoubleRing);
  Choice choice;
  choice.max_peak_bytes = int64_t{1} << 40;
  const auto sizes_of = [&](std::vector<int32_t> offered) {
    choice.sizes = std::move(offered);
    const auto candidates = ChooseExecution(spec, wanted, choice);
    EXPECT_TRUE(candidates.ok()) << candidates.status();
    std::set<int32_t> sizes;
    if (!candidates.ok()) return sizes;
    for (const Candidate& candidate : *candidates) sizes.insert(candidate.execution.world_size);
    return sizes;
  };
  wanted.inner_ring_degree = 3;
  EXPECT_EQ(sizes_of({1, 2, 4}), std::set<int32_t>({3}));
  EXPECT_EQ(sizes_of({1, 2, 4, 8}), std::set<int32_t>({3, 6}));
  wanted.ring_degree = 6;
  EXPECT_EQ(sizes_of({1, 8}), std::set<int32_t>({6}));
  wanted.ring_degree = 0;
  wanted.inner_ring_degree = 8;
  choice.sizes = {1, 2, 4};
  const absl::Status few = ChooseExecution(spec, wanted, choice).status();
  EXPECT_EQ(DetailOf(few).reason, "INSUFFICIENT_WORKERS") << few;
  EXPECT_EQ(DetailOf(few).fields.at(0).field, "execution.inner_ring_degree");
}

// (strategy, degree) of all executions that a deterministic gradients job of 8 over 2 heads may
// use.
std::set<std::pair<Strategy, int32_t>> WaysInOrder(const Execution& wanted,
                                                   std::vector<int32_t> sizes) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = 8;
  spec.kv_heads = 2;
  spec.head_dim = 64;
  spec.sequences = {{65536, 65536, "", 0, 0}};
  spec.operation = Operation::kGradients;
  spec.deterministic = true;
  Choice choice;
  choice.sizes = std::move(sizes);
  choice.max_peak_bytes = int64_t{1} << 40;
  const auto candidates = ChooseExecution(spec, wanted, choice);
  EXPECT_TRUE(candidates.ok()) << candidates.status();
  std::set<std::pair<Strategy, int32_t>> ways;
  for (const Candidate& candidate : *candidates) {
    ways.insert({candidate.execution.strategy, candidate.execution.ulysses_degree});
  }
  return ways;
}

TEST(DegreesTest, DeterministicGradientsAreNotAddedUpByRank) {
  const std::set<std::pair<Strategy, int32_t>> exchanges = {{Strategy::kUlysses, 1},
                                                            {Strategy::kUlysses, 2}};
  EXPECT_EQ(WaysInOrder(Of(Strategy::kUlysses), {1, 2, 4}), exchanges);
  Execution four;
  four.world_size = 4;
  const auto ways = WaysInOrder(four, {4});
  EXPECT_EQ(ways.count({Strategy::kUlyssesRing, 2}), 1u);
  EXPECT_EQ(ways.count({Strategy::kUlysses, 4}), 0u);
  EXPECT_EQ(ways.count({Strategy::kRingPassQ, 1}), 0u);
}

}  // namespace
}  // namespace annulus
