#include "attention/schedule/passes/segment_steps.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/model/needs.h"
#include "attention/sharding/visible_pairs.h"
#include "gtest/gtest.h"
#include "tests/attention/checker/checker.h"
#include "tests/attention/schedule/drift.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

struct Split {
  std::vector<RankSchedule> ranks;
  std::vector<ArenaPlan> placements;
};

Split SplitAll(const BuiltCase& built, const std::vector<int32_t>& parts) {
  Split split;
  for (const RankSchedule& rank : built.ranks) {
    split.ranks.push_back(SplitSteps(rank, built.request, parts));
    split.placements.push_back(PlanArena(split.ranks.back(), BlockLayout(built.spec), 4));
  }
  return split;
}

// A forward pass or gradients, also of sinks and a bias, with one sequence or two and random masks.
AttentionSpec DrawnSpec(std::mt19937_64& random) {
  const std::vector<Mask> masks = TestMasks();
  std::vector<Sequence> sequences;
  for (uint64_t n = 1 + random() % 2; n > 0; --n) {
    const auto length = static_cast<int64_t>(random() % 20);
    sequences.push_back(Lengths(length, length + static_cast<int64_t>(random() % 5)));
  }
  AttentionSpec spec = SmallSpec(6, 3, sequences, masks[random() % masks.size()]);
  VaryMasks(static_cast<int64_t>(random() % kMaskWays), &spec);
  if (random() % 2 == 0) {
    AskForGradients(random() % 3 == 0, &spec);
    if (random() % 3 == 0) AskForBiasGradient(random() % 2 == 0, &spec);
  }
  return spec;
}

TEST(SplitStepsTest, SplitSchedulesAreStillRight) {
  constexpr uint64_t kSeed = 11;
  std::mt19937_64 random(kSeed);
  int64_t gradients = 0;
  for (int i = 0; i < 800; ++i) {
    const std::vector<PlanOptions> plans = TestPlans(1 + random() % 5);
    const ScheduleCase one{DrawnSpec(random), plans[random() % plans.size()],
                           TestStrategies()[random() % TestStrategies().size()],
                           static_cast<int64_t>(random() % 64)};
    gradients += one.spec.operation == Operation::kGradients ? 1 : 0;
    const BuiltCase built(one);
    std::vector<int32_t> parts;
    for (size_t k = 0; k < built.ranks[0].steps.size(); ++k) parts.push_back(1 + random() % 6);
    const Split split = SplitAll(built, parts);
    const absl::Status checked = CheckSchedule(built.request, split.ranks, split.placements);
    ASSERT_TRUE(checked.ok()) << Describe(one) << ": " << checked << " seed " << kSeed;
    const absl::Status ran = RunDrifting(built, split.ranks, split.placements, random());
    ASSERT_TRUE(ran.ok()) << Describe(one) << ": " << ran << " seed " << kSeed;
    EXPECT_EQ(split.ranks[0].steps.size(), std::accumulate(parts.begin(), parts.end(), 0u));
  }
  EXPECT_GT(gradients, 300);
}

// Rank 1 of a deterministic job without a mask begins once it has the keys before its own.
TEST(SplitStepsTest, TransfersOfDeterministicJobsGoFirst) {
  for (const bool deterministic : {false, true}) {
    AttentionSpec spec = SmallSpec(8, 8, {Lengths(8192, 8192)}, TestMasks()[0]);
    spec.deterministic = deterministic;
    const BuiltCase built({spec, TestPlans(2)[0], Strategy::kRotateKv});
    const size_t steps = built.ranks[0].steps.size();
    const Split split = SplitAll(built, std::vector<int32_t>(steps, 12));
    ASSERT_TRUE(CheckSchedule(built.request, split.ranks, split.placements).ok());
    EXPECT_EQ(built.ranks[1].steps[0].tasks.empty(), deterministic);
    for (const RankSchedule& rank : split.ranks) {
      std::vector<size_t> sending;
      for (size_t k = 0; k < rank.steps.size(); ++k)
        if (!rank.steps[k].sends.empty()) sending.push_back(k);
      std::vector<size_t> expected(deterministic ? 2 : 12);
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(sending, expected);
    }
  }
}

