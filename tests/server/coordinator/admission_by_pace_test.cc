#include "gtest/gtest.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

using v1::Job;

class AdmissionByPaceTest : public testing::Test {
 protected:
  // Runs a job with ten seconds to its deadline.
  int64_t RunSoon(const v1::RunJobRequest& request) {
    return harness_.Run(request, "anonymous", harness_.now() + absl::Seconds(10));
  }
  std::string RefusalOf(int64_t call) {
    const std::optional<absl::Status>& finished = harness_.call(call).finished;
    return finished.has_value() ? ReasonOf(*finished) : "";
  }
  // Finishes a job on one worker, with these times in its report.
  void Finish(const v1::RunJobRequest& request, absl::Duration took, absl::Duration waited) {
    harness_.took = took;
    harness_.waited = waited;
    const std::string job = harness_.JobOf(harness_.Run(request));
    harness_.Upload(job);
    harness_.OutputsReady(job);
    harness_.Fetch(job);
  }
  void FinishOne(absl::Duration took, absl::Duration waited) {
    Finish(harness_.Request(1), took, waited);
  }
  // `running` was predicted to take 30 s, but takes one.
  void ShowThatItTakesASecond(int64_t running) {
    harness_.plan_seconds = 1;
    EXPECT_EQ(RefusalOf(RunSoon(harness_.Request(1))), "DEADLINE_UNREACHABLE");
    harness_.took = absl::Seconds(1);
    harness_.Upload(harness_.JobOf(running));
    harness_.OutputsReady(harness_.JobOf(running));
    EXPECT_EQ(harness_.StateOf(RunSoon(harness_.Request(1))), Job::STATE_QUEUED);
  }
  CoordinatorHarness harness_;
};

// A worker that measured itself while the machine was busy: 1e-8 s a pair instead of 1e-9.
TEST_F(AdmissionByPaceTest, ALongJobIsTakenWhenAShortOneHasShownThatTheWorkerIsFaster) {
  harness_.Start(1);
  harness_.plan_by_rate = true;
  harness_.plan_pairs = 2'000'000'000;
  EXPECT_EQ(RefusalOf(RunSoon(harness_.Request(1))), "DEADLINE_UNREACHABLE");
  harness_.plan_pairs = 50'000'000;
  FinishOne(absl::Milliseconds(90), absl::Milliseconds(40));
  const v1::WorkerInfo& info = harness_.Info().workers(0);
  EXPECT_EQ(info.rates().kernels(0).rates(0).pair_seconds(), 1e-8) << "what was measured stays";
  ASSERT_EQ(info.shown_size(), 1);
  EXPECT_DOUBLE_EQ(info.shown(0).factor(), 0.1);
  EXPECT_DOUBLE_EQ(info.shown(0).least(), 0.1);
  EXPECT_EQ(info.shown(0).runs(), 1);
  EXPECT_EQ(info.shown(0).dtype(), v1::DATA_TYPE_FP32);
  EXPECT_FALSE(info.shown(0).gradients());
  harness_.plan_pairs = 2'000'000'000;
  EXPECT_EQ(harness_.StateOf(RunSoon(harness_.Request(1))), Job::STATE_UPLOADING);
  EXPECT_DOUBLE_EQ(harness_.planned_pair_seconds, 1e-9);
}

TEST_F(AdmissionByPaceTest, ADeadlineIsRefusedOnlyByTheBestThatAnyWorkerHasShown) {
  harness_.bf16_pair_seconds = 1e-8;
  harness_.Start(2);
  v1::RunJobRequest request = harness_.Request(1);
  request.mutable_spec()->set_dtype(v1::DATA_TYPE_BF16);
  harness_.plan_seconds = 20;
  EXPECT_EQ(RefusalOf(RunSoon(request)), "DEADLINE_UNREACHABLE");
  // Jobs have shown that one worker is 2.5 times as fast with fp32. So it may also be with bf16.
  harness_.plan_seconds = 0.5;
  harness_.plan_pairs = 50'000'000;
  FinishOne(absl::Milliseconds(200), absl::ZeroDuration());
  harness_.plan_seconds = 20;
  EXPECT_EQ(harness_.StateOf(RunSoon(request)), Job::STATE_UPLOADING);
  EXPECT_EQ(harness_.planned_pair_seconds, 1e-8) << "by what bf16 has shown";
  harness_.plan_seconds = 30;
  EXPECT_EQ(RefusalOf(RunSoon(request)), "DEADLINE_UNREACHABLE");
}

// Otherwise no long job would ever be accepted without earlier short ones.
TEST_F(AdmissionByPaceTest, AWorkerThatHadFewProcessorsIsGivenTheBenefitOfTheDoubt) {
  harness_.cpu_share = 0.4;
  harness_.Start(1);
  harness_.plan_seconds = 26;
  EXPECT_EQ(RefusalOf(RunSoon(harness_.Request(1))), "DEADLINE_UNREACHABLE");
  harness_.plan_seconds = 24;
  EXPECT_EQ(harness_.StateOf(RunSoon(harness_.Request(1))), Job::STATE_UPLOADING);
  EXPECT_EQ(harness_.planned_pair_seconds, 1e-8) << "plans keep to what was measured";
}

