// States that forward jobs keep for gradients jobs.
#include <string>
#include <vector>

#include "tests/server/coordinator/kept_state_case.h"

namespace annulus {
namespace {

using v1::Job;
using v1::KeptState;

template <typename Set>
CoordinatorOptions With(Set set) {
  CoordinatorOptions options;
  set(options);
  return options;
}

class ForgetfulTest : public KeptStateTest {
 protected:
  ForgetfulTest() : KeptStateTest(With([](auto& o) { o.job_retention = absl::Seconds(2); })) {}
};

class TwoStatesTest : public KeptStateTest {
 protected:
  TwoStatesTest() : KeptStateTest(With([](auto& o) { o.max_kept_states = 2; })) {}
};

TEST_F(KeptStateTest, SoloStateStaysAndIsUsed) {
  harness_.Start(2);
  const std::string forward = Keep(1);
  const Job job = harness_.Get(forward);
  EXPECT_EQ(job.kept_state().status(), KeptState::STATUS_HELD);
  EXPECT_EQ(job.kept_state().held_bytes(), kRows * (4 * 4 * 4 + 4 + 4)) << "the LSE and its rest";
  EXPECT_EQ(TimeFromProto(job.kept_state().expire_time()), harness_.now() + absl::Minutes(1));
  EXPECT_TRUE(job.has_spec()) << "a client need not remember it";
  EXPECT_TRUE(ReserveOf("w0", forward).keep());
  EXPECT_EQ(Staged(), job.kept_state().held_bytes());
  EXPECT_EQ(harness_.Info().workers(0).kept().used_bytes(), job.kept_state().held_bytes());
  EXPECT_EQ(harness_.Info().workers(0).device().used_bytes(), 0);

  const int64_t call = harness_.Run(Gradients(forward));
  const std::string gradients = harness_.JobOf(call);
  ASSERT_EQ(harness_.Placed(call).shards_size(), 1);
  EXPECT_EQ(harness_.Placed(call).shards(0).endpoint(), "w0:8004");
  EXPECT_EQ(harness_.Placed(call).shards(0).input_bytes(), kRows * 4 * 4) << "d_out alone";
  const control::v1::Reserve reserve = ReserveOf("w0", gradients);
  EXPECT_EQ(reserve.lender().job_id(), forward);
  EXPECT_EQ(reserve.lender().attempt(), 1);
  EXPECT_EQ(reserve.staging_bytes(), kRows * 4 * 4 * 4) << "d_out, dq, dk, dv";
  EXPECT_EQ(harness_.Get(forward).kept_state().users(), 1);
  Finish(call);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  EXPECT_EQ(StatusOf(forward), KeptState::STATUS_HELD) << "nobody asked for its release";
  EXPECT_EQ(harness_.Get(forward).kept_state().users(), 0);
  EXPECT_EQ(Staged(), job.kept_state().held_bytes());

  Finish(harness_.Run(Gradients(forward, /*release=*/true)));
  EXPECT_EQ(StatusOf(forward), KeptState::STATUS_RELEASED);
  EXPECT_EQ(harness_.Get(forward).kept_state().held_bytes(), 0);
  EXPECT_FALSE(harness_.Get(forward).has_spec());
  ExpectIdle();
  EXPECT_EQ(ReasonOf(ErrorOf(harness_.Run(Gradients(forward)))), "STATE_RELEASED");
}

// A worker frees a solo shard by itself, but not a kept one.
TEST_F(KeptStateTest, SoloStateStaysWhenAllIsSaidAtOnce) {
  harness_.Start(1);
  const int64_t call = harness_.Run(Forward(1));
  harness_.FetchAtOnce(harness_.JobOf(call));
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  EXPECT_EQ(StatusOf(harness_.JobOf(call)), KeptState::STATUS_HELD);
  EXPECT_GT(Staged(), 0);
  EXPECT_TRUE(Release(harness_.JobOf(call)).ok());
  ExpectIdle();
}

TEST_F(KeptStateTest, GroupsStateIsUsedRankByRank) {
  harness_.Start(2);
  const std::string forward = Keep(2);
  const int64_t call = harness_.Run(Gradients(forward, /*release=*/true));
  ASSERT_EQ(harness_.Placed(call).shards_size(), 2);
  for (int rank : {0, 1}) {
    const control::v1::Reserve reserve = ReserveOf(rank == 0 ? "w0" : "w1", harness_.JobOf(call));
    EXPECT_EQ(reserve.shard().rank(), rank);
    EXPECT_EQ(reserve.lender().job_id(), forward);
    EXPECT_EQ(reserve.lender().rank(), rank);
    EXPECT_EQ(harness_.Placed(call).shards(rank).q_rows(0).begin(), rank * kRows / 2);
  }
  Finish(call);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  ExpectIdle();
}

TEST_F(KeptStateTest, ExpiresWhenItsTimeIsOverAndNobodyUsesIt) {
  harness_.Start(1);
  const std::string forward = Keep(1, absl::Seconds(10));
  harness_.Advance(absl::Seconds(9));
  EXPECT_EQ(StatusOf(forward), KeptState::STATUS_HELD);
  const int64_t used = harness_.Run(Gradients(forward));
  harness_.Advance(absl::Seconds(2));
  EXPECT_EQ(StatusOf(forward), KeptState::STATUS_EXPIRED);
  EXPECT_GT(harness_.Get(forward).kept_state().held_bytes(), 0) << "a job still uses it";
  const absl::Status late = ErrorOf(harness_.Run(Gradients(forward)));
  EXPECT_EQ(late.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(late), "STATE_EXPIRED");
  EXPECT_EQ(DetailOf(late).fields[0].field, "spec.gradients.state");
  Finish(used);
  EXPECT_EQ(harness_.StateOf(used), Job::STATE_SUCCEEDED);
  ExpectIdle();
}

TEST_F(KeptStateTest, ExpiresByTimeAlone) {
  harness_.Start(2);
  const std::string forward = Keep(2, absl::Seconds(10));
  harness_.Advance(absl::Seconds(11));
  EXPECT_EQ(StatusOf(forward), KeptState::STATUS_EXPIRED);
  ExpectIdle();
  // Forgotten like any other job.
  harness_.Advance(harness_.tables().options.job_retention + absl::Seconds(1));
  EXPECT_EQ(ReasonOf(ErrorOf(harness_.Run(Gradients(forward)))), "STATE_NOT_FOUND");
}

TEST_F(ForgetfulTest, IsNotForgottenWhileItIsHeld) {
  harness_.Start(1);
  const std::string forward = Keep(1, absl::Seconds(30));
  harness_.Advance(absl::Seconds(20));
  EXPECT_EQ(StatusOf(forward), KeptState::STATUS_HELD);
  harness_.Advance(absl::Seconds(20));
  EXPECT_EQ(harness_.Get(forward).job_id(), "");
  ExpectIdle();
}

TEST_F(KeptStateTest, IsReleasedByACallWhenItsUsersHaveEnded) {
  harness_.Start(1);
  const std::string forward = Keep(1);
  const int64_t used = harness_.Run(Gradients(forward));
  EXPECT_EQ(ReasonOf(Release(forward, "somebody else")), "JOB_NOT_FOUND");
  EXPECT_EQ(StatusOf(forward), KeptState::STATUS_HELD);
  EXPECT_TRUE(Release(forward).ok());
  EXPECT_TRUE(Release(forward).ok()) << "again";
  EXPECT_EQ(ReasonOf(ErrorOf(harness_.Run(Gradients(forward)))), "STATE_RELEASED");
  Finish(used);
  EXPECT_EQ(harness_.StateOf(used), Job::STATE_SUCCEEDED);
  ExpectIdle();
  EXPECT_TRUE(Release(forward).ok()) << "and when it is gone";
  const int64_t other = harness_.Run(harness_.Request(1));
  Finish(other);
  const absl::Status none = Release(harness_.JobOf(other));
  EXPECT_EQ(ReasonOf(none), "STATE_NOT_FOUND");
  EXPECT_EQ(DetailOf(none).fields[0].field, "job_id");
  EXPECT_EQ(ReasonOf(Release("job-unknown")), "JOB_NOT_FOUND");
}

TEST_F(KeptStateTest, IsNotKeptWhenItWasReleasedBefore) {
  harness_.Start(1);
  const int64_t call = harness_.Run(Forward(1));
  EXPECT_TRUE(Release(harness_.JobOf(call)).ok());
  Finish(call);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  EXPECT_EQ(StatusOf(harness_.JobOf(call)), KeptState::STATUS_RELEASED);
  ExpectIdle();
}

TEST_F(KeptStateTest, WhatIsNamedMustBeThereAndFit) {
  harness_.Start(2);
  const int64_t early = harness_.Run(Forward(2));
  const std::string forward = harness_.JobOf(early);
  const absl::Status soon = ErrorOf(harness_.Run(Gradients(forward)));
  EXPECT_EQ(ReasonOf(soon), "STATE_NOT_READY");
  EXPECT_TRUE(DetailOf(soon).retry_after.has_value());
  Finish(early);
  const auto refused = [&](v1::RunJobRequest request, const std::string& reason,
                           const std::string& field, const std::string& principal = "anonymous") {
    const absl::Status error = ErrorOf(harness_.Run(std::move(request), principal));
    EXPECT_EQ(ReasonOf(error), reason) << error;
    ASSERT_FALSE(DetailOf(error).fields.empty()) << error;
    EXPECT_EQ(DetailOf(error).fields[0].field, field);
  };
  refused(Gradients(forward), "STATE_NOT_FOUND", "spec.gradients.state", "somebody else");
  refused(Gradients("job-unknown"), "STATE_NOT_FOUND", "spec.gradients.state");
  v1::RunJobRequest request = Gradients(forward);
  request.mutable_spec()->add_masks()->set_causal(true);
  refused(request, "STATE_MISMATCH", "spec");
  request = Gradients(forward);
  request.mutable_execution()->set_world_size(1);
  refused(request, "STATE_MISMATCH", "execution.world_size");
  request = Gradients(forward);
  request.mutable_execution()->set_layout(v1::Execution::LAYOUT_ZIGZAG);
  refused(request, "STATE_MISMATCH", "execution.layout");
  // A job that keeps nothing has no state.
  const int64_t other = harness_.Run(harness_.Request(1));
  Finish(other);
  refused(Gradients(harness_.JobOf(other)), "STATE_NOT_FOUND", "spec.gradients.state");
  // With or without default values, the spec is the same.
  request = Gradients(forward, /*release=*/true);
  request.mutable_spec()->set_head_dim_v(4);
  request.mutable_spec()->set_scale(0.5);
  request.mutable_execution()->set_world_size(2);
  const int64_t right = harness_.Run(request);
  Finish(right);
  EXPECT_EQ(harness_.StateOf(right), Job::STATE_SUCCEEDED);
  ExpectIdle();
}

TEST_F(KeptStateTest, DeterministicGradientsAreOfItsOwnWorkersWhoeverElseIsThere) {
  harness_.Start(1);
  v1::RunJobRequest request = Forward(1);
  request.mutable_spec()->set_deterministic(true);
  const int64_t forward = harness_.Run(request);
  Finish(forward);
  harness_.arithmetic = "cpu/other";
  harness_.AddWorker("x");
  request = Gradients(harness_.JobOf(forward));
  request.mutable_spec()->set_deterministic(true);
  const int64_t gradients = harness_.Run(request);
  EXPECT_EQ(harness_.StateOf(gradients), Job::STATE_UPLOADING);
}

TEST_F(KeptStateTest, TheTypeOfABiasMayBeLeftOut) {
  harness_.Start(1);
  const auto with_bias = [](v1::RunJobRequest request, v1::DataType dtype) {
    request.mutable_spec()->mutable_modifiers()->mutable_bias()->set_dtype(dtype);
    return request;
  };
  const int64_t forward = harness_.Run(with_bias(Forward(1), v1::DATA_TYPE_UNSPECIFIED));
  Finish(forward);
  const v1::RunJobRequest request = Gradients(harness_.JobOf(forward));
  const int64_t wrong = harness_.Run(with_bias(request, v1::DATA_TYPE_BF16));
  EXPECT_EQ(ReasonOf(ErrorOf(wrong)), "STATE_MISMATCH");
  const int64_t right = harness_.Run(with_bias(request, request.spec().dtype()));
  EXPECT_EQ(harness_.StateOf(right), Job::STATE_UPLOADING);
}

TEST_F(KeptStateTest, FailedAndCancelledJobsKeepNothing) {
  harness_.Start(1);
  const int64_t call = harness_.Run(Forward(1));
  harness_.Upload(harness_.JobOf(call));
  harness_.Handle(event::CallGone{call});
  ExpectIdle();
  EXPECT_EQ(ReasonOf(ErrorOf(harness_.Run(Gradients(harness_.JobOf(call))))), "STATE_NOT_FOUND");
}

// Half of the staging memory. A second state waits until the first one is gone; other jobs do not.
TEST_F(KeptStateTest, TakesNoMoreThanItsShareOfStaging) {
  const int64_t state = kRows * (4 * 4 * 4 + 4);
  harness_.staging_limit = 3 * state;
  harness_.Start(1);
  const std::string first = Keep(1);
  const int64_t second = harness_.Run(Forward(1));
  EXPECT_EQ(harness_.StateOf(second), Job::STATE_QUEUED);
  const int64_t other = harness_.Run(harness_.Request(1));
  EXPECT_EQ(harness_.StateOf(other), Job::STATE_UPLOADING);
  EXPECT_TRUE(Release(first).ok());
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(second), Job::STATE_UPLOADING);
  for (int64_t call : {second, other}) harness_.Handle(event::CallGone{call});
  ExpectIdle();
}

// A job that lacks only memory of kept states blocks no later jobs: one of those may release a
// state.
TEST_F(KeptStateTest, WhoWaitsForStatesKeepsNobodyWaiting) {
  const int64_t state = kRows * (4 * 4 * 4 + 4);
  harness_.staging_limit = 3 * state;
  harness_.Start(1);
  const std::string first = Keep(1);
  const int64_t large = harness_.Run(harness_.Request(1, kRows * 5 / 2));
  EXPECT_EQ(harness_.StateOf(large), Job::STATE_QUEUED);
  const int64_t small = harness_.Run(harness_.Request(1));
  EXPECT_EQ(harness_.StateOf(small), Job::STATE_UPLOADING);
  harness_.Handle(event::CallGone{small});
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(large), Job::STATE_QUEUED);
  const int64_t gradients = harness_.Run(Gradients(first, /*release=*/true));
  EXPECT_EQ(harness_.StateOf(gradients), Job::STATE_UPLOADING);
  Finish(gradients);
  EXPECT_EQ(harness_.StateOf(large), Job::STATE_UPLOADING);
  harness_.Handle(event::CallGone{large});
  ExpectIdle();
}

