#include "worker/kernel/cpu/call_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "tests/reference/from_spec.h"
#include "tests/worker/kernel/kernel_harness.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {
namespace {

constexpr int32_t kKvHeads = 3, kGroup = 2;
constexpr int64_t kRows = 500, kKeys = 2000;
constexpr int64_t kPlenty = 1000;  // More packs than any call here has.

class CallPlanTest : public testing::Test {
 protected:
  void Make(bool causal, const Cuts& cuts, int64_t rows = kRows, int64_t keys = kKeys) {
    spec_.dtype = DataType::kFp32;
    spec_.q_heads = kKvHeads * kGroup;
    spec_.kv_heads = kKvHeads;
    spec_.head_dim = 1;
    Sequence sequence;
    sequence.q_len = rows;
    sequence.kv_len = keys;
    spec_.sequences = {sequence};
    spec_.masks.resize(1);
    spec_.masks[0].causal = causal;
    harness_ = std::make_unique<KernelHarness>(spec_, reference::InputOf(spec_), cuts);
    tasks_ = harness_->Tasks();
    visible_ = std::make_unique<CallVisibility>(*harness_->job().mask, tasks_, *pool_);
    plan_ = PlanCall(tasks_, *visible_, kGroup);
  }

  int64_t VisiblePairs() const {
    const int64_t of_a_head = harness_->job().mask->Area(0, {0, kRows}, {0, kKeys});
    return of_a_head * spec_.q_heads;
  }

