// Deterministic jobs: with any plan, each row and head meets the same parts of the same tiles of
// keys in the same order. Verified row by row on the schedules' data.

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <tuple>

#include "attention/spec/parallel_degrees.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/attention/checker/checker.h"
#include "tests/attention/schedule/drift.h"
#include "tests/attention/schedule/schedule_cases.h"
#include "tests/seed.h"

namespace annulus {
namespace {

constexpr int64_t kTile = 4;
constexpr Strategy kStrategies[] = {
    Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kRotateKv,  Strategy::kHalo,
    Strategy::kUlysses,    Strategy::kUlyssesRing, Strategy::kDoubleRing};
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kZigzag, Layout::kStriped,
                               Layout::kZigzagPerSequence, Layout::kByArea};

// The keys of one tile that a row sees together.
struct Part {
  int64_t tile;
  std::vector<int64_t> keys;
  friend bool operator==(const Part& a, const Part& b) {
    return a.tile == b.tile && a.keys == b.keys;
  }
};
using Fold = std::vector<Part>;
// Key: (packed query row, head).
using Folds = std::map<std::pair<int64_t, int32_t>, Fold>;

bool Sees(const MaskMap& mask, int32_t head, int64_t row, int64_t key) {
  for (const Interval& seen : mask.VisiblePacked(head, row)) {
    if (key >= seen.begin && key < seen.end) return true;
  }
  return false;
}

// A kernel processes a task's keys by local blocks of a tile.
void Walk(const BuiltCase& built, const RankSchedule& schedule, const Task& task, Folds* folds) {
  const RowMap& q_rows = built.plan.shards[schedule.buffers[task.q].shard].q_rows;
  const RowMap& k_rows = built.plan.shards[schedule.buffers[task.kv].shard].kv_rows;
  for (int64_t q = task.q_begin; q < task.q_end; ++q) {
    for (int32_t head = task.head_begin; head < task.head_end; ++head) {
      const int64_t row = q_rows.Global(q);
      Fold& fold = (*folds)[{row, head}];
      int64_t block = -1;
      for (int64_t k = task.k_begin; k < task.k_end; ++k) {
        const int64_t key = k_rows.Global(k);
        if (!Sees(built.mask, head, row, key)) continue;
        if (k / kTile != block) fold.push_back({key / kTile, {}});
        block = k / kTile;
        fold.back().keys.push_back(key);
      }
    }
  }
}

Folds FoldsOf(const BuiltCase& built) {
  Folds folds;
  for (const RankSchedule& schedule : built.ranks) {
    for (const Step& step : schedule.steps) {
      for (const Task& task : step.tasks) {
        if (task.out_q >= 0) Walk(built, schedule, task, &folds);
      }
    }
  }
  for (auto each = folds.begin(); each != folds.end();) {
    each = each->second.empty() ? folds.erase(each) : std::next(each);
  }
  return folds;
}

// Derived from the mask alone.
Folds Expected(const AttentionSpec& spec) {
  const MaskMap mask(spec);
  Folds folds;
  for (int64_t row = 0; row < spec.q_rows(); ++row) {
    for (int32_t head = 0; head < spec.q_heads; ++head) {
      for (int64_t key = 0; key < spec.kv_rows(); ++key) {
        if (!Sees(mask, head, row, key)) continue;
        Fold& fold = folds[{row, head}];
        if (fold.empty() || fold.back().tile != key / kTile) fold.push_back({key / kTile, {}});
        fold.back().keys.push_back(key);
      }
    }
  }
  return folds;
}

PlanOptions Plan(int32_t world, Layout layout) { return {world, layout, kTile, kTile}; }

// The contribution to a key from the queries of one tile, for heads that are processed together.
struct KeyPart {
  int64_t tile;
  int32_t first_head;
  std::vector<std::pair<int64_t, int32_t>> rows;  // Packed query row, head.
  friend bool operator==(const KeyPart& a, const KeyPart& b) {
    return a.tile == b.tile && a.first_head == b.first_head && a.rows == b.rows;
  }
};
// Key: (packed key row, key/value head).
using KeyFolds = std::map<std::pair<int64_t, int32_t>, std::vector<KeyPart>>;

// A kernel processes a task's queries by local stripes of a tile.
void WalkKeys(const BuiltCase& built, const RankSchedule& schedule, const Task& task,
              KeyFolds* folds) {
  const RowMap& q_rows = built.plan.shards[schedule.buffers[task.q].shard].q_rows;
  const RowMap& k_rows = built.plan.shards[schedule.buffers[task.kv].shard].kv_rows;
  const int32_t group = built.spec.q_heads / built.spec.kv_heads;
  for (int64_t k = task.k_begin; k < task.k_end; ++k) {
    std::map<int32_t, int64_t> stripe;  // The current stripe, by key/value head.
    for (int64_t q = task.q_begin; q < task.q_end; ++q) {
      for (int32_t head = task.head_begin; head < task.head_end; ++head) {
        const int64_t row = q_rows.Global(q), key = k_rows.Global(k);
        if (!Sees(built.mask, head, row, key)) continue;
        std::vector<KeyPart>& fold = (*folds)[{key, head / group}];
        const auto [at, added] = stripe.try_emplace(head / group, q / kTile);
        const int32_t first_head = std::max(task.head_begin, head / group * group);
        if (added || at->second != q / kTile) fold.push_back({row / kTile, first_head, {}});
        at->second = q / kTile;
        fold.back().rows.push_back({row, head});
      }
    }
  }
}

KeyFolds KeyFoldsOf(const BuiltCase& built) {
  KeyFolds folds;
  for (const RankSchedule& schedule : built.ranks) {
    for (const Step& step : schedule.steps) {
      for (const Task& task : step.tasks) {
        if (task.out_kv >= 0) WalkKeys(built, schedule, task, &folds);
      }
    }
  }
  return folds;
}

// Derived from the mask alone.
KeyFolds ExpectedOfKeys(const AttentionSpec& spec) {
  const MaskMap mask(spec);
  const int32_t group = spec.q_heads / spec.kv_heads;
  KeyFolds folds;
  for (int64_t key = 0; key < spec.kv_rows(); ++key) {
    for (int64_t tile = 0; tile * kTile < spec.q_rows(); ++tile) {
      for (const MaskMap::HeadRun& run : mask.head_runs()) {
        std::map<int32_t, KeyPart> parts;  // By key/value head.
        for (int64_t row = tile * kTile; row < std::min((tile + 1) * kTile, spec.q_rows()); ++row) {
          for (int32_t head = run.begin; head < run.end; ++head) {
            if (!Sees(mask, head, row, key)) continue;
            const int32_t first_head = std::max(run.begin, head / group * group);
            parts.try_emplace(head / group, KeyPart{tile, first_head, {}});
            parts[head / group].rows.push_back({row, head});
          }
        }
        for (const auto& [kv_head, part] : parts) folds[{key, kv_head}].push_back(part);
      }
    }
  }
  return folds;
}

struct AllFolds {
  explicit AllFolds(const AttentionSpec& spec) : of_queries(Expected(spec)) {
    if (spec.operation == Operation::kGradients) of_keys = ExpectedOfKeys(spec);
  }
  Folds of_queries;
  KeyFolds of_keys;
};

void ExpectTheFold(const ScheduleCase& one, const AllFolds& expected) {
  SCOPED_TRACE(Describe(one));
  const BuiltCase built(one);
  const absl::Status checked = CheckSchedule(built.request, built.ranks, built.placements);
  EXPECT_TRUE(checked.ok()) << checked;
  EXPECT_TRUE(FoldsOf(built) == expected.of_queries);
  EXPECT_TRUE(KeyFoldsOf(built) == expected.of_keys);
  const bool drifts = one.plan.world_size == 3 || one.execution.ulysses_degree > 1;
  if (one.spec.operation == Operation::kForward || !drifts) return;
  const absl::Status ran = RunDrifting(built, built.ranks, built.placements, /*seed=*/7);
  EXPECT_TRUE(ran.ok()) << ran;
}

void ExpectTheFoldEverywhere(const AttentionSpec& spec) {
  const AllFolds expected(spec);
  for (int32_t world = 1; world <= 5; ++world) {
    for (const Layout layout : kLayouts) {
      for (const Strategy strategy : kStrategies) {
        for (const Execution& execution : TestExecutions(strategy, world, spec.q_heads)) {
          const int32_t degree = execution.ulysses_degree;
          if (SharesKeyHeads(spec, degree) || SharesBiasGradient(spec, degree)) continue;
          ExpectTheFold({spec, Plan(world, layout), execution}, expected);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(FoldOrderTest, EveryPlanFoldsEveryMaskAlike) {
  int64_t way = 0;
  for (const Mask& mask : TestMasks()) {
    AttentionSpec spec = SmallSpec(4, 2, {Lengths(19, 23), Lengths(6, 9)}, mask);
    VaryMasks(way++, &spec);
    spec.deterministic = true;
    ExpectTheFoldEverywhere(spec);
    if (HasFailure()) return;
  }
}

TEST(FoldOrderTest, EveryPlanFoldsGradientsAlike) {
  int64_t way = 0;
  for (const Mask& mask : TestMasks()) {
    const int32_t kv_heads = way % 4 == 3 ? 4 : 2;
    AttentionSpec spec = SmallSpec(4, kv_heads, {Lengths(19, 23), Lengths(6, 9)}, mask);
    VaryMasks(way++, &spec);
    spec.deterministic = true;
    AskForGradients(way % 2 == 0, &spec);
    if (way % 3 == 0) AskForBiasGradient(/*of_heads=*/true, &spec);
    ExpectTheFoldEverywhere(spec);
    if (HasFailure()) return;
  }
}

TEST(FoldOrderTest, AnyLengths) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937 random(seed);
  const std::vector<Mask> masks = TestMasks();
  for (int i = 0; i < 12; ++i) {
    std::vector<Sequence> sequences(1 + random() % 4);
    for (Sequence& each : sequences) each = Lengths(random() % 20, random() % 30);
    AttentionSpec spec = SmallSpec(6, 3, sequences, masks[random() % masks.size()]);
    VaryMasks(random() % kMaskWays, &spec);
    spec.deterministic = true;
    if (i % 2 == 1) AskForGradients(/*with_sinks=*/false, &spec);
    ExpectTheFoldEverywhere(spec);
    if (HasFailure()) return;
  }
}

TEST(FoldOrderTest, APlainRingFoldsOtherwise) {
  Mask causal;
  causal.causal = true;
  AttentionSpec spec = SmallSpec(1, 1, {Lengths(16, 16)}, causal);
  const BuiltCase plain({spec, Plan(2, Layout::kZigzag), Strategy::kRingPassKv});
  EXPECT_FALSE(FoldsOf(plain) == Expected(spec));
}

TEST(FoldOrderTest, WhatMergesPartialsHasNoSchedule) {
  AttentionSpec spec = SmallSpec(1, 1, {Lengths(16, 16)}, Mask());
  spec.deterministic = true;
  const MaskMap mask(spec);
  const ShardPlan plan = *MakeShardPlan(spec, Plan(2, Layout::kContiguous));
  for (const Strategy strategy : {Strategy::kRingPassQ, Strategy::kTree}) {
    const Execution execution = TestExecutions(strategy, 2, 1)[0];
    EXPECT_FALSE(MakeGroupSchedules({&spec, &mask, &plan, execution}).ok());
  }
  AskForGradients(/*with_sinks=*/false, &spec);
  for (const Strategy strategy : {Strategy::kRingPassQ, Strategy::kTree, Strategy::kUlysses}) {
    const Execution execution = TestExecutions(strategy, 2, 1)[0];
    EXPECT_FALSE(MakeGroupSchedules({&spec, &mask, &plan, execution}).ok());
  }
}

TEST(FoldOrderTest, TheCheckerRefusesOtherOrdersAndCutTiles) {
  AttentionSpec spec = SmallSpec(2, 1, {Lengths(24, 24)}, Mask());
  spec.deterministic = true;
  const BuiltCase built({spec, Plan(2, Layout::kZigzag), Strategy::kAllGatherKv});
  const auto refused = [&](const std::vector<RankSchedule>& ranks) {
    return DetailOf(CheckSchedule(built.request, ranks, built.placements)).reason ==
           "SCHEDULE_BROKEN";
  };
  EXPECT_FALSE(refused(built.ranks));
  int damaged = 0;
  for (size_t rank = 0; rank < 2; ++rank) {
    for (size_t k = 0; k < built.ranks[rank].steps.size(); ++k) {
      const std::vector<Task>& tasks = built.ranks[rank].steps[k].tasks;
      for (size_t t = 0; t < tasks.size(); ++t) {
        std::vector<RankSchedule> ranks = built.ranks;
        std::vector<Task>& mutated = ranks[rank].steps[k].tasks;
        if (t > 0 && tasks[t].out_q == tasks[t - 1].out_q &&
            tasks[t].q_begin < tasks[t - 1].q_end && tasks[t - 1].q_begin < tasks[t].q_end) {
          std::swap(mutated[t], mutated[t - 1]);
          EXPECT_TRUE(refused(ranks)) << rank << " " << k << " " << t;
          ++damaged;
          mutated = tasks;
        }
        if (tasks[t].k_end - tasks[t].k_begin < 2) continue;
        Task rest = mutated[t];
        rest.k_begin = --mutated[t].k_end;
        mutated.insert(mutated.begin() + static_cast<int64_t>(t) + 1, rest);
        EXPECT_TRUE(refused(ranks)) << rank << " " << k << " " << t;
        ++damaged;
      }
    }
  }
  EXPECT_GT(damaged, 6);
}

TEST(FoldOrderTest, TheCheckerRefusesGradientsInOtherOrdersAndSumsThatMove) {
  AttentionSpec spec = SmallSpec(2, 1, {Lengths(24, 24)}, Mask());
  spec.deterministic = true;
  AskForGradients(/*with_sinks=*/false, &spec);
  const BuiltCase built({spec, Plan(2, Layout::kZigzag), Strategy::kAllGatherKv});
  const auto refused = [&](const std::vector<RankSchedule>& ranks) {
    return DetailOf(CheckSchedule(built.request, ranks, built.placements)).reason ==
           "SCHEDULE_BROKEN";
  };
  EXPECT_FALSE(refused(built.ranks));
  int swapped = 0, cut = 0;
  for (size_t k = 0; k < built.ranks[0].steps.size(); ++k) {
    const std::vector<Task>& tasks = built.ranks[0].steps[k].tasks;
    for (size_t t = 0; t < tasks.size(); ++t) {
      if (tasks[t].out_kv < 0) continue;
      std::vector<RankSchedule> ranks = built.ranks;
      std::vector<Task>& mutated = ranks[0].steps[k].tasks;
      for (size_t u = 0; u < t; ++u) {
        if (tasks[u].out_kv != tasks[t].out_kv || tasks[t].k_begin != tasks[u].k_begin) continue;
        std::swap(mutated[t], mutated[u]);
        EXPECT_TRUE(refused(ranks)) << k << " " << u << " " << t;
        ++swapped;
        mutated = tasks;
      }
      Task rest = mutated[t];
      rest.q_begin = --mutated[t].q_end;
      mutated.insert(mutated.begin() + static_cast<int64_t>(t) + 1, rest);
      EXPECT_TRUE(refused(ranks)) << k << " " << t;
      ++cut;
    }
  }
  EXPECT_GT(swapped, 1);
  EXPECT_GT(cut, 4);
  // The ordinary schedule of gradients sends sums.
  AttentionSpec plain = spec;
  plain.deterministic = false;
  const BuiltCase other({plain, Plan(2, Layout::kZigzag), Strategy::kAllGatherKv});
  EXPECT_EQ(DetailOf(CheckSchedule(built.request, other.ranks, other.placements)).reason,
            "SCHEDULE_BROKEN");
}

}  // namespace
}  // namespace annulus
