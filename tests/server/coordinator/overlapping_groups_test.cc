// Groups with common workers: the work of one group delays the other's ranks.

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "proto/wire/convert.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

using control::v1::WorkerCommand;
using v1::Job;

constexpr int kWhole = 4;

class OverlappingGroupsTest : public testing::Test {
 protected:
  OverlappingGroupsTest() {
    harness_.hold = {WorkerCommand::kRunSegment};
    harness_.segments = 4;  // Two of these are issued ahead.
  }
  // A job whose ranks got their first segments.
  int64_t StartJob(int32_t ranks, absl::Duration longest_step = absl::ZeroDuration()) {
    harness_.longest_step = longest_step;
    const int64_t call = harness_.Run(harness_.Request(ranks));
    harness_.Upload(harness_.JobOf(call));
    harness_.Execute();
    return call;
  }
  // From the first segment of the job that the worker got.
  absl::Duration LongestStep(const std::string& slot, int64_t call) {
    for (const WorkerCommand& command : harness_.worker(slot).history) {
      if (command.run_segment().shard().job_id() == harness_.JobOf(call))
        return DurationFromProto(command.run_segment().longest_step());
    }
    ADD_FAILURE() << slot << " was sent no segment";
    return absl::ZeroDuration();
  }
  int SegmentsSent(const std::string& slot) {
    int sent = 0;
    for (const WorkerCommand& command : harness_.worker(slot).history)
      sent += command.has_run_segment();
    return sent;
  }
  bool ToldToConnect(const std::string& slot, int ranks) {
    for (const WorkerCommand& command : harness_.worker(slot).history) {
      if (command.connect_group().bootstraps_size() == ranks) return true;
    }
    return false;
  }
  bool RunSegment() {
    const bool any = harness_.RunOneSegment();
    harness_.Execute();
    return any;
  }
  // Two workers run a job; the other two of a group of four wait until it is opened.
  int64_t FormAroundAJob() {
    harness_.Start(2);
    const int64_t call = StartJob(2, absl::Minutes(5));
    for (const char* slot : {"w2", "w3"}) harness_.AddWorker(slot);
    harness_.Advance(absl::Seconds(1));
    harness_.Execute();
    return call;
  }
  CoordinatorHarness harness_;
};

TEST_F(OverlappingGroupsTest, ARankIsPatientWithPeersThatHaveSegmentsOfOthersToRun) {
  harness_.Start(kWhole);
  harness_.longest_step = absl::Seconds(40);
  const int64_t one = harness_.Run(harness_.Request(2));
  harness_.longest_step = absl::Seconds(30);
  const int64_t other = harness_.Run(harness_.Request(2));
  for (const int64_t pair : {one, other}) harness_.Upload(harness_.JobOf(pair));
  harness_.Execute();
  EXPECT_EQ(LongestStep("w0", one), absl::Seconds(40)) << "its own alone";
  EXPECT_EQ(LongestStep("w2", other), absl::Seconds(30));
  const int64_t whole = StartJob(kWhole, absl::Seconds(7));
  for (const char* slot : {"w0", "w1", "w2", "w3"})
    EXPECT_EQ(LongestStep(slot, whole), absl::Seconds(2 * 40 + 7)) << slot;
}

TEST_F(OverlappingGroupsTest, ShortSegmentsOfOthersCountAsPredicted) {
  harness_.Start(kWhole);
  harness_.plan_seconds = 4;
  StartJob(2);
  EXPECT_EQ(LongestStep("w3", StartJob(kWhole)), absl::Seconds(2));
}

TEST_F(OverlappingGroupsTest, WhatItsOwnGroupHasToRunMakesNoRankLate) {
  harness_.Start(2);
  StartJob(2, absl::Seconds(40));
  const int64_t next = StartJob(2, absl::Seconds(7));
  ASSERT_TRUE(RunSegment());
  EXPECT_EQ(LongestStep("w0", next), absl::Seconds(7)) << "with a segment of 40 s before it";
}

