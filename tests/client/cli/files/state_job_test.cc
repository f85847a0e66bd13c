#include "client/cli/files/state_job.h"

#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

v1::Job JobThatKeeps(v1::Job::State state) {
  v1::Job job;
  job.set_job_id("job-1");
  job.set_state(state);
  v1::AttentionSpec* spec = job.mutable_spec();
  spec->set_dtype(v1::DATA_TYPE_FP32);
  spec->set_q_heads(1);
  spec->set_kv_heads(1);
  spec->set_head_dim(8);
  spec->add_sequences()->set_q_len(4);
  spec->mutable_forward()->mutable_keep_state()->set_seconds(60);
  return job;
}

TEST(StateJobTest, AHeldStateMakesASpecOfGradients) {
  v1::Job job = JobThatKeeps(v1::Job::STATE_SUCCEEDED);
  job.mutable_kept_state()->set_status(v1::KeptState::STATUS_HELD);
  const absl::StatusOr<AttentionSpec> spec = SpecOfState(job);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->operation, Operation::kGradients);
  EXPECT_EQ(spec->gradients.state, "job-1");
}

TEST(StateJobTest, AJobThatIsAtWorkIsNotReadyAndMayBeAskedAgain) {
  for (const auto state : {v1::Job::STATE_QUEUED, v1::Job::STATE_UPLOADING, v1::Job::STATE_READY,
                           v1::Job::STATE_RUNNING, v1::Job::STATE_DRAINING}) {
    const absl::Status error = SpecOfState(JobThatKeeps(state)).status();
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition) << state;
    EXPECT_EQ(DetailOf(error).reason, "STATE_NOT_READY");
    EXPECT_TRUE(DetailOf(error).retry_after.has_value());
  }
}

TEST(StateJobTest, WhatKeepsNothingIsNotFoundForGood) {
  v1::Job keeps_none = JobThatKeeps(v1::Job::STATE_RUNNING);
  keeps_none.mutable_spec()->clear_forward();
  v1::Job released = JobThatKeeps(v1::Job::STATE_SUCCEEDED);
  released.mutable_kept_state()->set_status(v1::KeptState::STATUS_RELEASED);
  for (const auto& [job, reason] :
       {std::pair(JobThatKeeps(v1::Job::STATE_FAILED), "STATE_NOT_FOUND"),
        {JobThatKeeps(v1::Job::STATE_CANCELLED), "STATE_NOT_FOUND"},
        {keeps_none, "STATE_NOT_FOUND"},
        {released, "STATE_RELEASED"}}) {
    const absl::Status error = SpecOfState(job).status();
    EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(DetailOf(error).reason, reason);
    EXPECT_FALSE(DetailOf(error).retry_after.has_value());
  }
}

}  // namespace
}  // namespace annulus
