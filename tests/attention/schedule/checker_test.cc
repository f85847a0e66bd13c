// Schedules written by hand, in a form that no builder makes yet: queries travel, partials return
// home and merge there. The checker and the drifting ranks must support it too.

#include "tests/attention/checker/checker.h"

#include <algorithm>
#include <functional>
#include <string>

#include "attention/schedule/model/block_layout.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/attention/schedule/drift.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

constexpr int64_t kRows = 3;

// Buffers of each rank.
enum : int32_t {
  kOwnQ,
  kOwnKeys,
  kState,
  kOut,
  kOtherQ,
  kOtherState,
  kArriving,
};

Task Attend(int32_t q, int32_t out) {
  Task task;
  task.q = q;
  task.kv = kOwnKeys;
  task.out_q = out;
  task.q_end = task.k_end = kRows;
  task.head_end = 2;
  task.coverage = Coverage::kFull;
  return task;
}

// Ring pass-Q over two ranks: exchange queries; attend to the other's; send the partial home;
// merge.
RankSchedule PassQ(int32_t rank) {
  const int32_t other = 1 - rank;
  const auto block = [](BlockKind kind, int32_t shard, int32_t heads) {
    return Block{kind, shard, 0, kRows, 0, heads};
  };
  RankSchedule schedule;
  schedule.buffers = {block(BlockKind::kQ, rank, 2),       block(BlockKind::kKv, rank, 1),
                      block(BlockKind::kPartial, rank, 2), block(BlockKind::kOut, rank, 2),
                      block(BlockKind::kQ, other, 2),      block(BlockKind::kPartial, other, 2),
                      block(BlockKind::kPartial, rank, 2)};
  schedule.inputs = {kOwnQ, kOwnKeys};
  schedule.outputs = {kOut};
  schedule.steps.resize(3);
  schedule.steps[0].sends = {{kOwnQ, 0, kRows, other}};
  schedule.steps[0].receives = {{kOtherQ, 0, kRows, other}};
  schedule.steps[0].tasks = {Attend(kOwnQ, kState)};
  schedule.steps[1].tasks = {Attend(kOtherQ, kOtherState)};
  schedule.steps[2].sends = {{kOtherState, 0, kRows, other}};
  schedule.steps[2].receives = {{kArriving, 0, kRows, other}};
  schedule.steps[2].ops = {{Op::Kind::kMerge, kArriving, kState},
                           {Op::Kind::kFinish, kState, kOut}};
  return schedule;
}

using Edit = std::function<void(std::vector<RankSchedule>&)>;

struct Verdict {
  absl::Status checked;
  bool always_right = true;  // In 30 runs of drifting ranks.
};

Verdict Judge(const Edit& edit) {
  const BuiltCase built({SmallSpec(2, 1, {Lengths(2 * kRows, 2 * kRows)}, Mask()), TestPlans(2)[0],
                         Strategy::kRingPassKv});
  std::vector<RankSchedule> ranks = {PassQ(0), PassQ(1)};
  edit(ranks);
  std::vector<ArenaPlan> placements;
  for (const RankSchedule& rank : ranks) {
    placements.push_back(PlanArena(rank, BlockLayout(built.spec), 4));
  }
  Verdict verdict{CheckSchedule(built.request, ranks, placements)};
  for (int seed = 0; seed < 30; ++seed) {
    verdict.always_right = verdict.always_right && RunDrifting(built, ranks, placements, seed).ok();
  }
  return verdict;
}

std::string RuleBroken(const Edit& edit) {
  const Verdict verdict = Judge(edit);
  EXPECT_FALSE(verdict.always_right);
  return DetailOf(verdict.checked).metadata["rule"];
}

TEST(CheckerTest, PartialsThatComeHomeAreUnderstood) {
  const Verdict verdict = Judge([](std::vector<RankSchedule>&) {});
  EXPECT_TRUE(verdict.checked.ok()) << verdict.checked;
  EXPECT_TRUE(verdict.always_right);
}

TEST(CheckerTest, APartialThatIsMergedTwiceIsRefused) {
  EXPECT_EQ(RuleBroken([](auto& ranks) {
              auto& ops = ranks[0].steps[2].ops;
              ops.insert(ops.begin(), ops[0]);
            }),
            "a key is attended twice");
}

TEST(CheckerTest, APartialThatIsNeverMergedIsRefused) {
  EXPECT_EQ(
      RuleBroken([](auto& ranks) { ranks[1].steps[2].ops.erase(ranks[1].steps[2].ops.begin()); }),
      "a visible key is never attended");
}

