#include "attention/planning/choose_execution.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/attention/planning/cost_cases.h"

namespace annulus {
namespace {

// Two plans with equal task times differ in the bytes sent.
TEST(ChooseExecutionTest, OfEqualWorkTheOneThatSendsLessIsTaken) {
  Execution wanted;
  wanted.world_size = 2;
  const auto candidates = ChooseExecution(CostSpec(256, 16384, false), wanted, Offer({2}));
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->front().execution.strategy, Strategy::kTree);
  for (const Candidate& candidate : *candidates) {
    if (candidate.execution.strategy != Strategy::kRotateKv) continue;
    EXPECT_GT(candidate.cost.bytes_sent[0], 5 * candidates->front().cost.bytes_sent[0]);
  }
}

// Predicted times have errors; bytes have none.
TEST(ChooseExecutionTest, OfWaysThatAreAlikeTheOneThatSendsLessIsTaken) {
  Execution wanted;
  wanted.world_size = 2;
  bool slower = false;
  for (const int64_t rows : {1024, 4096, 16384}) {
    for (const double link : {1e8, 3e8, 1e9, 3e9, 1e10, 1e11}) {
      Choice choice = Offer({2});
      choice.rates.link_bytes_per_second = link;
      choice.rates.pair_seconds = 3e-10;
      choice.rates.row_seconds = 3e-7;
      AttentionSpec spec = CostSpec(rows, rows, true);
      spec.q_heads = 4;
      spec.kv_heads = 1;
      const auto candidates = ChooseExecution(spec, wanted, choice);
      ASSERT_TRUE(candidates.ok());
      const Cost& taken = candidates->front().cost;
      double fastest = taken.seconds;
      for (const Candidate& c : *candidates) fastest = std::min(fastest, c.cost.seconds);
      EXPECT_LE(taken.seconds, 1.08 * fastest);
      for (const Candidate& c : *candidates) {
        if (c.cost.seconds > 1.08 * fastest) continue;
        EXPECT_LE(Sum(taken.bytes_sent), Sum(c.cost.bytes_sent)) << rows << " " << link;
      }
      slower = slower || taken.seconds > fastest;
    }
  }
  EXPECT_TRUE(slower) << "the case does not occur";
}

TEST(ChooseExecutionTest, ASmallJobStaysOnOneWorkerAndALargeOneIsShared) {
  const auto small = ChooseExecution(CostSpec(128, 128, false), {}, Offer({1, 2, 4}));
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->front().execution.world_size, 1);
  EXPECT_EQ(small->front().rejected, "");
  const auto large = ChooseExecution(CostSpec(65536, 65536, true), {}, Offer({1, 2, 4}));
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(large->front().execution.world_size, 4);
  EXPECT_EQ(large->front().execution.layout, Layout::kZigzag);
}

// Predictions stay the same; expected times follow the measurements of jobs.
TEST(ChooseExecutionTest, WhatJobsHaveShownDecidesAmongPredictions) {
  const AttentionSpec spec = CostSpec(16384, 16384, true);
  Choice choice = Offer({1, 2});
  const auto predicted = ChooseExecution(spec, {}, choice);
  ASSERT_TRUE(predicted.ok());
  const Candidate& taken = predicted->front();
  ASSERT_EQ(taken.execution.world_size, 2);
  EXPECT_EQ(taken.cost.expected_seconds, taken.cost.seconds);
  PredictionCorrector shown;
  choice.shown = &shown;
  const double seconds = taken.cost.seconds;
  for (int i = 0; i < 3; ++i)
    shown.Add(taken.execution, spec.operation, seconds, 1.5 * seconds, choice.pace);
  auto candidates = ChooseExecution(spec, {}, choice);
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->front().cost.seconds, seconds);
  EXPECT_DOUBLE_EQ(candidates->front().cost.expected_seconds, 1.5 * seconds);
  for (int i = 0; i < 16; ++i)
    shown.Add(taken.execution, spec.operation, seconds, 3 * seconds, choice.pace);
  candidates = ChooseExecution(spec, {}, choice);
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->front().execution.world_size, 1) << "two take three times as long";
  choice.pace = 0.5;
  candidates = ChooseExecution(spec, {}, choice);
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->front().execution.world_size, 2) << "by another pace nothing was shown";
}