TEST(SplitStepsTest, PartsCostAboutTheSame) {
  const BuiltCase built({SmallSpec(8, 2, {Lengths(8192, 8192)}, TestMasks()[1]), TestPlans(2)[1],
                         Strategy::kRingPassKv});
  std::vector<std::vector<int64_t>> costs;
  for (const RankSchedule& rank : built.ranks) costs.push_back(StepCosts(rank, built.request));
  const int64_t limit = 8 * 8192 * 512;
  const std::vector<int32_t> parts = StepParts(costs, limit);
  const Split split = SplitAll(built, parts);
  for (size_t r = 0; r < 2; ++r) {
    const std::vector<int64_t> after = StepCosts(split.ranks[r], built.request);
    EXPECT_EQ(std::accumulate(after.begin(), after.end(), int64_t{0}),
              std::accumulate(costs[r].begin(), costs[r].end(), int64_t{0}));
    EXPECT_LE(*std::max_element(after.begin(), after.end()), limit * 1.02);
  }
}

// Work of a part besides its pairs: keys that its rows see, and partials of rows.
int64_t LongestSide(const Step& step, const BuiltCase& built, const RankSchedule& rank) {
  int64_t keys = 0, rows = 0;
  for (const Task& task : step.tasks) {
    const Shard& queries = built.plan.shards[rank.buffers[task.q].shard];
    const RowMap& k_map = built.plan.shards[rank.buffers[task.kv].shard].kv_rows;
    for (const Interval& seen :
         VisibleKeys(built.mask, 0, queries.q_rows, {task.q_begin, task.q_end})) {
      keys += Intersect(k_map.Local(seen), {task.k_begin, task.k_end}).length();
    }
    rows += task.q_end - task.q_begin;
  }
  return std::max(keys, rows);
}