  AttentionSpec spec_;
  const std::unique_ptr<ComputePool> pool_ = *ComputePool::Create(2);
  std::unique_ptr<KernelHarness> harness_;
  std::vector<KernelTask> tasks_;
  std::unique_ptr<CallVisibility> visible_;
  CallPlan plan_;
};

// Blocks of keys of (task, key/value head, tile), in the order in which they run. An item that is
// twice in a phase fails.
using Seen = std::map<std::tuple<int32_t, int32_t, int64_t>, std::vector<int64_t>>;
Seen CountVisibleBlocks(const std::vector<Phase>& phases) {
  Seen seen;
  for (const Phase& phase : phases) {
    std::set<std::tuple<int32_t, int32_t, int64_t>> here;
    for (const Item& item : phase.items) {
      int32_t last = -1;
      for (const int32_t u : item.units) {
        EXPECT_GT(u, last) << "units out of task order";
        last = u;
        const Unit& unit = phase.units[u];
        for (int64_t tile = item.tile; tile < item.tile + item.tiles; ++tile) {
          EXPECT_TRUE(here.insert({u, item.kv_head, tile}).second) << "a unit in two items";
          for (int64_t block = unit.block_begin; block < unit.block_end; ++block)
            seen[{unit.task, item.kv_head, tile}].push_back(block);
        }
      }
    }
  }
  return seen;
}

TEST_F(CallPlanTest, EveryTaskTileAndBlockIsSeenOnceInOrderWhateverTheMemory) {
  Cuts cuts;
  cuts.q_rows = {77, 300};
  cuts.q_heads = {3};  // Inside a group.
  cuts.keys = {500, 1030};
  Make(/*causal=*/false, cuts);
  for (const int64_t max_packs : {int64_t{1}, int64_t{5}, int64_t{9}, kPlenty}) {
    const Seen seen = CountVisibleBlocks(PlanPhases(plan_, {max_packs, /*threads=*/2}));
    size_t expected = 0;
    for (size_t t = 0; t < tasks_.size(); ++t) {
      const Task& task = tasks_[t].task;
      for (int32_t head = task.head_begin / kGroup; head * kGroup < task.head_end; ++head) {
        for (int64_t tile = task.q_begin * kGroup / kTileRows;
             tile * kTileRows < task.q_end * kGroup; ++tile) {
          std::vector<int64_t> blocks;
          for (int64_t b = task.k_begin / kKeyBlock; b * kKeyBlock < task.k_end; ++b)
            blocks.push_back(b);
          const auto at = seen.find({static_cast<int32_t>(t), head, tile});
          ASSERT_NE(at, seen.end());
          EXPECT_EQ(at->second, blocks);
          ++expected;
        }
      }
    }
    EXPECT_EQ(seen.size(), expected);
  }
}

TEST_F(CallPlanTest, PhasesKeepToTheMemoryAndPacksAreDistinct) {
  Cuts cuts;
  cuts.keys = {700};
  Make(/*causal=*/true, cuts);
  for (const int64_t max_packs : {3, 6, 12, 30}) {
    for (const Phase& phase : PlanPhases(plan_, {max_packs, /*threads=*/1})) {
      EXPECT_LE(phase.packs, std::max<int64_t>(max_packs, phase.head_end - phase.head_begin));
      std::set<int64_t> packs;
      for (const PackedSource& packed : phase.packed)
        for (int32_t head = phase.head_begin; head < phase.head_end; ++head)
          for (int64_t b = packed.block_begin; b < packed.block_end; ++b)
            EXPECT_TRUE(packs.insert(phase.PackOf(packed, head, b)).second);
      EXPECT_EQ(static_cast<int64_t>(packs.size()), phase.packs);
      EXPECT_EQ(*packs.rbegin(), phase.packs - 1);
    }
  }
}

TEST_F(CallPlanTest, LargestItemsComeFirstAndCostsAreVisiblePairs) {
  Make(/*causal=*/true, {});
  const std::vector<Phase> phases = PlanPhases(plan_, {kPlenty, /*threads=*/2});
  ASSERT_EQ(phases.size(), 1u);
  int64_t total = 0, last = std::numeric_limits<int64_t>::max();
  for (const Item& item : phases[0].items) {
    EXPECT_LE(item.cost, last);
    last = item.cost;
    total += item.cost;
  }
  EXPECT_EQ(total, VisiblePairs());
}

TEST_F(CallPlanTest, NeighboursAreJoinedWhereItPaysAndEachIsSeenAsBefore) {
  const auto most_tiles = [&](int threads, int tiles = 2) {
    int most = 0;
    int64_t cost = 0, single_cost = 0;
    const std::vector<Phase> phases = PlanPhases(plan_, {kPlenty, threads, tiles});
    const std::vector<Phase> single = PlanPhases(plan_, {kPlenty, threads});
    EXPECT_EQ(CountVisibleBlocks(phases), CountVisibleBlocks(single));
    for (const Phase& phase : phases) {
      for (const Item& item : phase.items) {
        most = std::max(most, item.tiles);
        cost += item.cost;
      }
    }
    for (const Item& item : single[0].items) single_cost += item.cost;
    EXPECT_EQ(cost, single_cost);
    return most;
  };
  Cuts cuts;
  cuts.q_rows = {700};
  cuts.keys = {500};
  for (const bool causal : {false, true}) {
    Make(causal, cuts, 2 * kRows, 2 * kKeys);
    EXPECT_EQ(most_tiles(/*threads=*/2), 2) << causal;
    EXPECT_EQ(most_tiles(/*threads=*/8), 1) << "too few items";
    EXPECT_EQ(most_tiles(/*threads=*/2, kMostTiles), 4) << "as many as leave eight items each";
    EXPECT_EQ(most_tiles(/*threads=*/1, kMostTiles), kMostTiles);
    Make(causal, cuts, 2 * kRows, kKeys);
    EXPECT_EQ(most_tiles(/*threads=*/2), 1) << "too few keys";
  }
}

TEST_F(CallPlanTest, WhoPacksInPassingHasAllTilesOfAHeadAndThreadsHaveNeighbours) {
  Make(/*causal=*/true, {}, /*rows=*/90, /*keys=*/600);
  PhaseLimits limits;
  limits.max_packs = 1000;
  limits.threads = 2;
  limits.tiles = 2;
  const Seen single = CountVisibleBlocks(PlanPhases(plan_, limits));
  limits.passing = true;
  const std::vector<Phase> phases = PlanPhases(plan_, limits);
  EXPECT_EQ(CountVisibleBlocks(phases), single);
  ASSERT_EQ(phases.size(), 1u);
  std::vector<int32_t> heads;
  for (const Item& item : phases[0].items) {
    EXPECT_EQ(item.tiles, 2);
    heads.push_back(item.kv_head);
  }
  EXPECT_EQ(heads, (std::vector<int32_t>{0, 2, 1})) << "0 and 1 in the first list of two";
}

TEST_F(CallPlanTest, KeysThatFewRowsSeeArePackedInPassingAndKept) {
  PhaseLimits limits{kPlenty, /*threads=*/2};
  limits.most_kept = 8;
  spec_.masks = {Mask()};
  spec_.masks[0].window_left = 599;
  Make(/*causal=*/true, {}, /*rows=*/3000, /*keys=*/3000);
  const std::vector<Phase> phases = PlanPhases(plan_, limits);
  ASSERT_EQ(phases.size(), 1u);
  EXPECT_EQ(phases[0].kept, 4) << "48 rows see 647 keys";
  EXPECT_EQ(MostKept(phases), 4);
  EXPECT_EQ(LargestPhase(phases), 0) << "nothing is packed ahead";
  const std::vector<Item>& items = phases[0].items;
  for (size_t i = 2; i < items.size(); ++i) {
    if (items[i].kv_head != items[i - 2].kv_head) continue;
    EXPECT_EQ(items[i].tile, items[i - 2].tile + 1) << "neighbours in each list of two";
  }
  limits.most_kept = 3;
  const std::vector<Phase> ahead = PlanPhases(plan_, limits);
  EXPECT_EQ(MostKept(ahead), 0) << "no room";
  EXPECT_EQ(CountVisibleBlocks(phases), CountVisibleBlocks(ahead));
  limits.most_kept = kPlenty;
  limits.threads = 24;
  EXPECT_EQ(MostKept(PlanPhases(plan_, limits)), 0) << "too few items";
  limits.threads = 2;
  spec_.masks[0].always_visible = 600;
  Make(/*causal=*/true, {}, /*rows=*/3000, /*keys=*/3000);
  EXPECT_EQ(MostKept(PlanPhases(plan_, limits)), 0) << "a tile that meets nearly all keys";
  spec_.masks[0].always_visible.reset();
  spec_.masks[0].window_left = 2999;
  Make(/*causal=*/false, {}, /*rows=*/20000, /*keys=*/6000);
  EXPECT_EQ(MostKept(PlanPhases(plan_, limits)), 0) << "keys that many rows see";
}

TEST_F(CallPlanTest, FewTilesJoinWhereBlocksAreKeptAndMoreWhereTheyReadManyKeys) {
  PhaseLimits limits{kPlenty, /*threads=*/2};
  limits.tiles = 8;
  limits.most_kept = 64;
  spec_.masks = {Mask()};
  spec_.masks[0].window_left = 599;
  Make(/*causal=*/true, {}, /*rows=*/20000, /*keys=*/20000);
  const auto most_tiles = [](const Phase& phase) {
    int most = 0;
    for (const Item& item : phase.items) most = std::max(most, item.tiles);
    return most;
  };
  const std::vector<Phase> few = PlanPhases(plan_, limits);
  ASSERT_EQ(few.size(), 1u);
  EXPECT_EQ(most_tiles(few[0]), 3);
  EXPECT_EQ(few[0].kept, 5) << "144 rows see 743 keys";
  // A long document among short ones.
  spec_.masks = {Mask()};
  const auto add = [this](int64_t begin, int64_t end) {
    spec_.masks[0].ranges.push_back({begin, end, begin, end, MaskRange::Kind::kCausal});
  };
  add(0, 6000);
  for (int64_t begin = 6000; begin < 21000; begin += 300) add(begin, begin + 300);
  Make(/*causal=*/false, {}, /*rows=*/21000, /*keys=*/21000);
  const std::vector<Phase> mixed = PlanPhases(plan_, limits);
  ASSERT_EQ(mixed.size(), 1u);
  EXPECT_EQ(most_tiles(mixed[0]), 8);
  EXPECT_EQ(mixed[0].kept, 24 + 3) << "the last tile of the long one, and seven joined to it";
  for (const Item& item : mixed[0].items) {
    const bool of_short_ones = item.tile * kTileRows >= 6000 * kGroup;
    EXPECT_LE(item.tiles, of_short_ones ? 3 : 8);
  }
}

TEST_F(CallPlanTest, SequencesSideBySideArePackedInPassingAsOneWithTheirMaskIs) {
  PhaseLimits limits{kPlenty, /*threads=*/2};
  limits.most_kept = 8;
  // Pieces of rows with the keys before and beside them: one task each, as for sequences.
  constexpr int64_t kLength = 300, kPieces = 12;
  spec_.masks = {Mask()};
  Make(/*causal=*/true, {}, kLength * kPieces, kLength * kPieces);
  const KernelTask whole = tasks_[0];
  tasks_.clear();
  for (int64_t piece = 0; piece < kPieces; ++piece) {
    tasks_.push_back(whole);
    Task& task = tasks_.back().task;
    task.q_begin = task.k_begin = piece * kLength;
    task.q_end = task.k_end = (piece + 1) * kLength;
  }
  visible_ = std::make_unique<CallVisibility>(*harness_->job().mask, tasks_, *pool_);
  plan_ = PlanCall(tasks_, *visible_, kGroup);
  const std::vector<Phase> phases = PlanPhases(plan_, limits);
  ASSERT_EQ(phases.size(), 1u);
  EXPECT_EQ(phases[0].kept, 3) << "as many as the keys of a piece lie in";
  limits.most_kept = 2;
  const std::vector<Phase> ahead = PlanPhases(plan_, limits);
  EXPECT_EQ(MostKept(ahead), 0) << "no room";
  EXPECT_EQ(CountVisibleBlocks(phases), CountVisibleBlocks(ahead));
}

TEST_F(CallPlanTest, ItemsHoldWhatTheySeeAndNothingElse) {
  spec_.masks = {Mask()};
  spec_.masks[0].window_left = 100;
  Cuts cuts;
  cuts.keys = {700};
  Make(/*causal=*/true, cuts);
  for (const int64_t max_packs : {1, 6, 30}) {
    int64_t total = 0;
    for (const Phase& phase : PlanPhases(plan_, {max_packs, /*threads=*/1})) {
      EXPECT_FALSE(phase.items.empty());
      for (const Item& item : phase.items) {
        EXPECT_GT(item.cost, 0);
        total += item.cost;
        for (const int32_t u : item.units) {
          const Unit& unit = phase.units[u];
          const Task& task = tasks_[unit.task].task;
          const Interval keys{std::max(task.k_begin, unit.block_begin * kKeyBlock),
                              std::min(task.k_end, unit.block_end * kKeyBlock)};
          const Interval rows{item.tile * kTileRows / kGroup, (item.tile + 1) * kTileRows / kGroup};
          EXPECT_TRUE(harness_->job().mask->SeesAny(0, Intersect(rows, {0, kRows}), keys));
        }
      }
    }
    EXPECT_EQ(total, VisiblePairs());
  }
}

TEST_F(CallPlanTest, APlanCountsItsUnitsAndEndsWhenItIsToldToStop) {
  Make(/*causal=*/true, {});
  std::atomic<bool> stop{false};
  std::atomic<int64_t> progress{0};
  const KernelControl control{&stop, &progress};
  EXPECT_FALSE(PlanPhases(plan_, {1, /*threads=*/1}, control).empty());
  EXPECT_GE(progress.load(), kKeys / kKeyBlock);
  stop = true;
  EXPECT_TRUE(PlanPhases(plan_, {1, /*threads=*/1}, control).empty());
}

TEST_F(CallPlanTest, EachRowOfALongTaskSeesWhatTheMaskSays) {
  spec_.masks = {Mask()};
  spec_.masks[0].window_left = 99;
  Make(/*causal=*/true, {}, /*rows=*/9000, /*keys=*/9000);
  tasks_[0].task.q_begin = 100;
  const CallVisibility visible(*harness_->job().mask, tasks_, *pool_);
  for (int64_t row = 100; row < 9000; ++row) {
    const absl::Span<const Interval> seen = visible.Of(0, 0, row);
    ASSERT_EQ(seen.size(), 1u) << row;
    ASSERT_EQ(seen[0], (Interval{std::max<int64_t>(0, row - 99), row + 1})) << row;
  }
}

TEST_F(CallPlanTest, SourcesAreBuffersWithTheUnionOfTheirTasksRows) {
  Cuts cuts;
  cuts.key_shards = 2;
  cuts.keys = {100, 600};
  Make(/*causal=*/false, cuts);
  ASSERT_EQ(static_cast<int64_t>(plan_.sources.size()), cuts.key_shards);
  for (const KeySource& source : plan_.sources) {
    EXPECT_EQ(source.rows, (std::vector<Interval>{{0, kKeys / cuts.key_shards}}));
    EXPECT_EQ(source.head_begin, 0);
    EXPECT_EQ(source.head_end, kKvHeads);
  }
}

}  // namespace
}  // namespace annulus