// A bound by predictions alone would exclude plans that were measured to be faster.
TEST(ChooseExecutionTest, AGroupThatHasShownThatItIsFasterIsLookedAt) {
  const AttentionSpec spec = CostSpec(256, 256, false);
  Choice choice = Offer({1, 2});
  choice.rates.job_seconds = 3e-3;
  const auto predicted = ChooseExecution(spec, {}, choice);
  ASSERT_TRUE(predicted.ok());
  ASSERT_EQ(predicted->front().execution.world_size, 1);
  ASSERT_TRUE(predicted->back().cost.bytes_sent.empty()) << "it is not ruled out";
  PredictionCorrector shown;
  choice.shown = &shown;
  Execution group;
  group.strategy = Strategy::kRotateKv;
  group.world_size = 2;
  for (const double length : {1e-3, 4e-3, 16e-3})
    for (int i = 0; i < 3; ++i) shown.Add(group, spec.operation, length, length / 4, choice.pace);
  const auto candidates = ChooseExecution(spec, {}, choice);
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->front().execution.world_size, 2);
}

TEST(ChooseExecutionTest, WhatWasNotTakenSaysWhyAndIsNoFaster) {
  const auto candidates = ChooseExecution(CostSpec(8192, 8192, true), {}, Offer({1, 2}));
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->size(), 13u);  // One rank, and 5 strategies × 2 layouts on two.
  for (size_t i = 1; i < candidates->size(); ++i) {
    EXPECT_NE((*candidates)[i].rejected, "");
    EXPECT_GE(1.08 * (*candidates)[i].cost.seconds, candidates->front().cost.seconds);
    // Candidates that send nothing differ from candidates that were not counted.
    EXPECT_EQ((*candidates)[i].rejected.find("not counted") == std::string::npos,
              !(*candidates)[i].cost.bytes_sent.empty());
  }
}

// Queries with their gradients are fewer bytes than keys with theirs only without grouped heads.
TEST(ChooseExecutionTest, AutoChoosesAmongBuildersOfGradientsByBytes) {
  AttentionSpec spec = CostSpec(4096, 4096, false);
  spec.operation = Operation::kGradients;
  Execution wanted;
  wanted.world_size = 4;
  Choice choice = Offer({4});
  choice.rates.link_bytes_per_second = 1e7;
  const auto grouped = ChooseExecution(spec, wanted, choice);
  ASSERT_TRUE(grouped.ok());
  EXPECT_NE(grouped->front().execution.strategy, Strategy::kRingPassQ);
  std::set<Strategy> looked_at;
  for (const Candidate& candidate : *grouped) looked_at.insert(candidate.execution.strategy);
  EXPECT_EQ(looked_at.count(Strategy::kUlyssesRing), 1u);
  EXPECT_EQ(looked_at.count(Strategy::kTree), 1u);
  spec.q_heads = spec.kv_heads = 8;
  const auto plain = ChooseExecution(spec, wanted, choice);
  ASSERT_TRUE(plain.ok());
  std::map<Strategy, double> seconds;
  for (const Candidate& candidate : *plain) {
    seconds.try_emplace(candidate.execution.strategy, candidate.cost.seconds);
  }
  EXPECT_EQ(plain->front().execution.strategy, Strategy::kUlysses);
  EXPECT_LT(seconds.at(Strategy::kRingPassQ), seconds.at(Strategy::kRingPassKv));
}

TEST(ChooseExecutionTest, DegreesAreMetOrRefused) {
  const AttentionSpec spec = CostSpec(4096, 4096, true);
  Execution wanted;
  wanted.ulysses_degree = 2;
  wanted.ring_degree = 3;
  const auto grid = ChooseExecution(spec, wanted, Offer({1, 2, 4, 8}));
  ASSERT_TRUE(grid.ok()) << grid.status();
  for (const Candidate& candidate : *grid) {
    EXPECT_EQ(candidate.execution.strategy, Strategy::kUlyssesRing);
    EXPECT_EQ(candidate.execution.world_size, 6);
  }
  wanted.ring_degree = 0;
  const auto exchange = ChooseExecution(spec, wanted, Offer({1, 3}));
  ASSERT_TRUE(exchange.ok()) << exchange.status();
  EXPECT_EQ(exchange->front().execution.strategy, Strategy::kUlysses);
  EXPECT_EQ(exchange->front().execution.world_size, 2);
  const absl::Status none = ChooseExecution(spec, wanted, Offer({1})).status();
  EXPECT_EQ(DetailOf(none).reason, "INSUFFICIENT_WORKERS");
  EXPECT_EQ(DetailOf(none).fields[0].field, "execution.ulysses_degree");
  wanted.ulysses_degree = 0;
  wanted.ring_degree = 4;
  wanted.strategy = Strategy::kRingPassKv;
  const auto ring = ChooseExecution(spec, wanted, Offer({1, 8}));
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_EQ(ring->front().execution.world_size, 4);
}

