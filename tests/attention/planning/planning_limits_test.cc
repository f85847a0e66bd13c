// Executions that would take too long to plan: deterministic gradients in one pass meet each run of
// keys by tiles of queries, and striped ranks share every sequence.

#include "absl/strings/str_cat.h"
#include "attention/mask/mask.h"
#include "attention/planning/choose_execution.h"
#include "attention/schedule/schedule.h"
#include "attention/spec/parallel_degrees.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/attention/planning/cost_cases.h"

namespace annulus {
namespace {

AttentionSpec Gradients(int64_t rows, int32_t heads) {
  AttentionSpec spec = CostSpec(rows, rows, false);
  spec.q_heads = spec.kv_heads = heads;
  spec.operation = Operation::kGradients;
  spec.deterministic = true;
  return spec;
}

Execution Striped(int32_t stripe) {
  Execution wanted;
  wanted.world_size = 2;
  wanted.strategy = Strategy::kUlysses;
  wanted.layout = Layout::kStriped;
  wanted.stripe = stripe;
  return wanted;
}

int64_t TasksOf(const AttentionSpec& spec, const Execution& wanted) {
  const MaskMap mask(spec);
  const auto plan =
      MakeShardPlan(spec, {wanted.world_size, wanted.layout, wanted.stripe, GranuleOf(spec)});
  const Execution way = ResolveDegrees(wanted, wanted.world_size, spec.q_heads).front();
  const auto ranks = MakeGroupSchedules({&spec, &mask, &*plan, way});
  int64_t tasks = 0;
  for (const RankSchedule& rank : *ranks) {
    for (const Step& step : rank.steps) tasks += static_cast<int64_t>(step.tasks.size());
  }
  return tasks;
}

// 2 heads; each meets all tiles and all stripes.
TEST(PlanningLimitsTest, EveryTileOfQueriesMeetsEveryStripe) {
  EXPECT_EQ(TasksOf(Gradients(1 << 14, 2), Striped(1024)), 2 * 64 * 16);
}

TEST(PlanningLimitsTest, AWayOfTooManyIsRefusedBeforeItIsMade) {
  const AttentionSpec spec = Gradients(1 << 26, 2);
  const absl::Status status = ChooseExecution(spec, Striped(1 << 18), Offer({1, 2})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const ErrorDetail detail = DetailOf(status);
  EXPECT_EQ(detail.reason, "LIMIT_EXCEEDED");
  EXPECT_EQ(detail.fields.at(0).field, "execution.strategy");
  EXPECT_EQ(detail.metadata.at("requested"), absl::StrCat(int64_t{2} << 26));
  EXPECT_EQ(detail.metadata.at("limit"), absl::StrCat(kMaxFoldTasks));
}

TEST(PlanningLimitsTest, AutoTakesAnotherWay) {
  Execution wanted = Striped(1 << 18);
  wanted.strategy = Strategy::kAuto;
  const auto candidates = ChooseExecution(Gradients(1 << 26, 2), wanted, Offer({2}));
  ASSERT_TRUE(candidates.ok()) << candidates.status();
  bool refused = false;
  for (const Candidate& candidate : *candidates) {
    if (candidate.execution.strategy != Strategy::kUlysses) continue;
    refused = true;
    EXPECT_NE(candidate.rejected.find("134217728 tasks"), std::string::npos) << candidate.rejected;
    EXPECT_TRUE(candidate.cost.bytes_sent.empty());
  }
  EXPECT_TRUE(refused);
}

// Heads with separate masks.
TEST(PlanningLimitsTest, ALayoutThatNoWayServesIsNamed) {
  AttentionSpec spec = Gradients(1 << 26, 8);
  for (int32_t head = 0; head < 8; ++head) {
    Mask& mask = spec.masks.emplace_back();
    mask.prefix = head + 1;
    mask.causal = true;
    mask.query_heads = {head};
  }
  Execution wanted;
  wanted.world_size = 2;
  const auto refused_at = [&] {
    const ErrorDetail detail = DetailOf(ChooseExecution(spec, wanted, Offer({1, 2})).status());
    EXPECT_EQ(detail.reason, "LIMIT_EXCEEDED");
    return detail.fields.at(0).field;
  };
  EXPECT_EQ(refused_at(), "spec.sequences");
  wanted.layout = Layout::kZigzag;
  EXPECT_EQ(refused_at(), "execution.layout");
}

TEST(PlanningLimitsTest, AMillionTokensOnEightRanksAreServed) {
  for (const int32_t heads : {8, 64}) {
    Execution wanted;
    wanted.world_size = 8;
    wanted.strategy = Strategy::kUlysses;
    const auto candidates = ChooseExecution(Gradients(1 << 20, heads), wanted, Offer({8}));
    ASSERT_TRUE(candidates.ok()) << candidates.status();
    for (const Candidate& candidate : *candidates) {
      EXPECT_EQ(candidate.cost.bytes_sent.size(), 8u) << candidate.rejected;
    }
  }
}

// The limit allows this many sequences for four ranks, but not for sixteen.
TEST(PlanningLimitsTest, StripesOfManySequencesAreForFewRanks) {
  AttentionSpec spec = CostSpec(16, 16, true);
  spec.sequences.assign(4096, {16, 16, "", 0, 0});
  Mask& mask = spec.masks.emplace_back();
  mask.query_heads = {1};
  Execution wanted;
  wanted.layout = Layout::kStriped;
  wanted.strategy = Strategy::kRingPassKv;
  Choice choice = Offer({1, 4, 16});
  choice.count_all = true;
  const auto candidates = ChooseExecution(spec, wanted, choice);
  ASSERT_TRUE(candidates.ok()) << candidates.status();
  for (const Candidate& candidate : *candidates) {
    EXPECT_EQ(candidate.rejected.find("striped") != std::string::npos,
              candidate.execution.world_size == 16)
        << candidate.rejected;
  }
  const absl::Status status = ChooseExecution(spec, wanted, Offer({16})).status();
  EXPECT_EQ(DetailOf(status).reason, "LIMIT_EXCEEDED") << status;
  EXPECT_EQ(DetailOf(status).fields.at(0).field, "execution.layout");
}

TEST(PlanningLimitsTest, ZigzagOfManySequencesIsForFewRanks) {
  AttentionSpec spec = CostSpec(16, 16, true);
  spec.sequences.assign(1024, {16, 16, "", 0, 0});
  Execution wanted;
  wanted.layout = Layout::kZigzagPerSequence;
  wanted.strategy = Strategy::kRingPassKv;
  const auto candidates = ChooseExecution(spec, wanted, Offer({8, 16}));
  ASSERT_TRUE(candidates.ok()) << candidates.status();
  ASSERT_EQ(candidates->size(), 2u);
  EXPECT_EQ(candidates->front().execution.world_size, 8);
  EXPECT_NE(candidates->back().rejected.find("16384 cuts of sequences"), std::string::npos);
  const absl::Status status = ChooseExecution(spec, wanted, Offer({16})).status();
  EXPECT_EQ(DetailOf(status).reason, "LIMIT_EXCEEDED") << status;
  EXPECT_EQ(DetailOf(status).fields.at(0).field, "execution.layout");
}

}  // namespace
}  // namespace annulus
