#include "attention/planning/prediction_corrector.h"

#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr Operation kForward = Operation::kForward;

Execution Way(Strategy strategy, int32_t size) {
  Execution way;
  way.strategy = strategy;
  way.world_size = size;
  return way;
}

const Execution kRing = Way(Strategy::kRotateKv, 2), kHeads = Way(Strategy::kUlysses, 2);

void AddRuns(PredictionCorrector* ways, const Execution& way, int runs, double ratio) {
  for (int i = 0; i < runs; ++i) ways->Add(way, kForward, 1e-3, ratio * 1e-3, 1);
}

TEST(PredictionCorrectorTest, WithoutRunsNothingIsCorrected) {
  PredictionCorrector ways;
  EXPECT_EQ(ways.FactorOf(kRing, kForward, 1e-3, 1), 1);
  ways.Add(kRing, kForward, 0, 1, 1);
  ways.Add(kRing, kForward, 1, 0, 1);
  AddRuns(&ways, kRing, 2, 3);
  EXPECT_EQ(ways.FactorOf(kRing, kForward, 1e-3, 1), 1) << "two may have been held up";
  EXPECT_EQ(ways.Least(), 1);
}

TEST(PredictionCorrectorTest, TheMedianOfTheLatestRunsSays) {
  PredictionCorrector ways;
  AddRuns(&ways, kRing, 16, 2.5);
  AddRuns(&ways, kRing, 7, 0.5);
  EXPECT_DOUBLE_EQ(ways.FactorOf(kRing, kForward, 1e-3, 1), 2.5);
  AddRuns(&ways, kRing, 2, 0.5);
  EXPECT_DOUBLE_EQ(ways.FactorOf(kRing, kForward, 1e-3, 1), 0.5);
  EXPECT_DOUBLE_EQ(ways.Least(), 0.5);
  AddRuns(&ways, kRing, 16, 100);
  EXPECT_EQ(ways.FactorOf(kRing, kForward, 1e-3, 1), 4);
  AddRuns(&ways, kRing, 16, 1e-3);
  EXPECT_EQ(ways.FactorOf(kRing, kForward, 1e-3, 1), 0.25);
}

// Otherwise a measured execution would be compared with the optimistic prediction of an unmeasured
// one.
TEST(PredictionCorrectorTest, AWayWithoutRunsIsTakenToBeAsTheOthers) {
  PredictionCorrector ways;
  AddRuns(&ways, kRing, 5, 1.5);
  EXPECT_DOUBLE_EQ(ways.FactorOf(kHeads, kForward, 1e-3, 1), 1.5);
  AddRuns(&ways, kHeads, 3, 2);
  EXPECT_DOUBLE_EQ(ways.FactorOf(kHeads, kForward, 1e-3, 1), 2);
  EXPECT_DOUBLE_EQ(ways.FactorOf(kRing, kForward, 1e-3, 1), 1.5);
}

TEST(PredictionCorrectorTest, SizesOperationsLengthsAndPacesAreApart) {
  PredictionCorrector ways;
  AddRuns(&ways, kRing, 16, 2);
  EXPECT_EQ(ways.FactorOf(Way(Strategy::kRotateKv, 4), kForward, 1e-3, 1), 1);
  EXPECT_EQ(ways.FactorOf(Way(Strategy::kRotateKv, 1), kForward, 1e-3, 1), 1);
  EXPECT_EQ(ways.FactorOf(kRing, Operation::kGradients, 1e-3, 1), 1);
  EXPECT_EQ(ways.FactorOf(kRing, kForward, 4.1e-3, 1), 1);
  EXPECT_EQ(ways.FactorOf(kRing, kForward, 0.2e-3, 1), 1);
  EXPECT_EQ(ways.FactorOf(kRing, kForward, 1e-3, 0.8), 1);
  EXPECT_DOUBLE_EQ(ways.FactorOf(kRing, kForward, 1e-3, 0.9), 2);
}

// A slightly greater length must not make an execution look better.
TEST(PredictionCorrectorTest, NeighboursInLengthSpeakForOneAnother) {
  PredictionCorrector ways;
  for (int i = 0; i < 4; ++i) ways.Add(kRing, kForward, 1.0, 2.0, 1);
  for (const double seconds : {0.3, 0.6, 0.99, 1.01, 1.9, 3.9}) {
    EXPECT_DOUBLE_EQ(ways.FactorOf(kRing, kForward, seconds, 1), 2) << seconds;
    EXPECT_DOUBLE_EQ(ways.FactorOf(kHeads, kForward, seconds, 1), 2) << seconds;
  }
  for (int i = 0; i < 4; ++i) ways.Add(kRing, kForward, 3.0, 4.5, 1);
  EXPECT_DOUBLE_EQ(ways.FactorOf(kRing, kForward, 1.4, 1), 2);
  EXPECT_DOUBLE_EQ(ways.FactorOf(kRing, kForward, 2.1, 1), 1.5);
}

TEST(PredictionCorrectorTest, OnOneRankAllWaysAreOne) {
  PredictionCorrector ways;
  AddRuns(&ways, Way(Strategy::kRotateKv, 1), 3, 0.7);
  EXPECT_DOUBLE_EQ(ways.FactorOf(Way(Strategy::kRingPassKv, 1), kForward, 1e-3, 1), 0.7);
}

TEST(PredictionCorrectorTest, WhatIsNotRunForLongIsForgotten) {
  PredictionCorrector ways;
  AddRuns(&ways, kHeads, 16, 0.5);
  AddRuns(&ways, kRing, 1008, 1.5);
  EXPECT_DOUBLE_EQ(ways.FactorOf(kHeads, kForward, 1e-3, 1), 0.5);
  AddRuns(&ways, kRing, 16, 1.5);
  EXPECT_DOUBLE_EQ(ways.FactorOf(kHeads, kForward, 1e-3, 1), 1.5);
  EXPECT_EQ(ways.Least(), 1);
}

}  // namespace
}  // namespace annulus