// Many heads on a slow link: an exchange of heads sends less than a ring of keys.
TEST(ChooseExecutionTest, AutoTakesAnExchangeWhereItSendsLess) {
  AttentionSpec spec = CostSpec(8192, 8192, false);
  spec.q_heads = spec.kv_heads = 16;
  Choice choice = Offer({8});
  choice.rates.link_bytes_per_second = 1e7;
  Execution wanted;
  wanted.world_size = 8;
  const auto candidates = ChooseExecution(spec, wanted, choice);
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->front().execution.ulysses_degree, 8);
  EXPECT_EQ(candidates->front().execution.strategy, Strategy::kUlysses);
  // Few queries over many keys: the queries travel, and the keys stay.
  const auto few = ChooseExecution(CostSpec(64, 65536, false), wanted, choice);
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->front().execution.strategy, Strategy::kRingPassQ);
  // On a link whose latency dominates, the plan with the fewest steps wins.
  const auto quick = ChooseExecution(CostSpec(64, 65536, false), wanted, Offer({8}));
  ASSERT_TRUE(quick.ok());
  EXPECT_EQ(quick->front().execution.strategy, Strategy::kTree);
}

// Six heads on four ranks: with whole heads some ranks have two; with units each has one and a
// half.
TEST(ChooseExecutionTest, HeadsAreDealtByCost) {
  AttentionSpec spec = CostSpec(4096, 4096, false);
  spec.q_heads = 6;
  spec.kv_heads = 3;
  Execution wanted;
  wanted.strategy = Strategy::kUlysses;
  wanted.world_size = 4;
  wanted.layout = Layout::kContiguous;
  const auto candidates = ChooseExecution(spec, wanted, Offer({4}));
  ASSERT_TRUE(candidates.ok());
  ASSERT_EQ(candidates->size(), 2u);
  const Candidate &units = (*candidates)[0], &whole = (*candidates)[1];
  EXPECT_EQ(units.execution.head_deal, HeadAssignment::kUnits);
  EXPECT_EQ(whole.execution.head_deal, HeadAssignment::kWholeHeads);
  EXPECT_EQ(units.cost.balance, 1);
  EXPECT_NEAR(whole.cost.balance, 4.0 / 3, 1e-9);
  EXPECT_GT(Sum(units.cost.bytes_sent), Sum(whole.cost.bytes_sent));
}

// Planning for 32 ranks takes about 10 ms a schedule. Sending 65,536 tokens takes 30 ms.
TEST(ChooseExecutionTest, LargeGroupsAreNotSearchedForLongerThanItCouldSave) {
  Execution wanted;
  wanted.world_size = 32;
  const auto candidates = ChooseExecution(CostSpec(65536, 65536, false), wanted, Offer({32}));
  ASSERT_TRUE(candidates.ok());
  int looked = 0;
  for (size_t i = 1; i < candidates->size(); ++i) {
    const Candidate& candidate = (*candidates)[i];
    EXPECT_EQ(candidate.cost.bytes_sent.empty(),
              candidate.rejected.find("bytes were not counted") != std::string::npos);
    looked += candidate.cost.bytes_sent.empty() ? 0 : 1;
    EXPECT_GE(candidate.cost.seconds * 1.011, candidates->front().cost.seconds);
  }
  EXPECT_GT(looked, 0);
  EXPECT_LE(looked, 4);
  EXPECT_EQ(ChooseExecution(CostSpec(1024, 1024, false), wanted, Offer({32}))
                ->back()
                .cost.bytes_sent.size(),
            0u);
}

