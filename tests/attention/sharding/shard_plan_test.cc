#include "attention/sharding/shard_plan.h"

#include <algorithm>
#include <iostream>
#include <random>
#include <vector>

#include "attention/sharding/visible_pairs.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

std::vector<int64_t> Rows(const RowMap& map) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < map.rows(); ++i) rows.push_back(map.Global(i));
  return rows;
}

std::vector<int64_t> QueryRows(int64_t length, PlanOptions options, int32_t rank) {
  const AttentionSpec spec = SmallSpec(1, 1, {Lengths(length, length)}, Mask());
  return Rows(MakeShardPlan(spec, options).value().shards[rank].q_rows);
}

// Also checks that each map's inverse finds its own rows and no others.
void ExpectOwnedOnce(const ShardPlan& plan, int64_t rows, bool keys) {
  std::vector<int> owners(rows);
  for (const Shard& shard : plan.shards) {
    const RowMap& map = keys ? shard.kv_rows : shard.q_rows;
    int64_t next = 0;  // The next local row.
    for (int64_t row = 0; row < rows; ++row) {
      const bool own = next < map.rows() && map.Global(next) == row;
      ASSERT_EQ(map.LowerBound(row), next);
      ASSERT_EQ(map.Local({row, row + 1}).length(), own ? 1 : 0);
      owners[row] += own ? 1 : 0;
      next += own ? 1 : 0;
    }
    ASSERT_EQ(next, map.rows());
  }
  for (const int count : owners) ASSERT_EQ(count, 1);
}

