#include "client/session/state_handoff.h"

#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

AttentionSpec Releasing() {
  AttentionSpec spec;
  spec.operation = Operation::kGradients;
  spec.gradients.state = "kept";
  spec.gradients.release_state = true;
  return spec;
}

TEST(StateHandoffTest, WhatAnEndIsAwaitedFor) {
  v1::RunJobRequest request;
  EXPECT_FALSE(AwaitsEndOfCall(request, AttentionSpec()));
  EXPECT_TRUE(AwaitsEndOfCall(request, Releasing()));
  AttentionSpec keeping;
  keeping.forward.keep_state = absl::Minutes(1);
  EXPECT_TRUE(AwaitsEndOfCall(request, keeping));
  request.set_request_id("one");
  EXPECT_TRUE(AwaitsEndOfCall(request, AttentionSpec()));
}

TEST(StateHandoffTest, WhoseJobOthersMayJoin) {
  v1::RunJobRequest request;
  EXPECT_FALSE(MayBeJoined(request));
  request.set_request_id("one");
  EXPECT_TRUE(MayBeJoined(request));
}

TEST(StateHandoffTest, RowsStandWhereNoOtherAttemptCouldBringThem) {
  const absl::Status broken = absl::UnavailableError("gone");
  EXPECT_TRUE(StandsUnconfirmed(Releasing(), broken));
  EXPECT_TRUE(StandsUnconfirmed(Releasing(), absl::DeadlineExceededError("late")));
  AttentionSpec using_it = Releasing();
  using_it.gradients.release_state = false;
  EXPECT_FALSE(StandsUnconfirmed(using_it, broken)) << "the state is still there";
  AttentionSpec keeping;
  keeping.forward.keep_state = absl::Minutes(1);
  EXPECT_TRUE(StandsUnconfirmed(keeping, broken)) << "until it is known what became of its state";
  EXPECT_FALSE(StandsUnconfirmed(keeping, absl::AbortedError("lost"))) << "there is no state";
  EXPECT_FALSE(StandsUnconfirmed(keeping, absl::DeadlineExceededError("late"))) << "no time to ask";
}

TEST(StateHandoffTest, AJobWhoseEndIsLostLeavesNoStateThatNobodyKnows) {
  v1::Job job;
  for (const v1::Job::State state : {v1::Job::STATE_QUEUED, v1::Job::STATE_UPLOADING,
                                     v1::Job::STATE_RUNNING, v1::Job::STATE_DRAINING}) {
    job.set_state(state);
    for (const bool here : {false, true})
      EXPECT_EQ(ResolveUnconfirmedJob(job, here), HandoffStep::kCancel);
  }
  job.set_state(v1::Job::STATE_SUCCEEDED);
  job.mutable_kept_state()->set_status(v1::KeptState::STATUS_HELD);
  EXPECT_EQ(ResolveUnconfirmedJob(job, /*rows_are_here=*/true), HandoffStep::kUse);
  EXPECT_EQ(ResolveUnconfirmedJob(job, /*rows_are_here=*/false), HandoffStep::kRelease);
  for (const auto status : {v1::KeptState::STATUS_RELEASED, v1::KeptState::STATUS_EXPIRED,
                            v1::KeptState::STATUS_LOST}) {
    job.mutable_kept_state()->set_status(status);
    EXPECT_EQ(ResolveUnconfirmedJob(job, /*rows_are_here=*/true), HandoffStep::kNothing);
  }
  job.clear_kept_state();
  for (const v1::Job::State state : {v1::Job::STATE_FAILED, v1::Job::STATE_CANCELLED}) {
    job.set_state(state);
    EXPECT_EQ(ResolveUnconfirmedJob(job, /*rows_are_here=*/true), HandoffStep::kNothing);
  }
}

TEST(StateHandoffTest, AnErrorThatSpeaksAgainstTheRowsIsTheAnswer) {
  EXPECT_FALSE(StandsUnconfirmed(Releasing(), absl::InternalError("schedules differ")));
  EXPECT_FALSE(StandsUnconfirmed(Releasing(), absl::DataLossError("checksum")));
  EXPECT_FALSE(StandsUnconfirmed(Releasing(), absl::OkStatus()));
}

TEST(StateHandoffTest, AStateIsGoneByItsReasonAlone) {
  for (const char* reason : {"STATE_LOST", "STATE_EXPIRED", "STATE_RELEASED", "STATE_NOT_FOUND"}) {
    EXPECT_TRUE(StateIsGone(MakeError(absl::StatusCode::kNotFound, "gone", {reason, {}, {}, {}})));
    EXPECT_FALSE(StateIsGone(MakeError(absl::StatusCode::kAborted, "gone", {reason, {}, {}, {}})));
  }
  EXPECT_FALSE(
      StateIsGone(MakeError(absl::StatusCode::kNotFound, "", {"JOB_NOT_FOUND", {}, {}, {}})));
  EXPECT_FALSE(StateIsGone(absl::OkStatus()));
  const AttentionSpec whole = WithoutState(Releasing());
  EXPECT_FALSE(whole.uses_state());
  EXPECT_FALSE(whole.gradients.release_state);
}

TEST(StateHandoffTest, OnlyAnEarlierLostAttemptMayHaveReleased) {
  const absl::Status lost = absl::UnavailableError("broken");
  const absl::Status released =
      MakeError(absl::StatusCode::kNotFound, "", {"STATE_RELEASED", {}, {}, {}});
  EXPECT_TRUE(MayHaveReleased(Releasing(), lost, released));
  EXPECT_FALSE(MayHaveReleased(Releasing(), absl::OkStatus(), released));
  EXPECT_FALSE(MayHaveReleased(Releasing(), lost, absl::NotFoundError("")));
  AttentionSpec keeping = Releasing();
  keeping.gradients.release_state = false;
  EXPECT_FALSE(MayHaveReleased(keeping, lost, released));
}

TEST(StateHandoffTest, AKeptStateIsUnknownWhereTheCallBroke) {
  AttentionSpec keeping;
  EXPECT_FALSE(KeptStateIsUnknown(keeping, absl::UnavailableError("")));
  keeping.forward.keep_state = absl::Minutes(1);
  EXPECT_TRUE(KeptStateIsUnknown(keeping, absl::UnavailableError("")));
  EXPECT_FALSE(KeptStateIsUnknown(keeping, absl::AbortedError("")));
}

}  // namespace
}  // namespace annulus
