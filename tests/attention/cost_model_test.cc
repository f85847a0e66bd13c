#include "attention/cost_model.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "attention/degrees.h"
#include "attention/error.h"
#include "attention/mask.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

AttentionSpec Spec(int64_t q_len, int64_t kv_len, bool causal) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = 8;
  spec.kv_heads = 2;
  spec.head_dim = 64;
  spec.sequences = {{q_len, kv_len, "", 0, 0}};
  if (causal) spec.masks.emplace_back().causal = true;
  return spec;
}

Choice Offer(std::vector<int32_t> sizes) {
  Choice choice;
  choice.sizes = std::move(sizes);
  choice.max_peak_bytes = int64_t{1} << 40;
  return choice;
}

Cost CostOf(const AttentionSpec& spec, Strategy strategy, Layout layout, int32_t size) {
  PlanOptions options;
  options.world_size = size;
  options.layout = layout;
  const auto plan = MakeShardPlan(spec, options);
  const MaskMap mask(spec);
  Execution open;
  open.strategy = strategy;
  const Execution execution = ResolveDegrees(open, size, spec.q_heads).front();
  return *PredictCost({&spec, &mask, &*plan, execution}, Rates{});
}

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

TEST(CostModelTest, EveryPlanDoesTheSameWork) {
  const AttentionSpec spec = Spec(1000, 1000, true);
  const int64_t pairs = int64_t{1000} * 1001 / 2 * 8;
  for (const Layout layout : {Layout::kContiguous, Layout::kZigzag, Layout::kStriped}) {
    for (const int32_t size : {1, 2, 3, 8}) {
      const Cost cost = CostOf(spec, Strategy::kRotateKv, layout, size);
      // Pairs of stripes are an estimate (attention/visible_pairs.h).
      const int64_t slack = layout == Layout::kStriped ? pairs / 1000 : 0;
      EXPECT_NEAR(Sum(cost.visible_pairs), pairs, slack) << size;
      EXPECT_EQ(cost.bytes_sent.size(), static_cast<size_t>(size));
    }
  }
}

TEST(CostModelTest, ARingOfAFullMaskSendsEveryShardToAllOthers) {
  const AttentionSpec spec = Spec(1024, 1024, false);
  const int64_t kv_bytes = 1024 * 2 * (64 + 64) * 2;
  for (const Strategy strategy :
       {Strategy::kRingPassKv, Strategy::kRotateKv, Strategy::kAllGatherKv}) {
    const Cost cost = CostOf(spec, strategy, Layout::kContiguous, 4);
    EXPECT_EQ(Sum(cost.bytes_sent), 3 * kv_bytes);
    EXPECT_EQ(cost.balance, 1);
  }
}

// (from, to) → bytes.
std::map<std::pair<int32_t, int32_t>, int64_t> LinksOf(const Cost& cost) {
  std::map<std::pair<int32_t, int32_t>, int64_t> links;
  for (const Link& link : cost.links) links[{link.from, link.to}] += link.bytes;
  EXPECT_EQ(links.size(), cost.links.size());
  return links;
}

TEST(CostModelTest, ARingHasALinkToTheNextRankAndAnAllGatherOneToEach) {
  const AttentionSpec spec = Spec(1024, 1024, false);
  const int64_t shard_bytes = 256 * 2 * (64 + 64) * 2;
  const auto ring = LinksOf(CostOf(spec, Strategy::kRingPassKv, Layout::kContiguous, 4));
  const auto gather = LinksOf(CostOf(spec, Strategy::kAllGatherKv, Layout::kContiguous, 4));
  ASSERT_EQ(ring.size(), 4u);
  ASSERT_EQ(gather.size(), 12u);
  for (int32_t from = 0; from < 4; ++from) {
    EXPECT_EQ(ring.at({from, (from + 1) % 4}), 3 * shard_bytes);
    for (int32_t to = 0; to < 4; ++to) {
      if (to == from) continue;
      EXPECT_EQ(gather.at({from, to}), shard_bytes);
    }
  }
  EXPECT_TRUE(CostOf(spec, Strategy::kRingPassKv, Layout::kContiguous, 1).links.empty());
}