TEST(SplitStepsTest, PartsOfLongTasksHaveFewKeysAndFewRows) {
  constexpr int64_t kLength = int64_t{1} << 19, kLimit = int64_t{1} << 28;
  Mask window;
  window.causal = true;
  window.window_left = 20000;
  int64_t cut = 0, masked = 0, whole = 0;
  for (const PlanOptions& plan : TestPlans(2)) {
    if (plan.layout == Layout::kStriped) continue;  // Its pairs are counted row by row.
    for (const Mask& mask : {Mask(), TestMasks()[1], window}) {
      const BuiltCase built(
          {SmallSpec(1, 1, {Lengths(kLength, kLength)}, mask), plan, Strategy::kRingPassKv});
      std::vector<std::vector<int64_t>> costs;
      for (const RankSchedule& rank : built.ranks) costs.push_back(StepCosts(rank, built.request));
      const Split split = SplitAll(built, StepParts(costs, kLimit));
      const absl::Status checked = CheckSchedule(built.request, split.ranks, split.placements);
      EXPECT_TRUE(checked.ok()) << checked;
      for (const RankSchedule& rank : split.ranks) {
        const std::vector<int64_t> after = StepCosts(rank, built.request);
        EXPECT_LE(*std::max_element(after.begin(), after.end()), 1.02 * kLimit);
        for (const Step& step : rank.steps) {
          EXPECT_LE(LongestSide(step, built, rank), 5 * std::sqrt(kLimit));
          for (const Task& task : step.tasks) {
            cut += task.k_begin > 0 ? 1 : 0;
            // Only the squares on the diagonal of a causal task need masks.
            const bool causal = mask.causal && !mask.window_left.has_value();
            masked += causal && task.coverage == Coverage::kPartial ? 1 : 0;
            whole += causal && task.coverage == Coverage::kFull ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(cut, 1000);
  EXPECT_GT(whole, 5 * masked);
}

TEST(StepPartsTest, AreTheSameForAllAndBoundedBelowByOne) {
  EXPECT_EQ(StepParts({{10, 0, 5}, {1, 0, 21}}, 10), (std::vector<int32_t>{1, 1, 3}));
  EXPECT_EQ(StepParts({{10, 20}}, 0), (std::vector<int32_t>{1, 1}));
}

// Rank 1 sends to rank 0 in every step but the second; each rank has one long step.
TEST(LongestStepTest, CountsTheWaitForPeersThatComeLate) {
  std::vector<RankSchedule> ranks(2);
  for (RankSchedule& rank : ranks) rank.steps.resize(4);
  for (const int k : {0, 2, 3}) {
    ranks[0].steps[k].receives = {{0, 0, 1, 1}};
    ranks[1].steps[k].sends = {{0, 0, 1, 0}};
  }
  EXPECT_EQ(LongestStep(ranks, {{1, 1, 1, 1}, {1, 1, 1, 1}}), 1);
  EXPECT_EQ(LongestStep(ranks, {{1, 1, 1, 1}, {9, 1, 1, 1}}), 9);  // Rank 0 waits in step 2: 8 + 1,
  EXPECT_EQ(LongestStep(ranks, {{1, 1, 1, 1}, {9, 9, 1, 1}}), 17);   // and for both: 16 + 1.
  EXPECT_EQ(LongestStep(ranks, {{20, 1, 1, 1}, {1, 1, 1, 1}}), 20);  // Rank 1 waits: 19 + 1.
  EXPECT_EQ(LongestStep({}, {}), 0);
}

TEST(StepCostsTest, SumToTheVisiblePairsOfTheJob) {
  for (const PlanOptions& plan : TestPlans(3)) {
    const BuiltCase built(
        {SmallSpec(4, 2, {Lengths(200, 200)}, TestMasks()[1]), plan, Strategy::kRotateKv});
    int64_t all = 0;
    for (const RankSchedule& rank : built.ranks) {
      for (const int64_t cost : StepCosts(rank, built.request)) all += cost;
    }
    const int64_t pairs = 4 * 200 * 201 / 2;
    EXPECT_NEAR(all, pairs, plan.layout == Layout::kStriped ? pairs / 50 : 0);
  }
}

int64_t RunsOf(const RowMap& map) {
  int64_t runs = 0;
  map.ForEachRun({0, map.rows()}, [&](int64_t, int64_t, int64_t) { ++runs; });
  return runs;
}

TEST(VisiblePairsTest, CountsAndEstimatesAgreeWithTheFormula) {
  std::mt19937_64 random(3);
  std::map<Layout, int64_t> exact;
  for (int i = 0; i < 500; ++i) {
    const std::vector<Mask> masks = TestMasks();
    const std::vector<PlanOptions> plans = TestPlans(3);
    const Mask mask = masks[random() % masks.size()];
    const int64_t length = 1 + random() % 40;
    const BuiltCase built({SmallSpec(1, 1, {Lengths(length, length)}, mask),
                           plans[random() % plans.size()], Strategy::kRotateKv});
    const RowMap &q = built.plan.shards[random() % 3].q_rows,
                 &k = built.plan.shards[random() % 3].kv_rows;
    int64_t pairs = 0;
    for (int64_t a = 0; a < q.rows(); ++a) {
      for (int64_t b = 0; b < k.rows(); ++b) {
        pairs += VisibleByFormula(mask, built.spec.sequences[0], q.Global(a), k.Global(b)) ? 1 : 0;
      }
    }
    const LocalRectangle all{&q, &k, {0, q.rows()}, {0, k.rows()}, 0};
    EXPECT_EQ(VisiblePairs(built.mask, all), pairs);
    if (built.plan.layout == Layout::kStriped || RunsOf(q) * RunsOf(k) > 64) continue;
    EXPECT_EQ(EstimateVisiblePairs(built.mask, all), pairs);
    ++exact[built.plan.layout];
  }
  EXPECT_EQ(exact.size(), 4u);
}

TEST(CutSegmentsTest, CoverAllStepsInOrder) {
  for (int32_t steps = 0; steps < 12; ++steps) {
    for (int32_t wanted = 0; wanted < 15; ++wanted) {
      const std::vector<Segment> cut = SplitSegments(steps, wanted);
      ASSERT_EQ(cut.size(), static_cast<size_t>(std::min(std::max(wanted, 1), std::max(steps, 1))));
      EXPECT_EQ(cut.front().step_begin, 0);
      EXPECT_EQ(cut.back().step_end, steps);
      for (size_t i = 1; i < cut.size(); ++i) {
        EXPECT_EQ(cut[i].step_begin, cut[i - 1].step_end);
        EXPECT_LT(cut[i].step_begin, cut[i].step_end);
      }
      const auto shorter = [](const Segment& a, const Segment& b) {
        return a.step_end - a.step_begin < b.step_end - b.step_begin;
      };
      const auto [least, most] = std::minmax_element(cut.begin(), cut.end(), shorter);
      EXPECT_LE(most->step_end - most->step_begin, least->step_end - least->step_begin + 1);
    }
  }
}

}  // namespace
}  // namespace annulus