TEST_F(TwoStatesTest, IsBoundedInNumber) {
  harness_.Start(1);
  const std::string first = Keep(1);
  const int64_t second = harness_.Run(Forward(1));
  const absl::Status third = ErrorOf(harness_.Run(Forward(1)));
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(third), "TOO_MANY_STATES");
  EXPECT_TRUE(DetailOf(third).retry_after.has_value());
  EXPECT_TRUE(Release(first).ok());
  harness_.Execute();
  const int64_t fourth = harness_.Run(Forward(1));
  for (int64_t call : {second, fourth}) harness_.Handle(event::CallGone{call});
  ExpectIdle();
}

class TwoKeepersTest : public KeptStateTest {
 protected:
  TwoKeepersTest() : KeptStateTest(With([](auto& o) { o.max_waiting_keepers = 2; })) {}
};

// They may wait as long as a lease lasts.
TEST_F(TwoKeepersTest, JobsThatWaitForStatesLeaveOthersTheQueue) {
  const int64_t state = kRows * (4 * 4 * 4 + 4);
  harness_.staging_limit = 3 * state;
  harness_.plan_seconds = 40;
  harness_.Start(1);
  const std::string first = Keep(1);
  std::vector<int64_t> waiting;
  for (int i = 0; i < 2; ++i) waiting.push_back(harness_.Run(Forward(1)));
  for (const int64_t call : waiting) EXPECT_EQ(harness_.StateOf(call), Job::STATE_QUEUED);
  const absl::Status third = ErrorOf(harness_.Run(Forward(1)));
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(third), "QUEUE_FULL");
  EXPECT_EQ(DetailOf(third).fields.at(0).field, "spec.forward.keep_state");
  const int64_t elsewhere = harness_.Run(Forward(1), "somebody");
  EXPECT_EQ(harness_.StateOf(elsewhere), Job::STATE_QUEUED) << "each principal has its own limit";
  harness_.Handle(event::CallGone{elsewhere});
  // It waits neither for room nor for their running time.
  v1::RunJobRequest request = CoordinatorHarness::Request(1, kRows);
  *request.mutable_timeout() = DurationToProto(absl::Seconds(60));
  const int64_t other = harness_.Run(request);
  EXPECT_EQ(harness_.StateOf(other), Job::STATE_UPLOADING) << ErrorOf(other);
  EXPECT_TRUE(Release(first).ok());
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(waiting[0]), Job::STATE_UPLOADING);
  const int64_t fourth = harness_.Run(Forward(1));
  EXPECT_EQ(harness_.StateOf(fourth), Job::STATE_QUEUED);
  for (const int64_t call : {waiting[0], waiting[1], other, fourth}) {
    harness_.Handle(event::CallGone{call});
  }
  ExpectIdle();
}