TEST_F(OverlappingGroupsTest, APeerMayWaitForPeersOfItsOwn) {
  harness_.Start(kWhole);
  harness_.longest_step = absl::Seconds(40);
  const int64_t one = harness_.Run(harness_.Request(2));
  harness_.longest_step = absl::Seconds(3);
  const int64_t other = harness_.Run(harness_.Request(2));
  harness_.Upload(harness_.JobOf(one));
  harness_.Execute();
  StartJob(kWhole, absl::Seconds(7));
  // Its two workers run the job of four, which waits for the first job's workers.
  harness_.Upload(harness_.JobOf(other));
  harness_.Execute();
  EXPECT_EQ(LongestStep("w2", other), absl::Seconds(2 * 40 + 2 * 7 + 3));
}

TEST_F(OverlappingGroupsTest, OthersGoOnWhileAGroupWaitsForALongSegment) {
  FormAroundAJob();
  harness_.Run(harness_.Request(2));  // Waits for its inputs, on the same two workers.
  harness_.plan_seconds = 4;
  StartJob(2);
  EXPECT_EQ(SegmentsSent("w2"), 2);
  harness_.Advance(absl::Minutes(10));  // The time at which all should have finished.
  for (int segment = 0; segment < 2; ++segment) {
    EXPECT_FALSE(ToldToConnect("w2", kWhole)) << segment;
    EXPECT_EQ(SegmentsSent("w0"), 2);
    EXPECT_EQ(SegmentsSent("w2"), 2);
    ASSERT_TRUE(RunSegment());
  }
  EXPECT_TRUE(ToldToConnect("w2", kWhole));
}

TEST_F(OverlappingGroupsTest, AGroupConnectsWhenItsLanesHaveNothingElseToRun) {
  const int64_t call = FormAroundAJob();
  EXPECT_TRUE(ToldToConnect("w2", 2)) << "those that are at nothing";
  harness_.Advance(absl::Minutes(1));
  EXPECT_FALSE(ToldToConnect("w2", kWhole));
  EXPECT_EQ(harness_.Info().groups_size(), 3) << "it waits, and has not failed";
  for (int segment = 0; segment < 2; ++segment) {
    EXPECT_FALSE(ToldToConnect("w2", kWhole)) << segment;
    EXPECT_EQ(SegmentsSent("w0"), 2) << "what was issued runs out";
    ASSERT_TRUE(RunSegment());
  }
  EXPECT_TRUE(ToldToConnect("w2", kWhole));
  EXPECT_EQ(SegmentsSent("w0"), 4) << "and the job goes on";
  while (RunSegment()) {
  }
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_DRAINING);
  for (const v1::GroupInfo& group : harness_.Info().groups()) EXPECT_TRUE(group.ready());
}

TEST_F(OverlappingGroupsTest, AGroupConnectsWhenNoneOfItsWorkersIsLeavingAnother) {
  FormAroundAJob();
  harness_.hold.insert(WorkerCommand::kAbortGroup);
  control::v1::WorkerEvent broken;
  broken.mutable_group_broken()->mutable_generation()->set_term(harness_.tables().term);
  broken.mutable_group_broken()->mutable_generation()->set_number(1);
  harness_.Say(harness_.worker("w0"), broken);
  EXPECT_FALSE(ToldToConnect("w2", kWhole)) << "a segment may still be running out";
  harness_.hold.erase(WorkerCommand::kAbortGroup);
  harness_.Execute();
  EXPECT_TRUE(ToldToConnect("w2", kWhole));
}

TEST_F(OverlappingGroupsTest, AJobGoesOnWhenTheGroupThatWaitsForItIsGivenUp) {
  FormAroundAJob();
  harness_.Advance(absl::Minutes(1));
  ASSERT_TRUE(RunSegment());
  EXPECT_EQ(SegmentsSent("w0"), 2);
  harness_.Disconnect(harness_.worker("w3"));
  harness_.Advance(absl::Seconds(4));
  EXPECT_EQ(SegmentsSent("w0"), 3);
}

}  // namespace
}  // namespace annulus