TEST(CheckerTest, AFinishBeforeTheMergeIsRefused) {
  EXPECT_EQ(RuleBroken(
                [](auto& ranks) { std::swap(ranks[0].steps[2].ops[0], ranks[0].steps[2].ops[1]); }),
            "a visible key is never attended");
}

// Wrong in some runs only: a test with one run may pass by chance.
TEST(CheckerTest, APartialThatLeavesInTheStepThatComputesItIsRefused) {
  EXPECT_EQ(RuleBroken([](auto& ranks) {
              for (RankSchedule& rank : ranks) {
                rank.steps[2].tasks = rank.steps[1].tasks;
                rank.steps[1].tasks.clear();
              }
            }),
            "a task writes a buffer that is being sent");
}

TEST(CheckerTest, QueriesUsedWhileTheyArriveAreRefused) {
  EXPECT_EQ(RuleBroken([](auto& ranks) {
              for (RankSchedule& rank : ranks) {
                rank.steps[0].tasks.push_back(rank.steps[1].tasks[0]);
                rank.steps[1].tasks.clear();
              }
            }),
            "a task touches a buffer that is being received");
}

TEST(CheckerTest, OneSlotForTwoBlocksOfKeysIsRefused) {
  const BuiltCase built(
      {SmallSpec(1, 1, {Lengths(9, 9)}, Mask()), TestPlans(3)[0], Strategy::kRingPassKv});
  std::vector<ArenaPlan> placements = built.placements;
  std::vector<size_t> keys;
  for (size_t i = 0; i < built.ranks[0].buffers.size(); ++i) {
    if (built.ranks[0].buffers[i].kind == BlockKind::kKv) keys.push_back(i);
  }
  ASSERT_EQ(keys.size(), 3u);
  placements[0].slots[keys[1]].offset = placements[0].slots[keys[2]].offset;
  const absl::Status status = CheckSchedule(built.request, built.ranks, placements);
  EXPECT_EQ(DetailOf(status).metadata["rule"], "live buffers overlap in memory");
}

TEST(CheckerTest, AnAccumulatorThatIsNotAliveIsRefused) {
  AttentionSpec spec = SmallSpec(1, 1, {Lengths(9, 9)}, Mask());
  spec.operation = Operation::kGradients;
  spec.modifiers.bias.emplace();
  spec.gradients.d_bias = true;
  const BuiltCase built({spec, TestPlans(2)[0], Strategy::kRingPassKv});
  ASSERT_TRUE(CheckSchedule(built.request, built.ranks, built.placements).ok());
  const auto& steps = built.ranks[0].steps;
  const auto step =
      std::find_if(steps.begin(), steps.end(), [](const Step& one) { return !one.tasks.empty(); });
  ASSERT_NE(step, steps.end());
  const Task& task = step->tasks[0];
  for (const int32_t buffer : {task.out_q, task.out_kv, task.out_bias}) {
    ASSERT_GE(buffer, 0);
    std::vector<ArenaPlan> placements = built.placements;
    ArenaPlan::Slot& slot = placements[0].slots[buffer];
    slot.born = slot.dies = static_cast<int32_t>(2 * steps.size());
    const absl::Status status = CheckSchedule(built.request, built.ranks, placements);
    EXPECT_EQ(DetailOf(status).metadata["rule"], "a buffer is used outside its lifetime") << buffer;
  }
}

TEST(CheckerTest, SaysWhereAndRefusesTheOtherOperation) {
  const Verdict verdict =
      Judge([](auto& ranks) { ranks[1].steps[1].tasks[0].coverage = Coverage::kEmpty; });
  EXPECT_EQ(verdict.checked.code(), absl::StatusCode::kFailedPrecondition);
  const ErrorDetail detail = DetailOf(verdict.checked);
  EXPECT_EQ(detail.reason, "SCHEDULE_BROKEN");
  EXPECT_EQ(detail.metadata.at("rank"), "1");
  EXPECT_EQ(detail.metadata.at("step"), "1");

  AttentionSpec gradients = SmallSpec(1, 1, {Lengths(4, 4)}, Mask());
  const BuiltCase built({gradients, TestPlans(2)[0], Strategy::kRingPassKv});
  gradients.operation = Operation::kGradients;
  ScheduleRequest request = built.request;
  request.spec = &gradients;
  const absl::Status other = CheckSchedule(request, built.ranks, built.placements);
  EXPECT_EQ(DetailOf(other).metadata["rule"], "a schedule holds a block of the other operation");
}

}  // namespace
}  // namespace annulus