class BusyKeepersTest : public KeptStateTest {
 protected:
  BusyKeepersTest()
      : KeptStateTest(With([](auto& o) {
          o.solo_jobs_per_worker = 1;
          o.max_waiting_keepers = 2;
          o.max_queued_jobs = 8;
        })) {}
};

// A burst of such jobs is accepted like other jobs, as long as they leave others half of the queue.
TEST_F(BusyKeepersTest, JobsThatWaitForWorkersAreNotThoseThatWaitForStates) {
  harness_.Start(1);
  std::vector<int64_t> calls;
  for (int i = 0; i < 5; ++i) calls.push_back(harness_.Run(Forward(1)));
  EXPECT_EQ(harness_.StateOf(calls[0]), Job::STATE_UPLOADING);
  for (int i = 1; i < 5; ++i) {
    EXPECT_EQ(harness_.StateOf(calls[i]), Job::STATE_QUEUED) << ErrorOf(calls[i]);
  }
  EXPECT_EQ(ReasonOf(ErrorOf(harness_.Run(Forward(1)))), "QUEUE_FULL");
  calls.push_back(harness_.Run(harness_.Request(1)));
  EXPECT_EQ(harness_.StateOf(calls.back()), Job::STATE_QUEUED) << ErrorOf(calls.back());
  for (const int64_t call : calls) harness_.Handle(event::CallGone{call});
  ExpectIdle();
}

class SmallRequestsTest : public KeptStateTest {
 protected:
  SmallRequestsTest() : KeptStateTest(With([](auto& o) { o.max_request_bytes = 8000; })) {}
};

// Their specs are stored as long as the jobs are.
TEST_F(SmallRequestsTest, LeavesRoomForOtherRequests) {
  harness_.Start(1);
  std::vector<std::string> kept;
  int64_t refused = 0;
  while (kept.size() < 20 && refused == 0) {
    const int64_t call = harness_.Run(Forward(1));
    if (harness_.JobOf(call).empty()) {
      refused = call;
      continue;
    }
    Finish(call);
    kept.push_back(harness_.JobOf(call));
  }
  ASSERT_GE(kept.size(), 1u);
  ASSERT_NE(refused, 0);
  EXPECT_EQ(ReasonOf(ErrorOf(refused)), "QUEUE_FULL");
  Finish(harness_.Run(harness_.Request(1)));
  for (const std::string& job : kept) EXPECT_TRUE(Release(job).ok());
  ExpectIdle();
}

}  // namespace
}  // namespace annulus