// The first candidate's work is even within 1 %, but it sends 496 MB, 0.5 s of link time.
TEST(ChooseExecutionTest, ALongJobOfALargeGroupIsSearchedForTheWayThatSendsLeast) {
  Execution wanted;
  wanted.world_size = 32;
  const AttentionSpec spec = CostSpec(int64_t{1} << 20, int64_t{1} << 20, false);
  const auto candidates = ChooseExecution(spec, wanted, Offer({32}));
  ASSERT_TRUE(candidates.ok());
  const Candidate& taken = candidates->front();
  EXPECT_EQ(taken.execution.strategy, Strategy::kUlyssesRing);
  int64_t first = 0;
  for (const Candidate& candidate : *candidates) {
    ASSERT_FALSE(candidate.cost.bytes_sent.empty()) << candidate.rejected;
    if (candidate.execution.strategy == Strategy::kRotateKv) first = Sum(candidate.cost.bytes_sent);
  }
  EXPECT_LT(Sum(taken.cost.bytes_sent) * 10, first * 6);
}

TEST(ChooseExecutionTest, WhatIsAskedForIsMetOrRefused) {
  Execution wanted;
  wanted.strategy = Strategy::kRingPassKv;
  wanted.layout = Layout::kStriped;
  wanted.world_size = 2;
  const auto candidates = ChooseExecution(CostSpec(64, 64, false), wanted, Offer({1, 2}));
  ASSERT_TRUE(candidates.ok());
  ASSERT_EQ(candidates->size(), 1u);
  EXPECT_EQ(candidates->front().execution.strategy, Strategy::kRingPassKv);
  EXPECT_EQ(candidates->front().execution.layout, Layout::kStriped);
  EXPECT_EQ(candidates->front().execution.world_size, 2);
  EXPECT_EQ(candidates->front().execution.stripe, 1);

  wanted.world_size = 3;
  const absl::Status status =
      ChooseExecution(CostSpec(64, 64, false), wanted, Offer({1, 2})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DetailOf(status).reason, "INSUFFICIENT_WORKERS");
  EXPECT_EQ(DetailOf(status).fields[0].field, "execution.world_size");
}

TEST(ChooseExecutionTest, AJobThatFitsNowhereIsRefusedWithTheBytesItNeeds) {
  Choice choice = Offer({1, 2});
  const int64_t one =
      CostOf(CostSpec(4096, 4096, false), Strategy::kRotateKv, Layout::kContiguous, 1)
          .peak_bytes_per_rank;
  choice.max_peak_bytes = one - 1;
  const auto shared = ChooseExecution(CostSpec(4096, 4096, false), {}, choice);
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_EQ(shared->front().execution.world_size, 2);
  choice.max_peak_bytes = 1000;
  const absl::Status status = ChooseExecution(CostSpec(4096, 4096, false), {}, choice).status();
  EXPECT_EQ(DetailOf(status).reason, "INSUFFICIENT_CAPACITY");
  EXPECT_GT(std::stoll(DetailOf(status).metadata.at("needed_bytes")), 1000);
}

TEST(ChooseExecutionTest, WhatNoWayHasIsTheExecutionsFault) {
  Execution wanted;
  wanted.head_deal = HeadAssignment::kUnits;
  const absl::Status status = ChooseExecution(CostSpec(64, 64, false), wanted, Offer({1})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(status).reason, "INVALID_EXECUTION");
}

TEST(ChooseExecutionTest, TheRefusalNamesTheOptionsThatExcludeEachOther) {
  const auto refused = [](const Execution& wanted) {
    const absl::Status status =
        ChooseExecution(CostSpec(64, 64, false), wanted, Offer({1, 2, 4})).status();
    EXPECT_EQ(DetailOf(status).reason, "INVALID_EXECUTION");
    EXPECT_EQ(DetailOf(status).fields.at(0).field, "execution");
    return DetailOf(status).fields.at(0).description;
  };
  Execution wanted;
  wanted.bf16_partials = true;
  wanted.ring_degree = 1;
  EXPECT_EQ(refused(wanted), "no way to run the job fits ring_degree and bf16_partials");
  wanted.ring_degree = 0;
  wanted.ulysses_degree = 2;
  wanted.layout = Layout::kZigzag;  // A layout that takes no part in it.
  EXPECT_EQ(refused(wanted), "no way to run the job fits ulysses_degree and bf16_partials");
  wanted.world_size = 4;
  EXPECT_EQ(refused(wanted), "no way to run the job fits ulysses_degree and bf16_partials");
  wanted.ulysses_degree = 0;
  wanted.head_deal = HeadAssignment::kUnits;
  EXPECT_EQ(refused(wanted), "no way to run the job fits head_deal and bf16_partials");
  wanted.world_size = 0;
  wanted.ulysses_degree = 2;  // Each of the two excludes bf16_partials.
  EXPECT_EQ(refused(wanted),
            "no way to run the job fits ulysses_degree and head_deal and bf16_partials");
}

