#include "attention/schedule/model/needs.h"

#include <iostream>
#include <random>
#include <vector>

#include "attention/schedule/model/rectangles.h"
#include "gtest/gtest.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

constexpr uint64_t kSeed = 5;

std::vector<bool> Cells(const std::vector<Interval>& set, int64_t rows) {
  std::vector<bool> cells(rows);
  for (size_t i = 0; i < set.size(); ++i) {
    EXPECT_LT(set[i].begin, set[i].end);
    EXPECT_TRUE(i == 0 || set[i - 1].end < set[i].begin);
    for (int64_t row = set[i].begin; row < set[i].end; ++row) cells.at(row) = true;
  }
  return cells;
}

std::vector<bool> VisibleRowByRow(const MaskMap& mask, const std::vector<int64_t>& q_rows,
                                  int64_t k_rows) {
  std::vector<bool> cells(k_rows);
  for (const int64_t row : q_rows) {
    for (const Interval& seen : mask.VisiblePacked(0, row)) {
      for (int64_t k = seen.begin; k < seen.end; ++k) cells.at(k) = true;
    }
  }
  return cells;
}

Mask RandomMask(std::mt19937_64& random) {
  Mask mask;
  const auto maybe = [&](std::optional<int64_t>& field, int64_t from, int64_t to) {
    if (random() % 3 == 0) field = from + static_cast<int64_t>(random() % (to - from));
  };
  mask.causal = random() % 2 == 0;
  if (random() % 2 == 0) mask.alignment = Mask::Alignment::kTopLeft;
  maybe(mask.window_left, 0, 9);
  maybe(mask.window_right, 0, 9);
  maybe(mask.chunk, 1, 9);
  maybe(mask.prefix, 0, 9);
  maybe(mask.always_visible, 0, 5);
  for (uint64_t ranges = random() % 3 == 0 ? random() % 4 : 0; ranges > 0; --ranges) {
    MaskRange range;
    range.q_begin = random() % 10;
    range.q_end = range.q_begin + random() % 12;
    range.k_begin = random() % 10;
    range.k_end = range.k_begin + random() % 12;
    range.kind = static_cast<MaskRange::Kind>(random() % 4);
    mask.ranges.push_back(range);
  }
  return mask;
}

AttentionSpec RandomSpec(std::mt19937_64& random) {
  std::vector<Sequence> sequences;
  for (uint64_t n = 1 + random() % 3; n > 0; --n) {
    sequences.push_back(Lengths(random() % 22, random() % 22));
  }
  return SmallSpec(1, 1, sequences, RandomMask(random));
}

TEST(VisibleToAnyTest, IsTheUnionOfItsRows) {
  std::mt19937_64 random(kSeed);
  std::cout << "seed " << kSeed << "\n";
  for (int i = 0; i < 20000; ++i) {
    const AttentionSpec spec = RandomSpec(random);
    const MaskMap mask(spec);
    const int64_t begin = random() % (spec.q_rows() + 1);
    const int64_t end = begin + random() % (spec.q_rows() - begin + 1);
    std::vector<int64_t> rows;
    for (int64_t row = begin; row < end; ++row) rows.push_back(row);
    ASSERT_EQ(Cells(mask.VisibleToAny(0, {begin, end}), spec.kv_rows()),
              VisibleRowByRow(mask, rows, spec.kv_rows()))
        << i;
  }
}

TEST(NeedsTest, VisibleKeysOfAShardAreTheUnionOfItsRows) {
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 5000; ++i) {
    const AttentionSpec spec = RandomSpec(random);
    const MaskMap mask(spec);
    const int32_t world = 1 + static_cast<int32_t>(random() % 4);
    const std::vector<PlanOptions> plans = TestPlans(world);
    const ShardPlan plan = MakeShardPlan(spec, plans[random() % plans.size()]).value();
    const RowMap& map = plan.shards[random() % world].q_rows;
    const int64_t begin = random() % (map.rows() + 1);
    const int64_t end = begin + random() % (map.rows() - begin + 1);
    std::vector<int64_t> rows;
    for (int64_t row = begin; row < end; ++row) rows.push_back(map.Global(row));
    ASSERT_EQ(Cells(VisibleKeys(mask, 0, map, {begin, end}), spec.kv_rows()),
              VisibleRowByRow(mask, rows, spec.kv_rows()))
        << i;
  }
}

TEST(NeedsTest, QueriesThatSeeSomeOfAShardsKeysAreAllThere) {
  std::mt19937_64 random(kSeed + 1);
  for (int i = 0; i < 5000; ++i) {
    const AttentionSpec spec = RandomSpec(random);
    const MaskMap mask(spec);
    const int32_t world = 1 + static_cast<int32_t>(random() % 4);
    const std::vector<PlanOptions> plans = TestPlans(world);
    const ShardPlan plan = MakeShardPlan(spec, plans[random() % plans.size()]).value();
    const RowMap& map = plan.shards[random() % world].kv_rows;
    const RowSet queries = SeeingQueries(mask, 0, map, {0, map.rows()});
    const std::vector<bool> cells = Cells(queries, spec.q_rows());
    for (int64_t row = 0; row < spec.q_rows(); ++row) {
      for (const Interval& seen : mask.VisiblePacked(0, row)) {
        if (map.Local(seen).length() > 0) {
          ASSERT_TRUE(cells[row]) << i << " row " << row;
        }
      }
    }
  }
}

