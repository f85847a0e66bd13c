#include "gtest/gtest.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

using v1::Job;

class AdmissionTest : public testing::Test {
 protected:
  // Expects that the job was refused: its call ends with this error, and nothing of it remains.
  void ExpectRefused(int64_t call, absl::StatusCode code, const std::string& reason) {
    ASSERT_TRUE(harness_.call(call).finished.has_value());
    EXPECT_EQ(harness_.call(call).finished->code(), code);
    EXPECT_EQ(ReasonOf(*harness_.call(call).finished), reason);
    EXPECT_TRUE(harness_.call(call).events.empty());
  }
  std::optional<absl::Duration> RetryAfter(int64_t call) {
    return DetailOf(*harness_.call(call).finished).retry_after;
  }
  CoordinatorHarness harness_;
};

TEST_F(AdmissionTest, NoWorkers) {
  const int64_t call = harness_.Run(harness_.Request(0));
  ExpectRefused(call, absl::StatusCode::kUnavailable, "NO_WORKERS");
  EXPECT_TRUE(RetryAfter(call).has_value());
}

TEST_F(AdmissionTest, InsufficientWorkersNamesTheField) {
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(3));
  ExpectRefused(call, absl::StatusCode::kFailedPrecondition, "INSUFFICIENT_WORKERS");
  EXPECT_EQ(DetailOf(*harness_.call(call).finished).fields[0].field, "execution.world_size");
  EXPECT_EQ(DetailOf(*harness_.call(call).finished).metadata["ready_workers"], "2");
}

TEST_F(AdmissionTest, PlansReckonWithTheSlowestWorkersRateForTheType) {
  harness_.bf16_pair_seconds = 2e-9;
  harness_.Start(1);
  harness_.bf16_pair_seconds = 3e-9;
  harness_.AddWorker("slower");
  v1::RunJobRequest request = harness_.Request(1);
  harness_.Run(request);
  EXPECT_EQ(harness_.planned_pair_seconds, 1e-8) << "fp32";
  request.mutable_spec()->set_dtype(v1::DATA_TYPE_BF16);
  harness_.Run(request);
  EXPECT_EQ(harness_.planned_pair_seconds, 3e-9);
  harness_.bf16_pair_seconds = 0;
  harness_.AddWorker("does not say");
  harness_.Run(request);
  EXPECT_EQ(harness_.planned_pair_seconds, 1e-8) << "no rate of its own";
}

TEST_F(AdmissionTest, EveryTypeHasItsOwnRate) {
  harness_.fp16_pair_seconds = 5e-9;
  harness_.bf16x3_pair_seconds = 2.5e-9;
  harness_.Start(1);
  v1::RunJobRequest request = harness_.Request(1);
  request.mutable_spec()->set_arithmetic(v1::AttentionSpec::ARITHMETIC_BF16X3);
  harness_.Run(request);
  EXPECT_EQ(harness_.planned_pair_seconds, 2.5e-9);
  request = harness_.Request(1);
  request.mutable_spec()->set_dtype(v1::DATA_TYPE_FP16);
  harness_.Run(request);
  EXPECT_EQ(harness_.planned_pair_seconds, 5e-9);
}

// A job that needs a lacking feature is refused before any transfer, and reported on request; other
// jobs run.
TEST_F(AdmissionTest, WhatAReadyWorkerLacksIsRefused) {
  control::v1::WorkerEvent event = harness_.RegisterEvent("w0", "i0");
  control::v1::Lack* lack = event.mutable_register_()->add_lacks();
  lack->set_feature("mask/causal");
  lack->set_why_not("It sees everything.");
  harness_.Connect(harness_.worker("w0"), event);
  v1::RunJobRequest request = harness_.Request(1);
  request.mutable_spec()->add_masks()->set_causal(true);
  const int64_t call = harness_.Run(request);
  ExpectRefused(call, absl::StatusCode::kUnimplemented, "NOT_SERVED");
  const ErrorDetail detail = DetailOf(*harness_.call(call).finished);
  ASSERT_EQ(detail.fields.size(), 1u);
  EXPECT_EQ(detail.fields[0].field, "spec.masks[0].causal");
  EXPECT_EQ(detail.fields[0].description, "It sees everything.");
  EXPECT_EQ(detail.metadata.at("features"), "mask/causal");
  EXPECT_FALSE(harness_.call(harness_.Run(harness_.Request(1))).finished.has_value());
  int lacking = 0;
  for (const v1::CapabilityInfo& told : harness_.Info().capabilities()) {
    if (told.why_not() != "It sees everything.") continue;
    EXPECT_EQ(told.feature(), "mask/causal");
    EXPECT_FALSE(told.served());
    ++lacking;
  }
  EXPECT_EQ(lacking, 1);
}

