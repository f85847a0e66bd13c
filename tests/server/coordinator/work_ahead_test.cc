// Only work that waits before a job counts against its deadline; and the order of waiting jobs.

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

using v1::Job;

// Jobs of 6 s each. Staging has room for one of them on one worker, or for two on two workers; the
// others wait.
class WorkAheadTest : public testing::Test {
 protected:
  WorkAheadTest() {
    harness_.staging_limit = 1500;
    harness_.plan_seconds = 6;
  }
  // The last job waits.
  void Run(int jobs, int32_t ranks) {
    for (int i = 1; i < jobs; ++i) harness_.Run(harness_.Request(ranks));
    EXPECT_EQ(harness_.StateOf(harness_.Run(harness_.Request(ranks))), Job::STATE_QUEUED);
  }
  // Runs a job with ten seconds to its deadline.
  int64_t RunSoon(const v1::RunJobRequest& request, const std::string& principal = "anonymous") {
    return harness_.Run(request, principal, harness_.now() + absl::Seconds(10));
  }
  bool IsRefused(int64_t call) {
    const std::optional<absl::Status>& finished = harness_.call(call).finished;
    if (!finished.has_value()) return false;
    EXPECT_EQ(finished->code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(DetailOf(*finished).reason, "DEADLINE_UNREACHABLE");
    return true;
  }
  CoordinatorHarness harness_;
};

TEST_F(WorkAheadTest, JobsOfOneCallerWaitForEachOther) {
  harness_.Start(1);
  Run(2, 1);
  EXPECT_TRUE(IsRefused(RunSoon(harness_.Request(1))));
}

TEST_F(WorkAheadTest, AMoreImportantJobDoesNotWaitForOthers) {
  harness_.Start(1);
  Run(2, 1);
  v1::RunJobRequest request = harness_.Request(1);
  request.mutable_execution()->set_priority(1);
  EXPECT_FALSE(IsRefused(RunSoon(request)));
}

TEST_F(WorkAheadTest, AnotherCallersShareMayComeFirst) {
  harness_.Start(1);
  Run(2, 1);
  EXPECT_FALSE(IsRefused(RunSoon(harness_.Request(1), "another")));
}

TEST_F(WorkAheadTest, AJobOfOneRankDoesNotWaitForGroups) {
  harness_.Start(2);
  Run(3, 2);
  EXPECT_TRUE(IsRefused(RunSoon(harness_.Request(2))));
  EXPECT_FALSE(IsRefused(RunSoon(harness_.Request(1))));
}

// A worker leaves, and one of the three waiting jobs gets a new plan, of 1 s.
TEST_F(WorkAheadTest, WhatWaitsCountsByThePlanThatItHasNow) {
  harness_.Start(2);
  Run(4, 0);
  harness_.plan_seconds = 1;
  harness_.Disconnect(harness_.worker("w1"));
  for (int i = 0; i < 4; ++i) {
    harness_.Advance(absl::Seconds(4));
    harness_.Execute();
  }
  harness_.plan_seconds = 6;
  const int64_t call = RunSoon(harness_.Request(1));
  ASSERT_TRUE(IsRefused(call));
  EXPECT_EQ(DetailOf(*harness_.call(call).finished).metadata.at("predicted_ms"), "19000");
}

class DeviceMemoryTest : public testing::Test {
 protected:
  DeviceMemoryTest() {
    harness_.device_limit = 1500;  // A rank needs 1000.
    harness_.Start(2);
  }
  std::vector<int64_t> RunTwo() {
    return {harness_.Run(harness_.Request(1)), harness_.Run(harness_.Request(1))};
  }
  int64_t RunReadyGroup() {
    const int64_t call = harness_.Run(harness_.Request(2));
    harness_.Upload(harness_.JobOf(call));
    EXPECT_EQ(harness_.StateOf(call), Job::STATE_READY);
    return call;
  }
  void Compute(int64_t call) {
    harness_.Upload(harness_.JobOf(call));
    harness_.OutputsReady(harness_.JobOf(call));
  }
  CoordinatorHarness harness_;
};

// Each of them would fit as soon as an earlier job ends.
TEST_F(DeviceMemoryTest, LaterJobsOfOneRankDoNotKeepAReadyGroupFromItsDevices) {
  const std::vector<int64_t> first = RunTwo();
  const int64_t group = RunReadyGroup();
  const std::vector<int64_t> later = RunTwo();
  for (const int64_t call : first) {
    EXPECT_EQ(harness_.StateOf(group), Job::STATE_READY);
    Compute(call);
    for (const int64_t waits : later) EXPECT_EQ(harness_.StateOf(waits), Job::STATE_QUEUED);
  }
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(group), Job::STATE_DRAINING);
  for (const int64_t call : later) EXPECT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
}

// A stream of group jobs does not keep them from their devices either.
TEST_F(DeviceMemoryTest, AJobOfOneRankGoesBeforeALaterGroup) {
  const std::vector<int64_t> first = RunTwo();
  const int64_t group = RunReadyGroup(), one = harness_.Run(harness_.Request(1));
  const int64_t later = RunReadyGroup();
  EXPECT_EQ(harness_.StateOf(one), Job::STATE_QUEUED);
  for (const int64_t call : first) Compute(call);
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(group), Job::STATE_DRAINING);
  EXPECT_EQ(harness_.StateOf(one), Job::STATE_UPLOADING);
  EXPECT_EQ(harness_.StateOf(later), Job::STATE_READY);
  Compute(one);
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(later), Job::STATE_DRAINING);
}

}  // namespace
}  // namespace annulus