// Zigzag, causal: the second half of rank 0's rows sees keys of rank 2, the first half does not.
// Only the second half's queries move to rank 2.
TEST(NeedsTest, QueriesThatSeeNothingOfAShardStay) {
  Mask causal;
  causal.causal = true;
  const AttentionSpec spec = SmallSpec(1, 1, {Lengths(64, 64)}, causal);
  const MaskMap mask(spec);
  const ShardPlan plan = MakeShardPlan(spec, {4, Layout::kZigzag, 1, 1}).value();
  const Needs needs({&spec, &mask, &plan, ExecutionOf(Strategy::kRingPassQ)}, RowSpace::kQuery);
  EXPECT_EQ(needs.Of(2, 0), (RowSet{{8, 16}}));
  EXPECT_EQ(needs.Of(0, 2), (RowSet{{0, 16}}));
}

// A thousand documents, each in W pieces: exact needs would take a thousand messages per pair.
TEST(NeedsTest, ManyIntervalsBecomeABoundedNumber) {
  Mask window;
  window.causal = true;
  window.window_left = 2;
  const AttentionSpec spec = SmallSpec(1, 1, std::vector<Sequence>(1000, Lengths(40, 40)), window);
  const MaskMap mask(spec);
  const ShardPlan plan = MakeShardPlan(spec, {4, Layout::kZigzagPerSequence, 1, 1}).value();
  const Needs needs({&spec, &mask, &plan, ExecutionOf(Strategy::kRotateKv)});
  EXPECT_GT(needs.Wanted(0).size(), 1000u);
  for (int32_t shard = 0; shard < 4; ++shard) {
    const RowSet need = needs.Of(0, shard);
    EXPECT_LE(need.size(), static_cast<size_t>(Needs::kMaxIntervals));
    // Everything visible is included.
    for (const Interval& keys : needs.Wanted(0)) {
      const Interval local = plan.shards[shard].kv_rows.Local(keys);
      if (local.length() > 0) {
        EXPECT_EQ(RowsOf(Clip(need, local)), local.length());
      }
    }
  }
}

// Zigzag, causal: low × low and high × high are diagonals, high × low is full, low × high is no
// task.
TEST(RectanglesTest, ZigzagBlocksBecomeThreeRectangles) {
  Mask causal;
  causal.causal = true;
  const AttentionSpec spec = SmallSpec(2, 1, {Lengths(64, 64)}, causal);
  const MaskMap mask(spec);
  const ShardPlan plan = MakeShardPlan(spec, {4, Layout::kZigzag, 1, 1}).value();
  const QueryPieces pieces(mask, plan.shards[1].q_rows);
  const std::vector<Rectangle> own = pieces.Against(plan.shards[1].kv_rows, {0, 16});
  ASSERT_EQ(own.size(), 3u);
  EXPECT_EQ(own[1].coverage, Coverage::kFull);
  EXPECT_EQ(own[1].q, (Interval{8, 16}));
  EXPECT_EQ(own[1].k, (Interval{0, 8}));
  // Earlier rank: all queries see its low block. Later rank: high queries see both of its blocks.
  const std::vector<Rectangle> earlier = pieces.Against(plan.shards[0].kv_rows, {0, 8});
  ASSERT_EQ(earlier.size(), 2u);
  for (const Rectangle& r : earlier) EXPECT_EQ(r.coverage, Coverage::kFull);
  const std::vector<Rectangle> later = pieces.Against(plan.shards[2].kv_rows, {0, 16});
  ASSERT_EQ(later.size(), 2u);
  for (const Rectangle& r : later) {
    EXPECT_EQ(r.coverage, Coverage::kFull);
    EXPECT_EQ(r.q, (Interval{8, 16}));
  }
}

TEST(RectanglesTest, QueriesThatSeeNothingAreTrimmed) {
  Mask window;
  window.causal = true;
  window.window_left = 10;
  const AttentionSpec spec = SmallSpec(1, 1, {Lengths(4000, 4000)}, window);
  const MaskMap mask(spec);
  const ShardPlan plan = MakeShardPlan(spec, {4, Layout::kContiguous, 1, 1}).value();
  const QueryPieces pieces(mask, plan.shards[1].q_rows);
  const std::vector<Rectangle> halo = pieces.Against(plan.shards[0].kv_rows, {990, 1000});
  ASSERT_EQ(halo.size(), 1u);
  EXPECT_EQ(halo[0].q, (Interval{0, 10}));
}

}  // namespace
}  // namespace annulus