TEST_F(AdmissionTest, InsufficientCapacityComesFromPlanning) {
  harness_.Start(1);
  harness_.plan_error = MakeError(absl::StatusCode::kFailedPrecondition, "too large",
                                  ErrorDetail{"INSUFFICIENT_CAPACITY", {}, {}, {}});
  ExpectRefused(harness_.Run(harness_.Request(1)), absl::StatusCode::kFailedPrecondition,
                "INSUFFICIENT_CAPACITY");
}

TEST(AdmissionLimitsTest, RequestsThatTakeTooMuchMemoryAreRefusedUntilOthersHaveEnded) {
  v1::RunJobRequest request = CoordinatorHarness::Request(1, 0);
  for (int i = 0; i < 50; ++i) request.mutable_spec()->add_sequences();
  CoordinatorOptions options;
  options.max_request_bytes = (*MakeSubmission(request, options))->bytes * 5 / 2;
  CoordinatorHarness harness(options);
  harness.Start(1);
  const int64_t first = harness.Run(request);
  const int64_t second = harness.Run(request);
  EXPECT_EQ(harness.StateOf(second), Job::STATE_UPLOADING);
  const absl::Status refusal = *harness.call(harness.Run(request)).finished;
  EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refusal), "QUEUE_FULL");
  EXPECT_EQ(DetailOf(refusal).metadata.count("limit_bytes"), 1u);
  EXPECT_TRUE(DetailOf(refusal).retry_after.has_value());
  harness.Handle(event::CallGone{first});
  EXPECT_EQ(harness.StateOf(harness.Run(request)), Job::STATE_UPLOADING);
}

TEST(AdmissionLimitsTest, QueueFullSaysWhenToTryAgainAndOthersGoOn) {
  CoordinatorOptions options;
  options.max_queued_jobs = 2;
  CoordinatorHarness harness(options);
  harness.staging_limit = 1500;  // Room for one job.
  harness.Start(1);
  const int64_t first = harness.Run(harness.Request(1));
  harness.Run(harness.Request(1));
  EXPECT_EQ(harness.StateOf(harness.Run(harness.Request(1))), Job::STATE_QUEUED);
  const int64_t call = harness.Run(harness.Request(1));
  const absl::Status refusal = *harness.call(call).finished;
  EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refusal), "QUEUE_FULL");
  EXPECT_TRUE(DetailOf(refusal).retry_after.has_value());
  EXPECT_EQ(harness.StateOf(first), Job::STATE_UPLOADING);
  EXPECT_EQ(harness.Info().queued_jobs(), 2);
}

TEST_F(AdmissionTest, DeadlineUnreachableSaysBothTimes) {
  harness_.Start(1);
  harness_.plan_seconds = 20;
  const int64_t call =
      harness_.Run(harness_.Request(1), "anonymous", harness_.now() + absl::Seconds(10));
  ExpectRefused(call, absl::StatusCode::kDeadlineExceeded, "DEADLINE_UNREACHABLE");
  EXPECT_EQ(DetailOf(*harness_.call(call).finished).metadata["predicted_ms"], "20000");
  EXPECT_EQ(DetailOf(*harness_.call(call).finished).metadata["remaining_ms"], "10000");
  // A deadline in the past is refused for any job.
  harness_.plan_seconds = 0;
  ExpectRefused(harness_.Run(harness_.Request(1), "anonymous", harness_.now() - absl::Seconds(1)),
                absl::StatusCode::kDeadlineExceeded, "DEADLINE_UNREACHABLE");
}

