// Loss of kept states with workers, with groups and with the coordinator.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/server/coordinator/kept_state_case.h"

namespace annulus {
namespace {

using control::v1::WorkerCommand;
using v1::Job;
using v1::KeptState;

// One job that uses it waits, one runs: both end, and the other worker's memory is free.
TEST_F(KeptStateTest, IsLostWithAWorker) {
  harness_.Start(2);
  harness_.hold = {WorkerCommand::kRunSegment};
  const std::string idle = Keep(1);
  harness_.hold.clear();
  const std::string forward = Keep(2);
  const int64_t at_work = harness_.Run(Gradients(forward));
  harness_.hold = {WorkerCommand::kRunSegment};
  harness_.Upload(harness_.JobOf(at_work));
  harness_.Execute();
  const int64_t second = harness_.Run(Gradients(forward));
  const int64_t waits = harness_.Run(Gradients(forward));
  const int64_t waits_too = harness_.Run(Gradients(forward));
  EXPECT_EQ(harness_.StateOf(waits_too), Job::STATE_QUEUED);
  harness_.silent.insert("w1");
  harness_.hold.clear();
  harness_.Advance(harness_.tables().options.lease + absl::Seconds(1));
  harness_.Execute();
  for (int64_t call : {at_work, second, waits, waits_too}) {
    EXPECT_EQ(harness_.StateOf(call), Job::STATE_FAILED);
    EXPECT_EQ(ErrorOf(call).code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(ReasonOf(ErrorOf(call)), "STATE_LOST");
  }
  EXPECT_EQ(StatusOf(forward), KeptState::STATUS_LOST);
  EXPECT_EQ(ReasonOf(ErrorOf(harness_.Run(Gradients(forward)))), "STATE_LOST");
  EXPECT_EQ(StatusOf(idle), KeptState::STATUS_HELD) << "it lies on w0 alone";
  EXPECT_TRUE(Release(idle).ok());
  ExpectIdle();
}

TEST_F(KeptStateTest, IsLostWithItsOnlyWorker) {
  harness_.Start(2);
  const std::string forward = Keep(1);
  const int64_t call = harness_.Run(Gradients(forward));
  harness_.silent.insert("w0");
  harness_.Advance(harness_.tables().options.lease + absl::Seconds(1));
  EXPECT_EQ(ReasonOf(ErrorOf(call)), "STATE_LOST");
  EXPECT_EQ(StatusOf(forward), KeptState::STATUS_LOST);
  ExpectIdle();
}

// The group is formed again with the same workers, whose shards are still there.
TEST_F(KeptStateTest, OutlivesItsGroup) {
  harness_.Start(2);
  const std::string forward = Keep(2);
  const int64_t call = harness_.Run(Gradients(forward, /*release=*/true));
  BreakGroup();
  EXPECT_EQ(StatusOf(forward), KeptState::STATUS_HELD);
  harness_.Execute();
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  EXPECT_EQ(harness_.Placed(call).attempt(), 2);
  EXPECT_EQ(ReserveOf("w1", harness_.JobOf(call), 2).lender().attempt(), 1);
  Finish(call, 2);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  ExpectIdle();
}

// A worker that comes first in the order takes a place beside w0.
TEST_F(KeptStateTest, CannotBeUsedWhenItsWorkersAreNoGroup) {
  harness_.Start(2);
  const std::string forward = Keep(2);
  harness_.AddWorker("a");
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  const int64_t call = harness_.Run(Gradients(forward));
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_QUEUED);
  harness_.Advance(harness_.tables().options.regroup_wait + absl::Seconds(1));
  EXPECT_EQ(ReasonOf(ErrorOf(call)), "STATE_LOST");
  EXPECT_TRUE(Release(forward).ok());
  ExpectIdle();
}

TEST_F(KeptStateTest, CannotBeUsedWhenTheirGroupDoesNotFormAgain) {
  harness_.Start(2);
  const std::string forward = Keep(2);
  harness_.hold = {WorkerCommand::kOpenGroup};
  BreakGroup();
  const int64_t call = harness_.Run(Gradients(forward));
  for (int i = 0; i < 120; ++i) {
    harness_.Execute();
    harness_.Advance(absl::Milliseconds(100));
    if (!harness_.tables().groups.all().empty()) BreakGroup();
  }
  EXPECT_EQ(ReasonOf(ErrorOf(call)), "STATE_LOST");
  EXPECT_THAT(std::string(ErrorOf(call).message()), testing::HasSubstr("cannot form their group"));
  EXPECT_TRUE(Release(forward).ok());
  ExpectIdle();
}

// A job that can never be prepared would block all others on its workers.
TEST_F(KeptStateTest, IsUsedWithinTheMemoryOfItsOwnWorkersReadyOrNot) {
  harness_.AddWorker("w0");
  harness_.device_limit = 500;
  auto& small = harness_.AddWorker("w1");
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  harness_.device_bytes = 100;
  const std::string state = Keep(2);
  const int64_t again = harness_.Run(Gradients(state));
  EXPECT_EQ(harness_.StateOf(again), Job::STATE_UPLOADING);
  harness_.device_bytes = 1000;
  harness_.Disconnect(small);
  EXPECT_EQ(ReasonOf(ErrorOf(harness_.Run(Gradients(state)))), "INSUFFICIENT_CAPACITY");
  EXPECT_EQ(harness_.planned_device_limit, 500) << "of the one that is suspect";
  harness_.Connect(small, harness_.RegisterEvent("w1", small.incarnation));
  EXPECT_EQ(ReasonOf(ErrorOf(harness_.Run(Gradients(state)))), "INSUFFICIENT_CAPACITY");
  // A job that is planned again does not wait either: no other workers have the state.
  BreakGroup();
  EXPECT_EQ(ReasonOf(ErrorOf(again)), "INSUFFICIENT_CAPACITY");
  EXPECT_EQ(StatusOf(state), v1::KeptState::STATUS_HELD);
}

TEST_F(KeptStateTest, HoldsNoWorkerThatWantsToLeave) {
  harness_.Start(2);
  const std::string forward = Keep(2);
  Leave("w1");
  harness_.Execute();
  EXPECT_EQ(StatusOf(forward), KeptState::STATUS_LOST);
  ExpectIdle();
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  const auto& told = harness_.worker("w1").history;
  EXPECT_TRUE(std::any_of(told.begin(), told.end(), [](const auto& c) { return c.has_drain(); }));
}

TEST_F(KeptStateTest, HoldsNoCoordinatorThatDrains) {
  harness_.Start(1);
  Keep(1);
  harness_.Handle(event::Drain{});
  harness_.Execute();
  EXPECT_TRUE(harness_.stopped);
}

// The next coordinator cannot use the state, but serves the jobs with all their tensors.
TEST_F(KeptStateTest, JobsThatWaitForAStateHearThatTheCoordinatorDrains) {
  harness_.Start(2);
  const std::string forward = Keep(2);
  harness_.hold = {WorkerCommand::kRunSegment};
  std::vector<int64_t> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(harness_.Run(Gradients(forward)));
    if (harness_.StateOf(calls.back()) != Job::STATE_QUEUED) {
      harness_.Upload(harness_.JobOf(calls.back()));
    }
  }
  const int64_t waits = calls.back();
  ASSERT_EQ(harness_.StateOf(waits), Job::STATE_QUEUED);
  harness_.Handle(event::Drain{});
  EXPECT_EQ(harness_.StateOf(waits), Job::STATE_FAILED);
  EXPECT_EQ(ErrorOf(waits).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(ErrorOf(waits)), "DRAINING");
  EXPECT_EQ(StatusOf(forward), KeptState::STATUS_LOST);
  // A placed job cannot run again either.
  ASSERT_FALSE(harness_.call(calls[0]).finished.has_value());
  BreakGroup();
  EXPECT_EQ(ReasonOf(ErrorOf(calls[0])), "DRAINING");
}

}  // namespace
}  // namespace annulus
