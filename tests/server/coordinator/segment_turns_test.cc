// The order of segments of two runs of one caller on one group.

#include <algorithm>
#include <cstdint>

#include "gtest/gtest.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

using control::v1::WorkerCommand;
using v1::Job;

constexpr int32_t kSegments = 1000;

class SegmentTurnsTest : public testing::Test {
 protected:
  SegmentTurnsTest() {
    harness_.Start(2);
    harness_.hold = {WorkerCommand::kRunSegment};
    harness_.steps = harness_.segments = kSegments;
  }
  int64_t Start(int32_t priority) {
    v1::RunJobRequest request = harness_.Request(2);
    request.mutable_execution()->set_priority(priority);
    const int64_t call = harness_.Run(request);
    harness_.Upload(harness_.JobOf(call));
    harness_.Execute();
    return call;
  }
  // Runs segments of 0.1 s each. Returns how many belonged to the call's job.
  int RunFor(absl::Duration time, int64_t call) {
    const int before = Done(call);
    for (const absl::Time end = harness_.now() + time; harness_.now() < end;) {
      harness_.Advance(absl::Milliseconds(100));
      EXPECT_TRUE(harness_.RunOneSegment());
    }
    return Done(call) - before;
  }
  int Done(int64_t call) {
    int done = 0;
    for (const v1::JobEvent& event : harness_.call(call).events) {
      done = std::max(done, event.progress().segments_done());
    }
    return done;
  }
  CoordinatorHarness harness_;
};

TEST_F(SegmentTurnsTest, EqualsGoOneAfterTheOther) {
  const int64_t first = Start(0);
  EXPECT_EQ(RunFor(absl::Seconds(20), first), 200) << "alone it waits for nobody";
  const int64_t second = Start(0);
  EXPECT_NEAR(RunFor(absl::Seconds(10), second), 50, 2);
  EXPECT_NEAR(RunFor(absl::Seconds(10), first), 50, 2);
}

TEST_F(SegmentTurnsTest, TheMoreImportantOneGoesOnUntilTheOtherHasWaited) {
  const int64_t other = Start(0);
  RunFor(absl::Seconds(1), other);
  const int64_t important = Start(1);
  EXPECT_LE(RunFor(absl::Seconds(9), other), 2) << "what was issued before";
  EXPECT_EQ(harness_.StateOf(other), Job::STATE_RUNNING);
  RunFor(absl::Seconds(2), other);
  EXPECT_NEAR(RunFor(absl::Seconds(10), other), 50, 5) << "as long as one step of priority";
  // A new job has no waiting time.
  EXPECT_NEAR(RunFor(absl::Seconds(10), important), 50, 5);
  harness_.Handle(event::CallGone{important});
  harness_.Execute();
  RunFor(absl::Seconds(1), other);
  Start(1);
  EXPECT_GE(RunFor(absl::Seconds(8), other), 35) << "however many come";
}

}  // namespace
}  // namespace annulus