TEST_F(AdmissionTest, DrainingRefusesNewJobsAndFinishesOldOnes) {
  harness_.Start(1);
  const int64_t old = harness_.Run(harness_.Request(1));
  harness_.Handle(event::Drain{});
  EXPECT_EQ(harness_.readiness.back(), false);
  ExpectRefused(harness_.Run(harness_.Request(1)), absl::StatusCode::kUnavailable, "DRAINING");
  EXPECT_FALSE(harness_.stopped);
  EXPECT_EQ(ReasonOf(*harness_.AddWorker("late").closed), "DRAINING");
  harness_.Upload(harness_.JobOf(old));
  harness_.OutputsReady(harness_.JobOf(old));
  harness_.Fetch(harness_.JobOf(old));
  EXPECT_EQ(harness_.StateOf(old), Job::STATE_SUCCEEDED);
  harness_.Execute();
  EXPECT_TRUE(harness_.stopped);
}

TEST_F(AdmissionTest, DrainEndsWhatDoesNotFinishInTime) {
  harness_.Start(1);
  const int64_t call = harness_.Run(harness_.Request(1));
  harness_.Handle(event::Drain{});
  harness_.Advance(absl::Seconds(31));
  EXPECT_EQ(ReasonOf(*harness_.call(call).finished), "DRAINING");
  EXPECT_TRUE(harness_.stopped);
}

TEST_F(AdmissionTest, IdleCoordinatorStopsAtOnce) {
  harness_.Start(2);
  harness_.Handle(event::Drain{});
  EXPECT_TRUE(harness_.stopped);
}

TEST_F(AdmissionTest, StagingIsReservedOnAllRanksOrNone) {
  harness_.Start(1);
  harness_.staging_limit = 600;
  harness_.AddWorker("w1");
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  const int64_t first = harness_.Run(harness_.Request(2));  // 544 bytes a rank.
  EXPECT_EQ(harness_.StateOf(first), Job::STATE_UPLOADING);
  const int64_t second = harness_.Run(harness_.Request(2));
  EXPECT_EQ(harness_.StateOf(second), Job::STATE_QUEUED);
  EXPECT_EQ(harness_.Info().workers(0).staging().used_bytes(), 544);
  EXPECT_EQ(harness_.Info().workers(1).staging().used_bytes(), 544);
  harness_.Handle(event::CallGone{first});
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(second), Job::STATE_UPLOADING);
}

TEST_F(AdmissionTest, JobThatWaitsForBytesIsNotOvertakenOnItsWorkers) {
  harness_.staging_limit = 2400;
  harness_.Start(1);
  harness_.Run(harness_.Request(1));                            // 1088.
  const int64_t large = harness_.Run(harness_.Request(1, 32));  // 2176 bytes: waits.
  const int64_t small = harness_.Run(harness_.Request(1, 1));   // Would fit beside the first job.
  EXPECT_EQ(harness_.StateOf(large), Job::STATE_QUEUED);
  EXPECT_EQ(harness_.StateOf(small), Job::STATE_QUEUED);
}

TEST_F(AdmissionTest, LargeRequestsArePlannedElsewhere) {
  harness_.Start(1);
  v1::RunJobRequest request = harness_.Request(1, 0);
  for (int i = 0; i < 100; ++i) request.mutable_spec()->add_sequences();
  const int64_t call = harness_.Run(request);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_QUEUED);
  ASSERT_EQ(harness_.plans_wanted.size(), 1u);
  const auto [plan, wanted] = harness_.plans_wanted[0];
  harness_.Handle(event::Planned{plan, harness_.MakePlan(wanted)});
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
  // The same result again has no effect.
  harness_.Handle(event::Planned{plan, harness_.MakePlan(wanted)});
  // One job is refused; the caller of the other disconnects meanwhile.
  const int64_t refused = harness_.Run(request);
  harness_.Handle(event::Planned{harness_.plans_wanted[1].first, absl::UnimplementedError("no")});
  EXPECT_EQ(harness_.call(refused).finished->code(), absl::StatusCode::kUnimplemented);
  const int64_t gone = harness_.Run(request);
  harness_.Handle(event::CallGone{gone});
  EXPECT_EQ(harness_.plans_forgotten, std::vector<int64_t>{harness_.plans_wanted[2].first});
  harness_.Handle(event::Planned{harness_.plans_wanted[2].first, harness_.MakePlan(wanted)});
  EXPECT_EQ(harness_.tables().queue.size(), 0u);
}