// Waiting work in seconds, as predicted before any measurement.
TEST_F(AdmissionByPaceTest, WorkThatWaitsCountsByTheBestThatWorkersHaveShown) {
  harness_.staging_limit = 1500;  // Room for one job.
  harness_.Start(1);
  harness_.plan_seconds = 30;
  harness_.plan_pairs = 1'000'000'000;
  const int64_t first = harness_.Run(harness_.Request(1));
  harness_.Run(harness_.Request(1));
  ShowThatItTakesASecond(first);
}

TEST_F(AdmissionByPaceTest, GradientsThatWaitCountByTheBestThatGradientsHaveShown) {
  harness_.staging_limit = 2500;  // Room for one job.
  harness_.Start(1);
  v1::RunJobRequest gradients = harness_.Request(1);
  gradients.mutable_spec()->mutable_gradients();
  harness_.plan_seconds = 30;
  harness_.plan_pairs = 1'000'000'000;
  const int64_t first = harness_.Run(gradients);
  EXPECT_EQ(harness_.StateOf(first), Job::STATE_UPLOADING);
  EXPECT_EQ(harness_.StateOf(harness_.Run(gradients)), Job::STATE_QUEUED);
  ShowThatItTakesASecond(first);
}

// The plan was made with old rates.
TEST_F(AdmissionByPaceTest, APlanMadeElsewhereCountsByWhatWasShownMeanwhile) {
  harness_.Start(1);
  harness_.plan_by_rate = true;
  harness_.plan_pairs = 2'000'000'000;
  v1::RunJobRequest many = harness_.Request(1, 0);
  while (many.spec().sequences_size() <= harness_.tables().options.inline_plan_sequences) {
    many.mutable_spec()->add_sequences();
  }
  const int64_t taken = RunSoon(many), refused = RunSoon(many);
  ASSERT_EQ(harness_.plans_wanted.size(), 2u);
  const auto answer = [&](int i) {
    const auto& [plan, wanted] = harness_.plans_wanted[i];
    harness_.Handle(event::Planned{plan, harness_.MakePlan(wanted)});
  };
  answer(1);
  EXPECT_EQ(RefusalOf(refused), "DEADLINE_UNREACHABLE");
  harness_.plan_pairs = 50'000'000;
  FinishOne(absl::Milliseconds(50), absl::ZeroDuration());
  harness_.plan_pairs = 2'000'000'000;
  answer(0);
  EXPECT_EQ(RefusalOf(taken), "");
  EXPECT_EQ(harness_.StateOf(taken), Job::STATE_UPLOADING);
}

TEST_F(AdmissionByPaceTest, WorkThatWaitsIsNotDiscountedTwice) {
  harness_.staging_limit = 1500;  // Room for one job.
  harness_.Start(1);
  harness_.plan_pairs = 50'000'000;
  FinishOne(absl::Milliseconds(50), absl::ZeroDuration());
  harness_.plan_seconds = 30;  // The prediction uses a tenth of the measured rate.
  EXPECT_EQ(harness_.StateOf(harness_.Run(harness_.Request(1))), Job::STATE_UPLOADING);
  EXPECT_EQ(harness_.StateOf(harness_.Run(harness_.Request(1))), Job::STATE_QUEUED);
  harness_.plan_seconds = 1;
  EXPECT_EQ(RefusalOf(RunSoon(harness_.Request(1))), "DEADLINE_UNREACHABLE");
}

TEST_F(AdmissionByPaceTest, GradientsOf16BitsLeaveDeadlinesOfForwardJobsAlone) {
  harness_.staging_limit = 1500;  // Room for one job.
  harness_.bf16_pair_seconds = 1e-8;
  harness_.Start(1);
  v1::RunJobRequest gradients = harness_.Request(1);
  gradients.mutable_spec()->set_dtype(v1::DATA_TYPE_BF16);
  gradients.mutable_spec()->mutable_gradients();
  harness_.plan_pairs = 50'000'000;
  Finish(gradients, absl::Milliseconds(50), absl::ZeroDuration());
  const v1::WorkerInfo& info = harness_.Info().workers(0);
  ASSERT_EQ(info.shown_size(), 1);
  EXPECT_EQ(info.shown(0).dtype(), v1::DATA_TYPE_BF16);
  EXPECT_TRUE(info.shown(0).gradients());
  harness_.plan_seconds = 20;
  EXPECT_EQ(RefusalOf(RunSoon(harness_.Request(1))), "DEADLINE_UNREACHABLE");
  // Waiting jobs count by their own operation.
  harness_.Run(harness_.Request(1));
  harness_.Run(harness_.Request(1));
  harness_.plan_seconds = 1;
  EXPECT_EQ(RefusalOf(RunSoon(harness_.Request(1))), "DEADLINE_UNREACHABLE");
}

}  // namespace
}  // namespace annulus
