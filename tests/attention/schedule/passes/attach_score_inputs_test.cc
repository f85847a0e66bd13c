// Bias and bit mask move with queries in every strategy, and the checker detects all errors in
// this.

#include "attention/schedule/passes/attach_score_inputs.h"

#include <algorithm>

#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/attention/checker/checker.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

AttentionSpec SpecWith(int32_t bias_heads, int32_t bit_heads) {
  AttentionSpec spec = SmallSpec(6, 3, {Lengths(23, 31), Lengths(9, 4)}, TestMasks()[1]);
  if (bias_heads > 0) spec.modifiers.bias = Bias{DataType::kFp16, bias_heads};
  spec.masks[0].bit_mask = bit_heads > 0;
  spec.bit_mask_heads = std::max(bit_heads, 1);
  return spec;
}

int64_t Count(const RankSchedule& schedule, BlockKind kind) {
  int64_t rows = 0;
  for (const Step& step : schedule.steps) {
    for (const Transfer& send : step.sends) {
      if (schedule.buffers[send.buffer].kind == kind) rows += send.row_end - send.row_begin;
    }
  }
  return rows;
}

absl::Status Check(const BuiltCase& built, const std::vector<RankSchedule>& ranks) {
  std::vector<ArenaPlan> placements;
  for (const RankSchedule& rank : ranks) {
    placements.push_back(PlanArena(rank, BlockLayout(built.spec), 4));
  }
  return CheckSchedule(built.request, ranks, placements);
}

TEST(AttachPairsTest, EveryStrategyAndLayoutPassesTheChecker) {
  constexpr int32_t kHeads[][2] = {{1, 0}, {6, 0}, {0, 1}, {0, 6}, {1, 6}, {6, 6}};
  for (const auto& heads : kHeads) {
    const AttentionSpec spec = SpecWith(heads[0], heads[1]);
    for (const Strategy strategy : TestStrategies()) {
      for (const int32_t world : {1, 2, 4, 5}) {
        for (const PlanOptions& plan : TestPlans(world)) {
          for (const Execution& execution : TestExecutions(strategy, world, 6)) {
            const BuiltCase built({spec, plan, execution});
            const absl::Status checked = Check(built, built.ranks);
            ASSERT_TRUE(checked.ok()) << Describe({spec, plan, execution}) << ": " << checked;
          }
        }
      }
    }
  }
}

// Tasks of sequences and heads without bits may be full.
TEST(AttachPairsTest, FullTasksBesideBitMasksPassTheChecker) {
  AttentionSpec spec = SpecWith(0, 6);
  spec.masks = {Mask(), Mask(), Mask()};
  spec.masks[1].query_heads = {0, 1};
  spec.masks[1].bit_mask = spec.masks[2].bit_mask = true;
  spec.sequences[1].mask = 2;
  for (const Strategy strategy : TestStrategies()) {
    const BuiltCase built({spec, TestPlans(3)[0], strategy});
    const absl::Status checked = Check(built, built.ranks);
    EXPECT_TRUE(checked.ok()) << Describe({spec, TestPlans(3)[0], strategy}) << ": " << checked;
    std::vector<RankSchedule> more = built.ranks;
    int full = 0, hidden = 0;
    for (RankSchedule& rank : more) {
      for (Step& step : rank.steps) {
        for (Task& task : step.tasks) {
          (task.coverage == Coverage::kFull ? full : hidden) += 1;
          task.coverage = Coverage::kFull;
        }
      }
    }
    EXPECT_GT(full, 0);
    EXPECT_GT(hidden, 0);
    EXPECT_FALSE(Check(built, more).ok());
  }
}

TEST(AttachPairsTest, NothingMovesWhereQueriesStay) {
  for (const Strategy strategy : TestStrategies()) {
    const BuiltCase built({SpecWith(6, 1), TestPlans(4)[0], strategy});
    for (const RankSchedule& rank : built.ranks) {
      EXPECT_EQ(Count(rank, BlockKind::kPairs), Count(rank, BlockKind::kQ));
    }
  }
}

// An input with one head for all is present once, even if queries are split by heads.
TEST(AttachPairsTest, WhatIsOfAllHeadsIsHeldOnce) {
  for (const int32_t heads : {1, 6}) {
    const BuiltCase built({SpecWith(heads, 0), TestPlans(3)[0], Strategy::kUlysses});
    for (const RankSchedule& rank : built.ranks) {
      const auto count = [&](BlockKind kind) {
        return std::count_if(rank.inputs.begin(), rank.inputs.end(),
                             [&](int32_t input) { return rank.buffers[input].kind == kind; });
      };
      EXPECT_EQ(count(BlockKind::kQ), 3);
      EXPECT_EQ(count(BlockKind::kPairs), heads == 1 ? 1 : 3);
    }
  }
}

TEST(AttachPairsTest, TheCheckerRefusesWhatLacksThem) {
  const BuiltCase built({SpecWith(6, 1), TestPlans(3)[0], Strategy::kRingPassQ});
  const auto refused = [&](const std::vector<RankSchedule>& ranks) {
    const absl::Status checked = Check(built, ranks);
    return !checked.ok() && DetailOf(checked).reason == "SCHEDULE_BROKEN";
  };
  std::vector<RankSchedule> none = built.ranks, other = built.ranks, left = built.ranks;
  Task& task = none[1].steps[1].tasks.at(0);
  task.pairs = -1;
  EXPECT_TRUE(refused(none));
  // The input belongs to queries of another shard.
  Task& wrong = other[1].steps[1].tasks.at(0);
  wrong.pairs = other[1].steps[0].tasks.at(0).pairs;
  EXPECT_TRUE(refused(other));
  // Neither side transfers them.
  for (RankSchedule& rank : left) {
    for (Step& step : rank.steps) {
      for (auto* list : {&step.sends, &step.receives}) {
        list->erase(std::remove_if(list->begin(), list->end(),
                                   [&](const Transfer& transfer) {
                                     return rank.buffers[transfer.buffer].kind == BlockKind::kPairs;
                                   }),
                    list->end());
      }
    }
  }
  EXPECT_TRUE(refused(left));
  // A task uses such an input although the job has none.
  const BuiltCase plain({SpecWith(0, 0), TestPlans(3)[0], Strategy::kRingPassQ});
  std::vector<RankSchedule> more = plain.ranks;
  more[1].steps[1].tasks.at(0).pairs = more[1].steps[1].tasks.at(0).q;
  std::vector<ArenaPlan> placements;
  for (const RankSchedule& rank : more) {
    placements.push_back(PlanArena(rank, BlockLayout(plain.spec), 4));
  }
  EXPECT_FALSE(CheckSchedule(plain.request, more, placements).ok());
}

}  // namespace
}  // namespace annulus
