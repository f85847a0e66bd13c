// Events that end a group job between two of its segments.
#include "gtest/gtest.h"
#include "proto/wire/convert.h"
#include "proto/wire/ticket.h"
#include "tests/server/coordinator/coordinator_harness.h"
#include "tests/server/coordinator/job_case.h"

namespace annulus {
namespace {

using control::v1::WorkerCommand;
using v1::Job;

class BetweenSegmentsTest : public JobCase {
 protected:
  // The call of a job of two ranks, which got the first two of its four segments.
  int64_t StartOne(absl::Time deadline = absl::InfiniteFuture()) {
    harness_.segments = 4;
    harness_.Start(2);
    v1::RunJobRequest request = harness_.Request(2);
    const int64_t call = deadline == absl::InfiniteFuture()
                             ? harness_.Run(request)
                             : harness_.Run(request, "anonymous", deadline);
    harness_.Upload(harness_.JobOf(call));
    harness_.hold = {WorkerCommand::kRunSegment};
    harness_.Execute();
    return call;
  }
  // Both ranks got the same two segments. No Drop comes before these have ended.
  void ExpectIssuedOnesRunOut(int64_t call) {
    for (const char* slot : {"w0", "w1"}) {
      EXPECT_EQ(harness_.worker(slot).commands.size(), 2u);
      EXPECT_FALSE(harness_.Take(harness_.worker(slot), WorkerCommand::kDrop).has_value());
    }
    harness_.hold.clear();
    harness_.Execute();
    ExpectIdle();
    ASSERT_EQ(harness_.tables().groups.all().size(), 1u);
    EXPECT_EQ(harness_.tables().groups.all().begin()->second.number, 1) << "no new generation";
    EXPECT_EQ(CountTerminal(call), 1);
  }
};

TEST_F(BetweenSegmentsTest, CancelBetweenSegmentsLetsIssuedOnesRunOutAndPoisonsNothing) {
  const int64_t call = StartOne();
  harness_.Handle(event::CancelJob{harness_.NewCall(), "anonymous", harness_.JobOf(call)});
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_CANCELLED);
  EXPECT_EQ(ReasonOf(*harness_.call(call).finished), "CANCELLED_BY_CLIENT");
  ExpectIssuedOnesRunOut(call);
}

TEST_F(BetweenSegmentsTest, ADeadlineBetweenSegmentsLetsIssuedOnesRunOutAndPoisonsNothing) {
  const int64_t call = StartOne(harness_.now() + absl::Seconds(9));
  EXPECT_FALSE(harness_.call(call).finished.has_value());
  harness_.Advance(absl::Seconds(10));
  ASSERT_TRUE(harness_.call(call).finished.has_value());
  EXPECT_EQ(harness_.call(call).finished->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(*harness_.call(call).finished), "EXPIRED_RUNNING");
  ExpectIssuedOnesRunOut(call);
}

TEST_F(BetweenSegmentsTest, AShardThatFailsBetweenSegmentsEndsTheJobAndFreesBothRanks) {
  const int64_t call = StartOne();
  ASSERT_EQ(harness_.StateOf(call), Job::STATE_RUNNING);
  ASSERT_EQ(harness_.worker("w0").commands.size(), 2u);
  // Rank 0 fails. Like a lane, it still answers the issued segments.
  control::v1::WorkerEvent event;
  event.mutable_shard_failed()->mutable_shard()->set_job_id(harness_.JobOf(call));
  event.mutable_shard_failed()->mutable_shard()->set_attempt(1);
  event.mutable_shard_failed()->mutable_error()->set_code(
      static_cast<int>(absl::StatusCode::kResourceExhausted));
  event.mutable_shard_failed()->mutable_error()->set_reason("NO_MEMORY");
  harness_.Say(harness_.worker("w0"), std::move(event));
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_FAILED);
  EXPECT_EQ(ReasonOf(*harness_.call(call).finished), "NO_MEMORY");
  for (const char* slot : {"w0", "w1"}) {
    EXPECT_FALSE(harness_.Take(harness_.worker(slot), WorkerCommand::kDrop).has_value());
  }
  harness_.hold.clear();
  harness_.Execute();
  ExpectIdle();
  EXPECT_EQ(harness_.tables().groups.all().begin()->second.number, 1) << "no new generation";
  EXPECT_EQ(CountTerminal(call), 1);
}

}  // namespace
}  // namespace annulus
