// Jobs wait while workers with enough room leave and smaller ones register.

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

using v1::Job;

CoordinatorOptions TwoJobsAWorker() {
  CoordinatorOptions options;
  options.solo_jobs_per_worker = 2;
  return options;
}

// A job of 16 rows has 1,088 bytes of staging. Each worker and each group has places for two jobs.
class CapacityTest : public testing::Test {
 protected:
  explicit CapacityTest(const CoordinatorOptions& options = TwoJobsAWorker()) : harness_(options) {}
  // Runs three jobs; the last one waits.
  int64_t RunUntilOneWaits(int32_t ranks) {
    v1::RunJobRequest first = harness_.Request(ranks);
    first.set_single_attempt(true);  // They end with their workers.
    for (int i = 0; i < 2; ++i) harness_.Run(first), Plan();
    const int64_t waiting = harness_.Run(harness_.Request(ranks));
    Plan();
    EXPECT_EQ(harness_.StateOf(waiting), Job::STATE_QUEUED);
    return waiting;
  }
  // From now on the planner has no plan for workers like the new ones.
  void PlansFail() {
    harness_.plan_error = MakeError(absl::StatusCode::kFailedPrecondition, "too large",
                                    ErrorDetail{"INSUFFICIENT_CAPACITY", {}, {}, {}});
  }
  // Replaces workers after their lease.
  void Replace(const std::vector<std::string>& old, const std::vector<std::string>& by) {
    for (const std::string& slot : old) {
      harness_.silent.insert(slot);
      harness_.Disconnect(harness_.worker(slot));
    }
    for (const std::string& slot : by) harness_.AddWorker(slot);
    harness_.Advance(absl::Seconds(7));
    harness_.Execute();
  }
  void ExpectNoCapacity(int64_t call) {
    ASSERT_EQ(harness_.StateOf(call), Job::STATE_FAILED);
    EXPECT_EQ(ReasonOf(*harness_.call(call).finished), "INSUFFICIENT_CAPACITY");
  }

  virtual void Plan() {}  // Completes plans made elsewhere.

  CoordinatorHarness harness_;
};

TEST_F(CapacityTest, AJobThatFitsNoWorkerEndsAndKeepsNobodyWaiting) {
  harness_.Start(1);
  const int64_t waiting = RunUntilOneWaits(1);
  PlansFail();
  harness_.staging_limit = 1000;
  Replace({"w0"}, {"small"});
  EXPECT_EQ(harness_.StateOf(waiting), Job::STATE_QUEUED);
  harness_.plan_error = absl::OkStatus();
  EXPECT_EQ(harness_.StateOf(harness_.Run(harness_.Request(1, 8))), Job::STATE_UPLOADING);
  PlansFail();
  harness_.Advance(absl::Seconds(11));
  ExpectNoCapacity(waiting);
}

TEST_F(CapacityTest, AJobThatFitsNoGroupEndsAndKeepsNobodyWaiting) {
  harness_.Start(2);
  const int64_t waiting = RunUntilOneWaits(2);
  PlansFail();
  harness_.device_limit = 999;
  Replace({"w0", "w1"}, {"x", "y"});
  EXPECT_EQ(harness_.StateOf(waiting), Job::STATE_QUEUED);
  harness_.plan_error = absl::OkStatus();
  harness_.device_bytes = 900;
  EXPECT_EQ(harness_.StateOf(harness_.Run(harness_.Request(2))), Job::STATE_UPLOADING);
  PlansFail();
  harness_.Advance(absl::Seconds(11));
  ExpectNoCapacity(waiting);
}

// Smaller workers serve it by another plan.
TEST_F(CapacityTest, AJobOfSoManyRanksIsPlannedAgain) {
  harness_.Start(2);
  const int64_t waiting = RunUntilOneWaits(2);
  harness_.device_limit = 999;
  harness_.device_bytes = 900;
  Replace({"w0", "w1"}, {"x", "y"});
  EXPECT_EQ(harness_.StateOf(waiting), Job::STATE_UPLOADING);
}

// Planned for a and c. Meanwhile b, which was to be in its group, is suspect.
TEST_F(CapacityTest, AJobIsPlannedAgainWhenASmallerWorkerIsBack) {
  harness_.AddWorker("a");
  harness_.device_limit = 999;
  harness_.AddWorker("b");
  harness_.device_limit = 1 << 20;
  harness_.AddWorker("c");
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  auto& b = harness_.worker("b");
  harness_.Disconnect(b);
  const int64_t call = harness_.Run(harness_.Request(2));
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_QUEUED);
  harness_.device_bytes = 900;
  harness_.device_limit = 999;
  harness_.Connect(b, harness_.RegisterEvent("b", b.incarnation));
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
}

TEST_F(CapacityTest, ALargerWorkerThatComesInTimeServesIt) {
  harness_.Start(1);
  const int64_t waiting = RunUntilOneWaits(1);
  PlansFail();
  harness_.staging_limit = 1000;
  Replace({"w0"}, {"small"});
  EXPECT_EQ(harness_.StateOf(waiting), Job::STATE_QUEUED);
  harness_.staging_limit = 1088;
  harness_.AddWorker("large");
  harness_.Execute();
  EXPECT_EQ(harness_.Placed(waiting).shards(0).endpoint(), "large:8004");
}

CoordinatorOptions PlansElsewhere() {
  CoordinatorOptions options = TwoJobsAWorker();
  options.inline_plan_rows = 0;
  return options;
}

class SlowPlanTest : public CapacityTest {
 protected:
  SlowPlanTest() : CapacityTest(PlansElsewhere()) {}
  void Plan() override {
    const auto [plan, wanted] = harness_.plans_wanted.back();
    harness_.Handle(event::Planned{plan, harness_.MakePlan(wanted)});
  }
};

TEST_F(SlowPlanTest, AJobThatIsBeingPlannedAgainIsGivenTime) {
  harness_.Start(1);
  const int64_t waiting = RunUntilOneWaits(1);
  harness_.staging_limit = 1000;
  Replace({"w0"}, {"small"});
  harness_.Advance(absl::Seconds(13));
  EXPECT_EQ(harness_.StateOf(waiting), Job::STATE_QUEUED);
  PlansFail();
  Plan();
  harness_.Advance(absl::Milliseconds(1));
  ExpectNoCapacity(waiting);
}

}  // namespace
}  // namespace annulus