TEST(CostModelTest, TransfersHideUnderTasksAndTheLongerOneCounts) {
  const AttentionSpec spec = Spec(2048, 2048, false);
  PlanOptions options;
  options.world_size = 2;
  const auto plan = MakeShardPlan(spec, options);
  const MaskMap mask(spec);
  ScheduleRequest request{&spec, &mask, &*plan, {}};
  request.execution.strategy = Strategy::kRotateKv;
  Rates rates;
  rates.step_seconds = rates.job_seconds = 0;
  const double work = 2.0 * 128 * 1024 * 2048 * 8 / rates.flops_per_second;
  rates.link_bytes_per_second = 1e15;
  EXPECT_NEAR(PredictCost(request, rates)->seconds, work, work * 1e-6);
  rates.link_bytes_per_second = 1;  // Two steps; the transfer of the first one is all that counts.
  EXPECT_NEAR(PredictCost(request, rates)->seconds, 1024 * 2 * 128 * 2 + work / 2, 1);
}

// Two plans whose tasks take as long differ by what they send.
TEST(CostModelTest, OfEqualWorkTheOneThatSendsLessIsTaken) {
  Execution wanted;
  wanted.world_size = 2;
  const auto candidates = ChooseExecution(Spec(256, 16384, false), wanted, Offer({2}));
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->front().execution.strategy, Strategy::kTree);
  for (const Candidate& candidate : *candidates) {
    if (candidate.execution.strategy != Strategy::kRotateKv) continue;
    EXPECT_GT(candidate.cost.bytes_sent[0], 5 * candidates->front().cost.bytes_sent[0]);
  }
}

TEST(CostModelTest, ASmallJobStaysOnOneWorkerAndALargeOneIsShared) {
  const auto small = ChooseExecution(Spec(128, 128, false), {}, Offer({1, 2, 4}));
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->front().execution.world_size, 1);
  EXPECT_EQ(small->front().rejected, "");
  const auto large = ChooseExecution(Spec(65536, 65536, true), {}, Offer({1, 2, 4}));
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(large->front().execution.world_size, 4);
  EXPECT_EQ(large->front().execution.layout, Layout::kZigzag);
}

TEST(CostModelTest, WhatWasNotTakenSaysWhyAndIsNoFaster) {
  const auto candidates = ChooseExecution(Spec(8192, 8192, true), {}, Offer({1, 2}));
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->size(), 13u);  // One rank, and 5 strategies × 2 layouts on two.
  for (size_t i = 1; i < candidates->size(); ++i) {
    EXPECT_NE((*candidates)[i].rejected, "");
    EXPECT_GE((*candidates)[i].cost.seconds, candidates->front().cost.seconds);
  }
}

// By any rank of a grid of 2 × 2.
int64_t MostSentByGrid(const AttentionSpec& spec) {
  Execution grid;
  grid.strategy = Strategy::kUlyssesRing;
  grid.world_size = 4;
  grid.ulysses_degree = 2;
  const auto candidates = ChooseExecution(spec, grid, Offer({4}));
  EXPECT_TRUE(candidates.ok());
  const std::vector<int64_t>& sent = candidates->front().cost.bytes_sent;
  return *std::max_element(sent.begin(), sent.end());
}

// The formulas of docs/strategies.md, full mask.
TEST(CostModelTest, EveryStrategySendsWhatItsFormulaSays) {
  const AttentionSpec spec = Spec(1024, 1024, false);
  const int64_t rows = 1024 / 4;
  const int64_t q = rows * 8 * 64 * 2, kv = rows * 2 * 128 * 2;
  const int64_t partial = rows * 8 * (64 + 2) * 4, out = rows * 8 * (64 * 2 + 4);
  const auto most = [&](Strategy strategy) {
    const Cost cost = CostOf(spec, strategy, Layout::kContiguous, 4);
    return *std::max_element(cost.bytes_sent.begin(), cost.bytes_sent.end());
  };
  EXPECT_EQ(most(Strategy::kRingPassQ), 3 * (q + partial));
  // Two key/value heads over four ranks: each is wanted by two of them, and one of the four is
  // here.
  EXPECT_EQ(most(Strategy::kUlysses), 3 * (q + out) / 4 + 3 * kv / 2);
  EXPECT_EQ(most(Strategy::kTree), 3 * (q + partial));
  // The first resolution is a ring of 2 × 2.
  EXPECT_EQ(Sum(CostOf(spec, Strategy::kDoubleRing, Layout::kContiguous, 4).bytes_sent), 12 * kv);
  // Half of everything in the exchange and home; then one hop of half the heads of two shards.
  EXPECT_EQ(MostSentByGrid(spec), (q + kv + out) / 2 + kv);
}