TEST(ChooseExecutionTest, WaysThatAddUpByRankAreNotServedToDeterministicJobs) {
  AttentionSpec spec = CostSpec(64, 64, false);
  spec.operation = Operation::kGradients;
  spec.deterministic = true;
  spec.q_heads = 6;
  spec.kv_heads = 3;
  Execution grid;  // On four ranks, only the 2 × 2 execution has such rings.
  grid.world_size = 4;
  grid.ring_degree = 2;
  Execution pinned;  // Pinned to the ranks of a kept state.
  pinned.strategy = Strategy::kUlysses;
  pinned.world_size = 2;
  for (const Execution& wanted : {grid, pinned}) {
    const absl::Status status = ChooseExecution(spec, wanted, Offer({1, 2, 4})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_EQ(DetailOf(status).metadata["features"], "deterministic/gradients-of-shared-heads");
  }
  spec.kv_heads = 6;
  EXPECT_TRUE(ChooseExecution(spec, grid, Offer({1, 2, 4})).ok());
}

TEST(ChooseExecutionTest, PartialsInBf16LeaveOpenWhatSendsThem) {
  Execution wanted;
  wanted.bf16_partials = true;
  const auto candidates = ChooseExecution(CostSpec(64, 65536, false), wanted, Offer({1, 2, 4}));
  ASSERT_TRUE(candidates.ok()) << candidates.status();
  EXPECT_EQ(candidates->size(), 8u);  // 2 strategies × 2 layouts × 2 sizes.
  for (const Candidate& candidate : *candidates) {
    EXPECT_TRUE(SendsPartials(candidate.execution.strategy));
    EXPECT_GT(candidate.execution.world_size, 1);
    EXPECT_TRUE(candidate.execution.bf16_partials);
  }
  const absl::Status alone = ChooseExecution(CostSpec(64, 64, false), wanted, Offer({1})).status();
  EXPECT_EQ(DetailOf(alone).reason, "INSUFFICIENT_WORKERS");
  EXPECT_EQ(DetailOf(alone).fields[0].field, "execution.bf16_partials");
  wanted.ring_degree = 3;
  const auto three = ChooseExecution(CostSpec(64, 64, false), wanted, Offer({1, 4}));
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(three->front().execution.world_size, 3);
}

TEST(ChooseExecutionTest, NothingToAttendCostsNothing) {
  const auto candidates = ChooseExecution(CostSpec(0, 0, false), {}, Offer({1, 2}));
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->front().execution.world_size, 1);
  EXPECT_EQ(candidates->front().cost.seconds, 0);
  EXPECT_EQ(candidates->front().cost.balance, 1);
}

TEST(WhyNotTakenTest, SaysByHowMuchItIsSlower) {
  EXPECT_EQ(WhyNotTaken(3.14159), "predicted to take 3.14 times as long");
  EXPECT_EQ(WhyNotTaken(1.1001), "predicted to take 1.1 times as long");
  EXPECT_EQ(WhyNotTaken(1.099), "predicted to take 9.9 % longer");
  EXPECT_EQ(WhyNotTaken(1.0003), "predicted to take 0.03 % longer");
  EXPECT_EQ(WhyNotTaken(1 + 1e-9), "predicted to be no faster than the one taken");
  EXPECT_EQ(WhyNotTaken(1), "predicted to be no faster than the one taken");
  EXPECT_EQ(WhyNotTaken(0.97), "sends more, and is predicted to be hardly faster");
}

}  // namespace
}  // namespace annulus