TEST(ShardPlanTest, EveryRowHasOneOwner) {
  for (int64_t length = 0; length <= 200; ++length) {
    for (int32_t world = 1; world <= 8; ++world) {
      for (PlanOptions options : TestPlans(world)) {
        for (const int64_t granule : {1, 3}) {
          options.granule = granule;
          if (options.stripe % granule != 0) options.stripe = granule;
          const AttentionSpec spec = SmallSpec(
              1, 1, {Lengths(length / 2, length), Lengths(length - length / 2, 3)}, Mask());
          const ShardPlan plan = MakeShardPlan(spec, options).value();
          ASSERT_EQ(plan.shards.size(), static_cast<size_t>(world));
          ExpectOwnedOnce(plan, spec.q_rows(), false);
          ExpectOwnedOnce(plan, spec.kv_rows(), true);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(ShardPlanTest, ZigzagPairsHeadAndTail) {
  using V = std::vector<int64_t>;
  const PlanOptions four{4, Layout::kZigzag, 1, 1};
  EXPECT_EQ(QueryRows(8, four, 0), (V{0, 7}));
  EXPECT_EQ(QueryRows(8, four, 1), (V{1, 6}));
  EXPECT_EQ(QueryRows(8, four, 2), (V{2, 5}));
  EXPECT_EQ(QueryRows(8, four, 3), (V{3, 4}));
  // Uneven: blocks of 3 3 3 2.
  const PlanOptions two{2, Layout::kZigzag, 1, 1};
  EXPECT_EQ(QueryRows(11, two, 0), (V{0, 1, 2, 9, 10}));
  EXPECT_EQ(QueryRows(11, two, 1), (V{3, 4, 5, 6, 7, 8}));
}

TEST(ShardPlanTest, ZigzagPerSequenceIsTransformerEnginesExample) {
  const AttentionSpec spec = SmallSpec(1, 1, {Lengths(8, 8), Lengths(4, 4)}, Mask());
  const ShardPlan plan = MakeShardPlan(spec, {2, Layout::kZigzagPerSequence, 1, 1}).value();
  EXPECT_EQ(Rows(plan.shards[0].q_rows), (std::vector<int64_t>{0, 1, 6, 7, 8, 11}));
}

TEST(ShardPlanTest, StripesAreDealtInTurnAndLengthsMayBeShort) {
  using V = std::vector<int64_t>;
  EXPECT_EQ(QueryRows(11, {2, Layout::kStriped, 2, 1}, 1), (V{2, 3, 6, 7, 10}));
  EXPECT_EQ(QueryRows(2, {4, Layout::kContiguous, 1, 1}, 1), (V{1}));
  EXPECT_EQ(QueryRows(2, {4, Layout::kContiguous, 1, 1}, 2), V{});
  EXPECT_EQ(QueryRows(20, {2, Layout::kContiguous, 1, 8}, 0).size(), 16u);
}

TEST(ShardPlanTest, QueriesAndKeysHaveTheirOwnMaps) {
  const AttentionSpec spec = SmallSpec(1, 1, {Lengths(4, 100)}, Mask());
  const ShardPlan plan = MakeShardPlan(spec, {2, Layout::kZigzag, 1, 1}).value();
  EXPECT_EQ(plan.shards[0].q_rows.rows(), 2);
  EXPECT_EQ(plan.shards[0].kv_rows.rows(), 50);
}

// max/mean of causal work × (W × mean), by the formula of docs/reference/numerics.md.
double Balance(Layout layout, int32_t world, int64_t length) {
  AttentionSpec spec = SmallSpec(1, 1, {Lengths(length, length)}, TestMasks()[1]);
  const MaskMap mask(spec);
  const RowMap keys({{0, length, length, 1}});
  const ShardPlan plan = MakeShardPlan(spec, {world, layout, 1, 1}).value();
  int64_t largest = 0, all = 0;
  for (const Shard& shard : plan.shards) {
    const int64_t work =
        VisiblePairs(mask, {&shard.q_rows, &keys, {0, shard.q_rows.rows()}, {0, length}, 0});
    largest = std::max(largest, work);
    all += work;
  }
  return static_cast<double>(largest) * world / static_cast<double>(all);
}

TEST(ShardPlanTest, BalanceOfCausalWorkIsAsTheFormulasSay) {
  for (const int32_t world : {2, 4, 8}) {
    const int64_t length = 64 * world;
    EXPECT_DOUBLE_EQ(Balance(Layout::kZigzag, world, length), 1.0);
    EXPECT_NEAR(Balance(Layout::kContiguous, world, length), 2.0 - 1.0 / world, 0.01);
    EXPECT_NEAR(Balance(Layout::kStriped, world, length), 1.0 + (world - 1.0) / (length + 1),
                1e-12);
  }
}

// Mirrored blocks meet a sequence at depths x and 1 − x.
TEST(ShardPlanTest, ZigzagOfThePackedTensorBalancesEqualSequences) {
  for (const int32_t sequences : {2, 3, 4, 16}) {
    const AttentionSpec spec =
        SmallSpec(1, 1, std::vector<Sequence>(sequences, Lengths(96, 96)), TestMasks()[1]);
    const MaskMap mask(spec);
    const RowMap keys({{0, spec.kv_rows(), spec.kv_rows(), 1}});
    const ShardPlan plan = MakeShardPlan(spec, {4, Layout::kZigzag, 1, 1}).value();
    std::vector<int64_t> work;
    for (const Shard& shard : plan.shards) {
      work.push_back(VisiblePairs(
          mask, {&shard.q_rows, &keys, {0, shard.q_rows.rows()}, {0, spec.kv_rows()}, 0}));
    }
    EXPECT_EQ(*std::min_element(work.begin(), work.end()),
              *std::max_element(work.begin(), work.end()));
  }
}

// max/mean of visible pairs, for any mask.
double BalanceOf(const AttentionSpec& spec, int32_t world) {
  const MaskMap mask(spec);
  const RowMap keys({{0, spec.kv_rows(), spec.kv_rows(), 1}});
  const ShardPlan plan = MakeShardPlan(spec, {world, Layout::kByArea, 1, 1}).value();
  int64_t largest = 0, all = 0;
  for (const Shard& shard : plan.shards) {
    int64_t work = 0;
    mask.ForEachClass(0, spec.q_heads, [&](int32_t head, int32_t count) {
      work += count *
              VisiblePairs(
                  mask, {&shard.q_rows, &keys, {0, shard.q_rows.rows()}, {0, keys.rows()}, head});
    });
    largest = std::max(largest, work);
    all += work;
  }
  return all == 0 ? 1 : static_cast<double>(largest) * world / static_cast<double>(all);
}

TEST(ShardPlanTest, ByAreaAllRanksHaveAboutAsMuchWork) {
  const uint64_t seed = 11;
  std::mt19937_64 random(seed);
  std::cout << "seed " << seed << "\n";
  const std::vector<Mask> masks = TestMasks();
  for (int i = 0; i < 300; ++i) {
    const int32_t world = 2 + static_cast<int32_t>(random() % 7);
    std::vector<Sequence> sequences;
    for (int64_t n = 1 + random() % 40; n > 0; --n) {
      const int64_t length = 1 + static_cast<int64_t>(random() % (16 << random() % 9));
      sequences.push_back(Lengths(length, length));
    }
    AttentionSpec spec = SmallSpec(4, 2, sequences, masks[i % 2]);
    if (i % 3 == 0) VaryMasks(2, &spec);
    if (spec.q_rows() < 64 * world) continue;
    EXPECT_LE(BalanceOf(spec, world), 1.05) << i << " W" << world;
  }
}

// The tail of a window, a chunked mask, a range list: no layout by position balances these.
TEST(ShardPlanTest, ByAreaBalancesMasksThatPositionsDoNot) {
  for (const int32_t world : {2, 3, 5, 8}) {
    for (Mask mask : TestMasks()) {
      for (MaskRange& range : mask.ranges) {
        range = {range.q_begin * 64, range.q_end * 64, range.k_begin * 64, range.k_end * 64,
                 range.kind};
      }
      const AttentionSpec spec = SmallSpec(2, 1, {Lengths(4096, 4096)}, mask);
      EXPECT_LE(BalanceOf(spec, world), 1.05) << world;
    }
  }
}

// Rows of the same sequence and share stay together, so that a document's keys hardly move.
TEST(ShardPlanTest, ByAreaKeepsShortSequencesWholeAndTheirKeysWithThem) {
  AttentionSpec spec = SmallSpec(1, 1, std::vector<Sequence>(64, Lengths(7, 21)), Mask());
  const ShardPlan plan = MakeShardPlan(spec, {4, Layout::kByArea, 1, 1}).value();
  for (const Shard& shard : plan.shards) {
    EXPECT_EQ(shard.q_rows.rows(), 16 * 7);
    for (int64_t row = 0; row < shard.q_rows.rows(); ++row) {
      const int64_t sequence = shard.q_rows.Global(row) / 7;
      const Interval keys = shard.kv_rows.Local({sequence * 21, (sequence + 1) * 21});
      ASSERT_EQ(keys.length(), 21);
    }
  }
}

TEST(ShardPlanTest, EveryCutIsAMultipleOfTheGranule) {
  AttentionSpec spec = SmallSpec(1, 1, {}, Mask());
  for (const int64_t length : {30, 0, 7, 1, 90, 13}) {
    spec.sequences.push_back(Lengths(length / 2, length));
  }
  for (int32_t world = 1; world <= 4; ++world) {
    for (PlanOptions options : TestPlans(world)) {
      options.granule = 4;
      options.stripe = 8;
      const ShardPlan plan = MakeShardPlan(spec, options).value();
      for (const Shard& shard : plan.shards) {
        for (const RowMap* map : {&shard.q_rows, &shard.kv_rows}) {
          for (const RowRange& range : map->ranges()) EXPECT_EQ(range.begin % 4, 0);
        }
      }
    }
  }
}

TEST(ShardPlanTest, StripesOfADeterministicJobAreWholeTilesAndFew) {
  for (const int64_t rows : {0, 1, 300, 16384, 16385, 1 << 20, 1 << 28}) {
    AttentionSpec spec = SmallSpec(1, 1, {Lengths(rows / 3, rows)}, Mask());
    EXPECT_EQ(StripeOf(spec), 1);
    spec.deterministic = true;
    EXPECT_EQ(StripeOf(spec) % kFoldTile, 0);
    EXPECT_LE(rows / StripeOf(spec), 64);
  }
}

TEST(ShardPlanTest, BadOptionsAreRefusedByField) {
  const AttentionSpec spec = SmallSpec(1, 1, {Lengths(8, 8)}, Mask());
  const auto field = [&](PlanOptions options) {
    const absl::Status status = MakeShardPlan(spec, options).status();
    EXPECT_FALSE(status.ok());
    const ErrorDetail detail = DetailOf(status);
    return detail.fields.empty() ? "" : detail.fields[0].field;
  };
  EXPECT_EQ(field({0, Layout::kContiguous, 1, 1}), "execution.world_size");
  EXPECT_EQ(field({2, Layout::kAuto, 1, 1}), "execution.layout");
  EXPECT_EQ(field({2, Layout::kStriped, 0, 1}), "execution.stripe");
  EXPECT_EQ(field({2, Layout::kStriped, 3, 2}), "execution.stripe");
  EXPECT_EQ(field({2, Layout::kContiguous, 1, 0}), "granule");
}

}  // namespace
}  // namespace annulus