TEST(CostModelTest, GradientsSendWhatTheirFormulasSay) {
  AttentionSpec spec = Spec(1024, 1024, false);
  spec.operation = Operation::kGradients;
  const int64_t rows = 1024 / 4;
  const int64_t kv = rows * 2 * 128 * 2, dkv = rows * 2 * 128 * 4;
  const int64_t q_grad = rows * 8 * (128 * 2 + 2 * 4), dq = rows * 8 * 64 * 4;
  const auto most = [&](Strategy strategy) {
    const Cost cost = CostOf(spec, strategy, Layout::kContiguous, 4);
    return *std::max_element(cost.bytes_sent.begin(), cost.bytes_sent.end());
  };
  EXPECT_EQ(most(Strategy::kRingPassKv), 3 * (kv + dkv));
  EXPECT_EQ(most(Strategy::kRotateKv), 3 * (kv + dkv));
  EXPECT_EQ(most(Strategy::kAllGatherKv), 3 * (kv + dkv));
  EXPECT_EQ(most(Strategy::kRingPassQ), 3 * (q_grad + dq));
  EXPECT_EQ(most(Strategy::kTree), 3 * (q_grad + dq));
  // The first resolution is a ring of 2 × 2.
  EXPECT_EQ(Sum(CostOf(spec, Strategy::kDoubleRing, Layout::kContiguous, 4).bytes_sent),
            12 * (kv + dkv));
  // Half of everything in the exchange and home, gradients of queries rounded; and half the heads
  // of two shards one hop on, their gradients home.
  EXPECT_EQ(MostSentByGrid(spec), (q_grad + kv + dkv + dq / 2) / 2 + kv + dkv);
  // Key/value heads of one rank each: their gradients go home rounded. Two ranks to each of two
  // heads: both send sums.
  EXPECT_EQ(most(Strategy::kUlysses), 3 * (q_grad + dq / 2) / 4 + 3 * (kv + dkv) / 2);
  spec.kv_heads = 4;
  EXPECT_EQ(most(Strategy::kUlysses), 3 * (q_grad + dq / 2 + 2 * kv + 2 * kv) / 4);
}

// Five products where a forward pass has two.
TEST(CostModelTest, GradientsTakeTwoAndAHalfTimesAsLong) {
  AttentionSpec spec = Spec(2048, 2048, true);
  const double forward = CostOf(spec, Strategy::kRotateKv, Layout::kContiguous, 1).seconds;
  spec.operation = Operation::kGradients;
  const double gradients = CostOf(spec, Strategy::kRotateKv, Layout::kContiguous, 1).seconds;
  EXPECT_NEAR(gradients, 2.5 * forward, 1e-9);
}

// Queries with their gradients are fewer bytes than keys with theirs only without grouped heads.
TEST(CostModelTest, AutoChoosesAmongBuildersOfGradientsByBytes) {
  AttentionSpec spec = Spec(4096, 4096, false);
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

TEST(CostModelTest, DegreesAreMetOrRefused) {
  const AttentionSpec spec = Spec(4096, 4096, true);
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

// Many heads on a slow link: exchanging heads sends less than a ring of keys.
TEST(CostModelTest, AutoTakesAnExchangeWhereItSendsLess) {
  AttentionSpec spec = Spec(8192, 8192, false);
  spec.q_heads = spec.kv_heads = 16;
  Choice choice = Offer({8});
  choice.rates.link_bytes_per_second = 1e7;
  Execution wanted;
  wanted.world_size = 8;
  const auto candidates = ChooseExecution(spec, wanted, choice);
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->front().execution.ulysses_degree, 8);
  EXPECT_EQ(candidates->front().execution.strategy, Strategy::kUlysses);
  // Few queries over many keys: they travel, and the keys stay.
  const auto few = ChooseExecution(Spec(64, 65536, false), wanted, choice);
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->front().execution.strategy, Strategy::kRingPassQ);
  // On a link of which only the latency counts, in as few steps as they can.
  const auto quick = ChooseExecution(Spec(64, 65536, false), wanted, Offer({8}));
  ASSERT_TRUE(quick.ok());
  EXPECT_EQ(quick->front().execution.strategy, Strategy::kTree);
}

