#include "server/coordinator/planning/planner.h"

#include <algorithm>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/planning/cost_model.h"
#include "attention/schedule/arena/arena_plan.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/passes/segment_steps.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "server/coordinator/state/submission.h"

namespace annulus {
namespace {

v1::RunJobRequest Request(int32_t world_size, int64_t rows) {
  v1::RunJobRequest request;
  v1::AttentionSpec& spec = *request.mutable_spec();
  spec.set_dtype(v1::DATA_TYPE_FP32);
  spec.set_q_heads(2);
  spec.set_kv_heads(1);
  spec.set_head_dim(16);
  spec.add_sequences()->set_q_len(rows);
  spec.mutable_sequences(0)->set_kv_len(rows);
  spec.add_masks()->set_causal(true);
  request.mutable_execution()->set_world_size(world_size);
  return request;
}

PlanRequest Plan(const v1::RunJobRequest& request, const Rates& rates) {
  PlanRequest plan;
  plan.submission = *MakeSubmission(request, CoordinatorOptions());
  plan.execution = plan.submission->execution;
  plan.sizes = {1, std::max(1, request.execution().world_size())};
  plan.rates = rates;
  plan.max_device_bytes = plan.max_staging_bytes = int64_t{1} << 40;
  return plan;
}

// Schedules as the workers derive them from a plan.
std::vector<RankSchedule> SplitRanks(const PlanRequest& request, const JobPlan& plan,
                                     const ScheduleRequest& schedule) {
  std::vector<RankSchedule> ranks;
  const std::vector<RankSchedule> whole = *MakeGroupSchedules(schedule);
  for (const RankSchedule& rank : whole) {
    ranks.push_back(SplitSteps(rank, schedule, plan.parts_of_step));
  }
  EXPECT_EQ(request.submission->execution.world_size, static_cast<int32_t>(ranks.size()));
  return ranks;
}

TEST(PlannerTest, PeakBytesAreThoseOfTheSplitScheduleThatWorkersPlace) {
  Rates rates;
  rates.pair_seconds = 6.4e-6;  // Slow, so that there are many segments.
  int travelled = 0;
  for (int32_t world : {2, 3, 4}) {
    for (auto strategy :
         {v1::Execution::STRATEGY_RING_PASS_KV, v1::Execution::STRATEGY_ALL_GATHER_KV,
          v1::Execution::STRATEGY_ROTATE_KV, v1::Execution::STRATEGY_HALO,
          v1::Execution::STRATEGY_ULYSSES, v1::Execution::STRATEGY_ULYSSES_RING,
          v1::Execution::STRATEGY_RING_PASS_Q, v1::Execution::STRATEGY_DOUBLE_RING}) {
      for (auto layout : {v1::Execution::LAYOUT_CONTIGUOUS, v1::Execution::LAYOUT_ZIGZAG}) {
        v1::RunJobRequest wanted = Request(world, 500);
        wanted.mutable_spec()->add_sequences()->set_q_len(10);
        wanted.mutable_spec()->mutable_sequences(1)->set_kv_len(700);
        wanted.mutable_execution()->set_strategy(strategy);
        wanted.mutable_execution()->set_layout(layout);
        const PlanRequest request = Plan(wanted, rates);
        const PlanResult plan = MakeJobPlan(request);
        ASSERT_TRUE(plan.ok()) << plan.status();
        ASSERT_FALSE((*plan)->parts_of_step.empty());
        const AttentionSpec& spec = request.submission->spec;
        const MaskMap mask(spec);
        const ScheduleRequest schedule{&spec, &mask, &(*plan)->shards, (*plan)->execution};
        int64_t peak = 0;
        for (const RankSchedule& rank : SplitRanks(request, **plan, schedule)) {
          peak = std::max(peak, PlanArena(rank, BlockLayout(spec)).arena_bytes);
        }
        // If results travel, each rank has a verdict byte for every rank.
        const bool travel = ResultsTravel(spec, (*plan)->execution);
        EXPECT_EQ((*plan)->cost.peak_bytes_per_rank, peak + (travel ? world : 0))
            << world << " ranks";
        travelled += travel ? 1 : 0;
        // If the parts do not fit, the steps stay whole.
        PlanRequest tight = request;
        tight.max_device_bytes = PredictCost(schedule, rates)->peak_bytes_per_rank;
        const PlanResult fitting = MakeJobPlan(tight);
        ASSERT_TRUE(fitting.ok()) << fitting.status();
        EXPECT_LE((*fitting)->cost.peak_bytes_per_rank, tight.max_device_bytes);
      }
    }
  }
  EXPECT_GT(travelled, 0);
}

TEST(PlannerTest, WhereStepsStayWholeWorkersAreToldHowLongTheyAre) {
  v1::RunJobRequest wanted = Request(2, 500);
  wanted.mutable_spec()->set_q_heads(8);
  wanted.mutable_spec()->set_kv_heads(2);
  wanted.mutable_execution()->set_strategy(v1::Execution::STRATEGY_ULYSSES);
  wanted.mutable_execution()->set_layout(v1::Execution::LAYOUT_ZIGZAG);
  Rates rates;
  rates.pair_seconds = 6.4e-6;
  PlanRequest request = Plan(wanted, rates);
  const PlanResult cut = MakeJobPlan(request);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_FALSE((*cut)->parts_of_step.empty());
  EXPECT_EQ((*cut)->longest_step, absl::ZeroDuration());
  request.max_device_bytes = (*cut)->cost.peak_bytes_per_rank - 1;
  const PlanResult whole = MakeJobPlan(request);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE((*whole)->parts_of_step.empty());
  EXPECT_GT((*whole)->longest_step, absl::Seconds((*whole)->cost.seconds / 3));
  EXPECT_LE((*whole)->longest_step, absl::Seconds((*whole)->cost.seconds));
  // Jobs were faster than the kernel's measurement, but may be as slow as that again.
  request.rates.pair_seconds /= 8;
  request.factor = 0.125;
  const PlanResult hurried = MakeJobPlan(request);
  ASSERT_TRUE(hurried.ok()) << hurried.status();
  EXPECT_LT((*hurried)->cost.seconds, (*whole)->cost.seconds / 4);
  EXPECT_EQ((*hurried)->longest_step, (*whole)->longest_step);
  // If the kernel is slower than its measurement, this counts.
  request.rates.pair_seconds *= 8;
  request.factor = 1.5;
  EXPECT_EQ((*MakeJobPlan(request))->longest_step, (*whole)->longest_step);
}

TEST(PlannerTest, LongTransfersAreCutLikeLongTasks) {
  Rates rates;
  for (const bool slow_kernel : {false, true}) {
    rates.pair_seconds = slow_kernel ? 6.4e-5 : 6.4e-14;
    rates.link_bytes_per_second = slow_kernel ? 1e15 : 1e6;
    const PlanRequest request = Plan(Request(4, 16384), rates);
    const PlanResult plan = MakeJobPlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const AttentionSpec& spec = request.submission->spec;
    const MaskMap mask(spec);
    const ScheduleRequest schedule{&spec, &mask, &(*plan)->shards, (*plan)->execution};
    for (const RankSchedule& rank : SplitRanks(request, **plan, schedule)) {
      for (double seconds : StepSeconds(rank, schedule, rates)) {
        // The end of a causal triangle costs more than its mean.
        const double target = (*plan)->cost.seconds / (*plan)->segments;
        EXPECT_LE(seconds, 3 * target + rates.step_seconds) << slow_kernel;
      }
    }
  }
}

// A state determines the rows of each rank and leaves the strategy open.
TEST(PlannerTest, WhatIsPinnedIsMet) {
  PlanRequest request = Plan(Request(0, 512), Rates());
  request.sizes = {3};
  request.execution.world_size = 3;
  request.execution.layout = Layout::kStriped;
  request.execution.stripe = 4;
  const PlanResult plan = MakeJobPlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->world_size(), 3);
  EXPECT_EQ((*plan)->execution.layout, Layout::kStriped);
  EXPECT_EQ((*plan)->shards.shards[0].q_rows.ranges()[0].block, 4);
}

TEST(PlannerTest, StateThatIsKeptHasItsShareOfStaging) {
  v1::RunJobRequest job = Request(1, 256);
  job.mutable_spec()->mutable_forward()->mutable_keep_state()->set_seconds(1);
  PlanRequest request = Plan(job, Rates());
  request.max_kept_bytes = int64_t{1} << 40;
  request.max_kept_bytes = LargestShard((*MakeJobPlan(request))->bytes);
  EXPECT_TRUE(MakeJobPlan(request).ok());
  --request.max_kept_bytes;
  const ErrorDetail detail = DetailOf(MakeJobPlan(request).status());
  EXPECT_EQ(detail.reason, "INSUFFICIENT_CAPACITY");
  ASSERT_EQ(detail.fields.size(), 1u);
  EXPECT_EQ(detail.fields[0].field, "spec.forward.keep_state");
}

// Two workers would each compute a part of the gradients of its one key/value head.
TEST(PlannerTest, WhatOneWorkerCannotStageIsTooLargeWhereMoreHaveNoWay) {
  v1::RunJobRequest job = Request(0, 256);
  job.mutable_spec()->set_deterministic(true);
  job.mutable_spec()->mutable_gradients();
  job.mutable_execution()->set_strategy(v1::Execution::STRATEGY_ULYSSES);
  PlanRequest request = Plan(job, Rates());
  EXPECT_TRUE(MakeJobPlan(request).ok());
  request.sizes = {1, 2};
  request.max_staging_bytes = 1000;
  EXPECT_EQ(DetailOf(MakeJobPlan(request).status()).reason, "INSUFFICIENT_CAPACITY");
}

TEST(PlannerTest, CapacityNamesTheFieldThatAsksForIt) {
  PlanRequest request = Plan(Request(2, 4096), Rates());
  request.max_staging_bytes = 1000;
  ErrorDetail detail = DetailOf(MakeJobPlan(request).status());
  EXPECT_EQ(detail.reason, "INSUFFICIENT_CAPACITY");
  ASSERT_EQ(detail.fields.size(), 1u);
  EXPECT_EQ(detail.fields[0].field, "spec.sequences");
  request.max_staging_bytes = int64_t{1} << 40;
  request.max_device_bytes = 1000;
  detail = DetailOf(MakeJobPlan(request).status());
  EXPECT_EQ(detail.reason, "INSUFFICIENT_CAPACITY");
  ASSERT_EQ(detail.fields.size(), 1u);
  EXPECT_EQ(detail.fields[0].field, "spec.sequences");
}

}  // namespace
}  // namespace annulus