// Its steps are split along its chunks, which takes seconds if there are many.
TEST_F(AdmissionTest, AJobOfManyRowsIsPlannedElsewhere) {
  harness_.Start(2);
  const int64_t rows = harness_.tables().options.inline_plan_rows / 2;
  for (const bool windowed : {false, true}) {
    harness_.plans_wanted.clear();
    v1::RunJobRequest request = harness_.Request(2, rows);
    v1::Mask& mask = *request.mutable_spec()->add_masks();
    windowed ? mask.set_window_left(1023) : mask.set_chunk(1024);
    EXPECT_FALSE(harness_.JobOf(harness_.Run(request)).empty());
    EXPECT_TRUE(harness_.plans_wanted.empty());
    request.mutable_spec()->mutable_sequences(0)->set_kv_len(rows + 1);
    EXPECT_EQ(harness_.StateOf(harness_.Run(request)), Job::STATE_QUEUED);
    ASSERT_EQ(harness_.plans_wanted.size(), 1u);
    const auto& [plan, wanted] = harness_.plans_wanted[0];
    harness_.Handle(event::Planned{plan, harness_.MakePlan(wanted)});
    EXPECT_TRUE(harness_.tables().plannings.empty());
  }
}

TEST(AdmissionOptionsTest, DryRunsAreBoundedApartFromJobsAndForgottenWithTheirCalls) {
  CoordinatorOptions options;
  options.max_queued_jobs = 2;
  CoordinatorHarness harness(options);
  harness.Start(1);
  const auto submission = *MakeSubmission(harness.Request(1), options);
  const auto plan = [&] {
    const int64_t call = harness.NewCall();
    harness.Handle(event::PlanJob{call, "anonymous", submission});
    return call;
  };
  const auto refused = [&](int64_t call) { return harness.call(call).answer.has_value(); };
  const int64_t first = plan();
  EXPECT_FALSE(refused(first) || refused(plan()));
  const int64_t third = plan();
  EXPECT_EQ(ReasonOf(harness.call(third).answer->status()), "QUEUE_FULL");
  v1::RunJobRequest large = harness.Request(1, 0);
  for (int i = 0; i < 100; ++i) large.mutable_spec()->add_sequences();
  EXPECT_EQ(harness.StateOf(harness.Run(large)), Job::STATE_QUEUED);
  EXPECT_EQ(harness.plans_wanted.size(), 3u);
  harness.Handle(event::CallGone{first});
  EXPECT_EQ(harness.plans_forgotten, std::vector<int64_t>{harness.plans_wanted[0].first});
  EXPECT_FALSE(refused(plan()));
  EXPECT_TRUE(refused(plan()));
}

TEST_F(AdmissionTest, DryRunPlansAndQueuesNothing) {
  harness_.Start(2);
  auto submission = MakeSubmission(harness_.Request(2), harness_.tables().options);
  const int64_t call = harness_.NewCall();
  harness_.Handle(event::PlanJob{call, "anonymous", *submission});
  // However small it is, it is planned elsewhere.
  EXPECT_FALSE(harness_.call(call).answer.has_value());
  ASSERT_EQ(harness_.plans_wanted.size(), 1u);
  const auto& [number, wanted] = harness_.plans_wanted[0];
  EXPECT_TRUE(wanted.count_all);
  harness_.Handle(event::Planned{number, harness_.MakePlan(wanted)});
  const auto& plan = std::get<v1::Plan>(**harness_.call(call).answer);
  EXPECT_EQ(plan.shards_size(), 2);
  EXPECT_TRUE(plan.shards(0).ticket().empty());
  EXPECT_EQ(harness_.tables().jobs.all().size(), 0u);
  submission = MakeSubmission(harness_.Request(9), harness_.tables().options);
  harness_.Handle(event::PlanJob{call, "anonymous", *submission});
  EXPECT_EQ(ReasonOf(harness_.call(call).answer->status()), "INSUFFICIENT_WORKERS");
}

TEST_F(AdmissionTest, AWaitingJobThatNothingCanServeAnyMoreSaysCapacity) {
  harness_.auto_size = 2;
  harness_.Start(2);
  std::vector<int64_t> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(harness_.Run(harness_.Request(0)));
  EXPECT_EQ(harness_.StateOf(calls[2]), Job::STATE_QUEUED);
  // The remaining worker cannot serve what two could.
  harness_.plan_error = MakeError(absl::StatusCode::kFailedPrecondition, "too large",
                                  ErrorDetail{"INSUFFICIENT_CAPACITY", {}, {}, {}});
  control::v1::WorkerEvent leaving;
  leaving.mutable_leaving();
  harness_.Say(harness_.worker("w1"), leaving);
  harness_.Advance(absl::Seconds(11));
  ASSERT_TRUE(harness_.call(calls[2]).finished.has_value());
  EXPECT_EQ(ReasonOf(*harness_.call(calls[2]).finished), "INSUFFICIENT_CAPACITY");
}

