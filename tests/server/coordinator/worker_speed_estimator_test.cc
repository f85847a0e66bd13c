#include "server/coordinator/state/worker_speed_estimator.h"

#include "gtest/gtest.h"

namespace annulus {
namespace {

using Kind = WorkerSpeedEstimator::Kind;

TEST(WorkerSpeedEstimatorTest, WithoutRunsPlansKeepToWhatWasMeasured) {
  const WorkerSpeedEstimator pace;
  EXPECT_EQ(pace.factor(), 1);
  EXPECT_EQ(pace.least(), 1);
  EXPECT_EQ(pace.runs(), 0);
}

// A worker measured itself ten times too slow. Two of three runs were disturbed.
TEST(WorkerSpeedEstimatorTest, TheFastestOfTheLatestRunsSays) {
  WorkerSpeedEstimator pace;
  pace.Add(10, 4, Kind::kExact);
  EXPECT_DOUBLE_EQ(pace.factor(), 0.4);
  pace.Add(10, 1, Kind::kExact);
  pace.Add(10, 30, Kind::kExact);
  EXPECT_DOUBLE_EQ(pace.factor(), 0.1);
  EXPECT_DOUBLE_EQ(pace.least(), 0.1);
  // A value that is not repeated in 16 runs counts as chance.
  for (int i = 0; i < 15; ++i) pace.Add(10, 5, Kind::kExact);
  EXPECT_DOUBLE_EQ(pace.factor(), 0.5);
}

TEST(WorkerSpeedEstimatorTest, ShortRunsAreNoEvidence) {
  WorkerSpeedEstimator pace;
  pace.Add(1, 0.019, Kind::kExact);
  pace.Add(0, 1, Kind::kExact);
  pace.Add(1, -1, Kind::kExact);
  EXPECT_EQ(pace.runs(), 0);
  pace.Add(1, 0.02, Kind::kExact);
  EXPECT_EQ(pace.runs(), 1);
  EXPECT_DOUBLE_EQ(pace.factor(), 1.0 / 32) << "nobody measures worse than that";
}

// Caches and masks cause similar differences, and plans should not change from job to job.
TEST(WorkerSpeedEstimatorTest, WhatIsAlikeChangesNoPlanButFavoursDeadlines) {
  WorkerSpeedEstimator pace;
  pace.Add(1, 0.7, Kind::kExact);
  EXPECT_EQ(pace.factor(), 1);
  EXPECT_DOUBLE_EQ(pace.least(), 0.7);
  pace.Add(1, 0.6, Kind::kExact);
  EXPECT_DOUBLE_EQ(pace.factor(), 0.6);
}

TEST(WorkerSpeedEstimatorTest, OnlyAWholeMemoryOfSlowRunsSlowsPlansAndNoDeadline) {
  WorkerSpeedEstimator pace;
  for (int i = 0; i < 15; ++i) pace.Add(1, 8, Kind::kExact);
  EXPECT_EQ(pace.factor(), 1);
  pace.Add(1, 1.8, Kind::kExact);
  EXPECT_DOUBLE_EQ(pace.factor(), 1.8);
  for (int i = 0; i < 16; ++i) pace.Add(1, 8, Kind::kExact);
  EXPECT_EQ(pace.factor(), 2);
  EXPECT_EQ(pace.least(), 1);
}

TEST(WorkerSpeedEstimatorTest, RunsBesideTransfersOnlySayThatAWorkerIsFaster) {
  WorkerSpeedEstimator pace;
  for (int i = 0; i < 16; ++i) pace.Add(1, 1.9, Kind::kBound);
  EXPECT_EQ(pace.runs(), 0);
  pace.Add(1, 0.25, Kind::kBound);
  EXPECT_DOUBLE_EQ(pace.factor(), 0.25);
}

class ShownPacesTest : public testing::Test {
 protected:
  ShownPacesTest() {
    rates_.kernels = {{DataType::kFp32, Arithmetic::kOfType, {{128, 4e-9, 1e-7}}},
                      {DataType::kBf16, Arithmetic::kOfType, {{128, 1e-9, 1e-7}}}};
    spec_.dtype = DataType::kBf16;
    spec_.head_dim = 128;
    cost_.visible_pairs = {100'000'000};
    cost_.task_rows = {1'000'000};
    cost_.task_keys = {0};
  }
  WorkerRates rates_;
  AttentionSpec spec_;
  Cost cost_;
  WorkerSpeedEstimators paces_;
};

TEST_F(ShownPacesTest, PairsAndRowsOfTheRanksOwnWorkerArePredicted) {
  paces_.Add(rates_, spec_, cost_, 0, 0.05);  // Predicted: 0.2 s.
  const KernelRate rate = paces_.RateFor(rates_, spec_);
  EXPECT_DOUBLE_EQ(rate.pair_seconds, 1e-9 / 4);
  EXPECT_DOUBLE_EQ(rate.row_seconds, 1e-7 / 4);
  ASSERT_EQ(paces_.all().size(), 1u);
  EXPECT_EQ(paces_.all().begin()->first.kernel, 1u);
}

TEST_F(ShownPacesTest, KeysThatTheRankReadsArePredicted) {
  rates_.kernels[1].rates[0].key_seconds = 2e-7;
  cost_.task_keys = {1'000'000};
  paces_.Add(rates_, spec_, cost_, 0, 0.1);  // Predicted: 0.4 s.
  const KernelRate rate = paces_.RateFor(rates_, spec_);
  EXPECT_DOUBLE_EQ(rate.pair_seconds, 1e-9 / 4);
  EXPECT_DOUBLE_EQ(rate.key_seconds, 2e-7 / 4);
  EXPECT_DOUBLE_EQ(paces_.LeastRateFor(rates_, spec_).key_seconds, 2e-7 / 4);
}

TEST_F(ShownPacesTest, AnotherKernelKeepsItsRateAndItsDeadlinesHope) {
  paces_.Add(rates_, spec_, cost_, 0, 0.05);
  AttentionSpec fp32 = spec_;
  fp32.dtype = DataType::kFp32;
  EXPECT_EQ(paces_.RateFor(rates_, fp32).pair_seconds, 4e-9);
  EXPECT_DOUBLE_EQ(paces_.LeastRateFor(rates_, fp32).pair_seconds, 1e-9);
  // fp16 gradients use fp32's rates, but are another kernel.
  AttentionSpec gradients = spec_;
  gradients.dtype = DataType::kFp16;
  gradients.operation = Operation::kGradients;
  paces_.Add(rates_, gradients, cost_, 0, 0.25);
  EXPECT_EQ(paces_.RateFor(rates_, fp32).pair_seconds, 4e-9);
  EXPECT_LT(paces_.RateFor(rates_, gradients).pair_seconds,
            RateOf(gradients, rates_.kernels[0]).pair_seconds);
}

// Before any job has run.
TEST_F(ShownPacesTest, AWorkerThatHadFewProcessorsMayBeAsMuchFaster) {
  rates_.cpu_share = 0.125;
  EXPECT_EQ(paces_.RateFor(rates_, spec_).pair_seconds, 1e-9);
  EXPECT_DOUBLE_EQ(paces_.LeastRateFor(rates_, spec_).pair_seconds, 0.125e-9);
  rates_.cpu_share = 1e-6;
  EXPECT_DOUBLE_EQ(paces_.LeastOf(rates_, Operation::kForward), 1.0 / 32);
  rates_.cpu_share = 0.125;
  // A run that is too short, and one of a disturbed group, show nothing.
  paces_.Add(rates_, spec_, cost_, 0, 0.01);
  Cost group = cost_;
  group.visible_pairs.push_back(0);
  paces_.Add(rates_, spec_, group, 0, 0.4);
  EXPECT_DOUBLE_EQ(paces_.LeastOf(rates_, Operation::kForward), 0.125);
  // Then jobs determine it; for gradients, once gradients jobs have run.
  paces_.Add(rates_, spec_, cost_, 0, 0.05);
  EXPECT_DOUBLE_EQ(paces_.LeastOf(rates_, Operation::kForward), 0.25);
  EXPECT_DOUBLE_EQ(paces_.LeastOf(rates_, Operation::kGradients), 0.125);
  rates_.cpu_share = 0.5;
  EXPECT_DOUBLE_EQ(paces_.LeastOf(rates_, Operation::kForward), 0.25);
}

// fp16 gradients may be many times as fast as fp32's rates.
TEST_F(ShownPacesTest, GradientsOfATypeSayNothingOfAnotherNorOfForwardPasses) {
  AttentionSpec gradients = spec_;
  gradients.dtype = DataType::kFp16;
  gradients.operation = Operation::kGradients;
  const KernelRate measured = RateOf(gradients, rates_.kernels[0]);
  paces_.Add(rates_, gradients, cost_, 0, 0.05);
  const double shown = 0.05 / (1e8 * measured.pair_seconds + 1e6 * measured.row_seconds);
  ASSERT_LT(shown, 0.5);
  EXPECT_DOUBLE_EQ(paces_.RateFor(rates_, gradients).pair_seconds, shown * measured.pair_seconds);
  EXPECT_EQ(paces_.LeastRateFor(rates_, spec_).pair_seconds, 1e-9);
  EXPECT_EQ(paces_.LeastOf(rates_, Operation::kForward), 1);
  EXPECT_DOUBLE_EQ(paces_.LeastOf(rates_, Operation::kGradients), shown);
  gradients.dtype = DataType::kFp32;
  EXPECT_EQ(paces_.RateFor(rates_, gradients).pair_seconds, measured.pair_seconds);
  ASSERT_EQ(paces_.all().size(), 1u);
  EXPECT_EQ(paces_.all().begin()->first.dtype, DataType::kFp16);
  // Forward passes say nothing about gradients either.
  paces_.Add(rates_, spec_, cost_, 0, 0.02);
  EXPECT_DOUBLE_EQ(paces_.LeastOf(rates_, Operation::kGradients), shown);
  EXPECT_DOUBLE_EQ(paces_.LeastOf(rates_, Operation::kForward), 0.1);
}

TEST_F(ShownPacesTest, ARankThatThePlanDoesNotCountSaysNothing) {
  paces_.Add(rates_, spec_, cost_, 1, 0.05);
  paces_.Add(rates_, spec_, Cost(), 0, 0.05);
  EXPECT_TRUE(paces_.all().empty());
}

TEST_F(ShownPacesTest, RanksOfAGroupSayBounds) {
  cost_.visible_pairs = {100'000'000, 50'000'000};
  cost_.task_rows = {1'000'000, 0};
  cost_.task_keys = {0, 0};
  paces_.Add(rates_, spec_, cost_, 0, 0.4);
  EXPECT_EQ(paces_.all().begin()->second.runs(), 0);
  paces_.Add(rates_, spec_, cost_, 1, 0.025);
  EXPECT_DOUBLE_EQ(paces_.RateFor(rates_, spec_).pair_seconds, 0.5e-9);
}

}  // namespace
}  // namespace annulus