// Six heads on four ranks: two heads for some by whole heads, one and a half for all by units.
TEST(CostModelTest, HeadsAreDealtByCost) {
  AttentionSpec spec = Spec(4096, 4096, false);
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
  EXPECT_EQ(units.execution.head_deal, HeadDeal::kUnits);
  EXPECT_EQ(whole.execution.head_deal, HeadDeal::kWholeHeads);
  EXPECT_EQ(units.cost.balance, 1);
  EXPECT_NEAR(whole.cost.balance, 4.0 / 3, 1e-9);
  EXPECT_GT(Sum(units.cost.bytes_sent), Sum(whole.cost.bytes_sent));
}

TEST(CostModelTest, LargeGroupsAreNotSearchedBeyondEvenlySharedWork) {
  Execution wanted;
  wanted.world_size = 32;
  const auto candidates = ChooseExecution(Spec(65536, 65536, false), wanted, Offer({32}));
  ASSERT_TRUE(candidates.ok());
  for (size_t i = 1; i < candidates->size(); ++i) {
    EXPECT_TRUE((*candidates)[i].cost.bytes_sent.empty()) << i;
    EXPECT_GE((*candidates)[i].cost.seconds * 1.011, candidates->front().cost.seconds);
  }
}

TEST(CostModelTest, WhatIsAskedForIsMetOrRefused) {
  Execution wanted;
  wanted.strategy = Strategy::kRingPassKv;
  wanted.layout = Layout::kStriped;
  wanted.world_size = 2;
  const auto candidates = ChooseExecution(Spec(64, 64, false), wanted, Offer({1, 2}));
  ASSERT_TRUE(candidates.ok());
  ASSERT_EQ(candidates->size(), 1u);
  EXPECT_EQ(candidates->front().execution.strategy, Strategy::kRingPassKv);
  EXPECT_EQ(candidates->front().execution.layout, Layout::kStriped);
  EXPECT_EQ(candidates->front().execution.world_size, 2);
  EXPECT_EQ(candidates->front().execution.stripe, 1);

  wanted.world_size = 3;
  const absl::Status status = ChooseExecution(Spec(64, 64, false), wanted, Offer({1, 2})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DetailOf(status).reason, "INSUFFICIENT_WORKERS");
  EXPECT_EQ(DetailOf(status).fields[0].field, "execution.world_size");
}

TEST(CostModelTest, AJobThatFitsNowhereIsRefusedWithTheBytesItNeeds) {
  Choice choice = Offer({1, 2});
  const int64_t one = CostOf(Spec(4096, 4096, false), Strategy::kRotateKv, Layout::kContiguous, 1)
                          .peak_bytes_per_rank;
  choice.max_peak_bytes = one - 1;
  const auto shared = ChooseExecution(Spec(4096, 4096, false), {}, choice);
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_EQ(shared->front().execution.world_size, 2);
  choice.max_peak_bytes = 1000;
  const absl::Status status = ChooseExecution(Spec(4096, 4096, false), {}, choice).status();
  EXPECT_EQ(DetailOf(status).reason, "INSUFFICIENT_CAPACITY");
  EXPECT_GT(std::stoll(DetailOf(status).metadata.at("needed_bytes")), 1000);
}

TEST(CostModelTest, WhatNoWayHasIsTheExecutionsFault) {
  Execution wanted;
  wanted.head_deal = HeadDeal::kUnits;
  const absl::Status status = ChooseExecution(Spec(64, 64, false), wanted, Offer({1})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(status).reason, "INVALID_EXECUTION");
}

TEST(CostModelTest, WaysThatAddUpByRankAreNotServedToDeterministicJobs) {
  AttentionSpec spec = Spec(64, 64, false);
  spec.operation = Operation::kGradients;
  spec.deterministic = true;
  spec.q_heads = 6;
  spec.kv_heads = 3;
  Execution grid;  // Of the ways on four ranks only 2 × 2 has such rings.
  grid.world_size = 4;
  grid.ring_degree = 2;
  Execution pinned;  // To the ranks of a kept state.
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

TEST(CostModelTest, NothingToAttendCostsNothing) {
  const auto candidates = ChooseExecution(Spec(0, 0, false), {}, Offer({1, 2}));
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->front().execution.world_size, 1);
  EXPECT_EQ(candidates->front().cost.seconds, 0);
  EXPECT_EQ(candidates->front().cost.balance, 1);
}

}  // namespace
}  // namespace annulus