TEST_F(AdmissionTest, AWaitingJobIsPlannedAgainInTheSameEvent) {
  harness_.auto_size = 2;
  harness_.Start(2);
  std::vector<int64_t> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(harness_.Run(harness_.Request(0)));
  EXPECT_EQ(harness_.StateOf(calls[2]), Job::STATE_QUEUED);
  control::v1::WorkerEvent leaving;
  leaving.mutable_leaving();
  harness_.Say(harness_.worker("w1"), leaving);
  EXPECT_EQ(harness_.StateOf(calls[2]), Job::STATE_UPLOADING) << "alone, on the one that stays";
}

TEST_F(AdmissionTest, JobsAreCountedOnce) {
  harness_.Start(1);
  v1::RunJobRequest request = harness_.Request(1, 0);
  for (int i = 0; i < 100; ++i) request.mutable_spec()->add_sequences();
  harness_.Run(request);
  auto submission = MakeSubmission(harness_.Request(1), harness_.tables().options);
  harness_.Handle(event::PlanJob{harness_.NewCall(), "anonymous", *submission});
  harness_.Run(harness_.Request(1));
  EXPECT_EQ(harness_.Info().queued_jobs(), 1) << "the one that is being planned";
  EXPECT_EQ(harness_.Info().running_jobs(), 1);
}

TEST(AdmissionOptionsTest, NoJobIsTakenBelowTheLeastNumberOfWorkers) {
  CoordinatorOptions options;
  options.min_workers = 2;
  CoordinatorHarness harness(options);
  harness.Start(1);
  EXPECT_FALSE(harness.Info().ready());
  const absl::Status refusal = *harness.call(harness.Run(harness.Request(1))).finished;
  EXPECT_EQ(ReasonOf(refusal), "NO_WORKERS");
  EXPECT_TRUE(DetailOf(refusal).retry_after.has_value());
  harness.AddWorker("w1");
  EXPECT_EQ(harness.StateOf(harness.Run(harness.Request(1))), Job::STATE_UPLOADING);
}

TEST(SubmissionTest, RefusesWhatCannotBeMeant) {
  CoordinatorOptions options;
  struct Case {
    const char* reason;
    std::function<void(v1::RunJobRequest*)> spoil;
  };
  const Case cases[] = {
      {"DIM_OVERFLOW", [](auto* r) { r->mutable_spec()->set_q_heads(0); }},
      {"UNKNOWN_ENUM",
       [](auto* r) { r->mutable_spec()->set_dtype(static_cast<v1::DataType>(77)); }},
      {"INVALID_REQUEST", [](auto* r) { r->set_request_id(std::string(65, 'x')); }},
      {"INVALID_REQUEST", [](auto* r) { r->set_request_id("a b"); }},
      {"INVALID_REQUEST", [](auto* r) { r->mutable_timeout()->set_seconds(-1); }},
      {"INVALID_REQUEST", [](auto* r) { r->mutable_timeout()->set_seconds(1000000); }},
      {"INVALID_REQUEST", [](auto* r) { r->mutable_result_ttl()->set_seconds(0); }},
  };
  EXPECT_TRUE(MakeSubmission(CoordinatorHarness::Request(1), options).ok());
  v1::RunJobRequest kept = CoordinatorHarness::Request(1);
  kept.mutable_result_ttl()->set_seconds(5);
  EXPECT_EQ(DetailOf(MakeSubmission(kept, options).status()).fields.at(0).field, "result_ttl");
  kept.set_detached(true);
  EXPECT_TRUE(MakeSubmission(kept, options).ok());
  for (const Case& c : cases) {
    v1::RunJobRequest request = CoordinatorHarness::Request(1);
    c.spoil(&request);
    const auto submission = MakeSubmission(request, options);
    EXPECT_EQ(submission.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(submission.status()), c.reason);
  }
}

}  // namespace
}  // namespace annulus
