#include "attention/planning/cost_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "attention/mask/mask.h"
#include "attention/planning/choose_execution.h"
#include "gtest/gtest.h"
#include "tests/attention/planning/cost_cases.h"

namespace annulus {
namespace {

TEST(CostModelTest, EveryPlanDoesTheSameWork) {
  const AttentionSpec spec = CostSpec(1000, 1000, true);
  const int64_t pairs = int64_t{1000} * 1001 / 2 * 8;
  for (const Layout layout : {Layout::kContiguous, Layout::kZigzag, Layout::kStriped}) {
    for (const int32_t size : {1, 2, 3, 8}) {
      const Cost cost = CostOf(spec, Strategy::kRotateKv, layout, size);
      // Pairs of stripes are estimated (attention/sharding/visible_pairs.h).
      const int64_t slack = layout == Layout::kStriped ? pairs / 1000 : 0;
      EXPECT_NEAR(Sum(cost.visible_pairs), pairs, slack) << size;
      EXPECT_EQ(cost.bytes_sent.size(), static_cast<size_t>(size));
    }
  }
}

TEST(CostModelTest, ARingOfAFullMaskSendsEveryShardToAllOthers) {
  const AttentionSpec spec = CostSpec(1024, 1024, false);
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
  const AttentionSpec spec = CostSpec(1024, 1024, false);
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
  const AttentionSpec spec = CostSpec(2048, 2048, false);
  PlanOptions options;
  options.world_size = 2;
  const auto plan = MakeShardPlan(spec, options);
  const MaskMap mask(spec);
  ScheduleRequest request{&spec, &mask, &*plan, {}};
  request.execution.strategy = Strategy::kRotateKv;
  Rates rates;
  rates.step_seconds = rates.job_seconds = 0;
  const double work = 1024.0 * 2048 * 8 * rates.pair_seconds;
  rates.link_bytes_per_second = 1e15;
  EXPECT_NEAR(PredictCost(request, rates)->seconds, work, work * 1e-6);
  rates.link_bytes_per_second = 1;  // Two steps; only the first one's transfer counts.
  EXPECT_NEAR(PredictCost(request, rates)->seconds, 1024 * 2 * 128 * 2 + work / 2, 1);
}

// The most bytes that a rank of a 2 × 2 grid sends.
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

// The formulas of docs/explanation/strategies.md, full mask.
TEST(CostModelTest, EveryStrategySendsWhatItsFormulaSays) {
  const AttentionSpec spec = CostSpec(1024, 1024, false);
  const int64_t rows = 1024 / 4;
  const int64_t q = rows * 8 * 64 * 2, kv = rows * 2 * 128 * 2;
  const int64_t partial = rows * 8 * (64 + 2) * 4, out = rows * 8 * (64 * 2 + 4);
  const auto most = [&](Strategy strategy) {
    const Cost cost = CostOf(spec, strategy, Layout::kContiguous, 4);
    return *std::max_element(cost.bytes_sent.begin(), cost.bytes_sent.end());
  };
  EXPECT_EQ(most(Strategy::kRingPassQ), 3 * (q + partial));
  // Two key/value heads over four ranks: two ranks need each head, and one of the four is here.
  EXPECT_EQ(most(Strategy::kUlysses), 3 * (q + out) / 4 + 3 * kv / 2);
  EXPECT_EQ(most(Strategy::kTree), 3 * (q + partial));
  const int64_t rounded = rows * 8 * (64 * 2 + 2 * 4);
  for (const Strategy strategy : {Strategy::kRingPassQ, Strategy::kTree}) {
    const Cost cost = CostOf(spec, strategy, Layout::kContiguous, 4, /*bf16_partials=*/true);
    EXPECT_EQ(cost.bytes_sent, std::vector<int64_t>(4, 3 * (q + rounded)));
  }
  // The first resolution is a ring of 2 × 2.
  EXPECT_EQ(Sum(CostOf(spec, Strategy::kDoubleRing, Layout::kContiguous, 4).bytes_sent), 12 * kv);
  // Half of everything in the exchange and back; then one hop of half the heads of two shards.
  EXPECT_EQ(MostSentByGrid(spec), (q + kv + out) / 2 + kv);
}

TEST(CostModelTest, GradientsSendWhatTheirFormulasSay) {
  AttentionSpec spec = CostSpec(1024, 1024, false);
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
  // Half of everything in the exchange and back, with rounded gradients of queries; and half the
  // heads of two shards one hop further, with their gradients back.
  EXPECT_EQ(MostSentByGrid(spec), (q_grad + kv + dkv + dq / 2) / 2 + kv + dkv);
  // One rank per key/value head: the gradients are sent home rounded. Two ranks per head: both send
  // sums.
  EXPECT_EQ(most(Strategy::kUlysses), 3 * (q_grad + dq / 2) / 4 + 3 * (kv + dkv) / 2);
  spec.kv_heads = 4;
  EXPECT_EQ(most(Strategy::kUlysses), 3 * (q_grad + dq / 2 + 2 * kv + 2 * kv) / 4);
}

// A backward pass has five products. The pass for queries computes three and the pass for keys
// four. An exchange of heads needs only one pass.
TEST(CostModelTest, DeterministicGradientsCountTheProductsThatTheirPassesMake) {
  AttentionSpec spec = CostSpec(4096, 4096, true);
  spec.operation = Operation::kGradients;
  spec.deterministic = true;
  spec.kv_heads = 8;
  const int64_t pairs = int64_t{8} * 4096 * 4097 / 2;
  const auto counted = [&](Strategy strategy, int32_t size) {
    return Sum(CostOf(spec, strategy, Layout::kContiguous, size).visible_pairs);
  };
  EXPECT_EQ(counted(Strategy::kRotateKv, 1), pairs);
  for (const Strategy strategy :
       {Strategy::kRotateKv, Strategy::kRingPassKv, Strategy::kAllGatherKv}) {
    EXPECT_NEAR(counted(strategy, 4), 1.4 * pairs, 100) << StrategyName(strategy);
  }
  EXPECT_EQ(counted(Strategy::kUlysses, 4), pairs);
}

TEST(CostModelTest, RowsOfTasksCountBesideTheirPairs) {
  const AttentionSpec spec = CostSpec(1024, 1024, true);
  const auto seconds = [&](const Rates& rates) {
    return CostOf(spec, Strategy::kRotateKv, Layout::kContiguous, 1, false, rates).seconds;
  };
  Rates rates;
  const double of_pairs = seconds(rates);
  EXPECT_NEAR(of_pairs, 8 * 1024 * 1025 / 2 * rates.pair_seconds, 1e-9);
  rates.row_seconds = 3e-7;
  EXPECT_NEAR(seconds(rates) - of_pairs, 8 * 1024 * 3e-7, 1e-9);
  // Each rank attends to its own keys and, except for the first, to the other's.
  EXPECT_EQ(CostOf(spec, Strategy::kRotateKv, Layout::kContiguous, 2).task_rows,
            (std::vector<int64_t>{8 * 512, 2 * 8 * 512}));
}

// For one rank, in keys × key/value heads.
int64_t KeysOf(const AttentionSpec& spec) {
  return Sum(CostOf(spec, Strategy::kRotateKv, Layout::kContiguous, 1).task_keys);
}

TEST(CostModelTest, KeysOfTasksCountBesideTheirPairs) {
  const AttentionSpec spec = CostSpec(1, 65536, false);
  Rates rates;
  const auto seconds = [&](Strategy strategy, int32_t size) {
    return CostOf(spec, strategy, Layout::kContiguous, size, false, rates).seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(Strategy::kRotateKv, 1), 8 * 65536 * 5e-9) << "a row of 8 heads";
  rates.key_seconds = 1e-7;
  EXPECT_DOUBLE_EQ(seconds(Strategy::kRotateKv, 1), 8 * 65536 * 5e-9 + 2 * 65536 * 1e-7);
  // Either the rank that has the row reads all keys, or each rank reads its own.
  rates.link_bytes_per_second = 1e15;
  rates.step_seconds = rates.job_seconds = rates.overlap_loss = 0;
  EXPECT_NEAR(seconds(Strategy::kRotateKv, 2), 8 * 65536 * 5e-9 + 2 * 65536 * 1e-7, 1e-9);
  EXPECT_NEAR(seconds(Strategy::kTree, 2), (8 * 65536 * 5e-9 + 2 * 65536 * 1e-7) / 2, 1e-9);
  EXPECT_EQ(CostOf(spec, Strategy::kTree, Layout::kContiguous, 2).task_keys,
            (std::vector<int64_t>{2 * 32768, 2 * 32768}));
}

TEST(CostModelTest, KeysThatNoRowOfATaskSeesAreNotRead) {
  AttentionSpec spec = CostSpec(16, 65536, true);
  EXPECT_EQ(KeysOf(spec), 2 * 65536);
  // The last row sees 256 keys; the first row sees 15 earlier ones.
  spec.masks[0].window_left = 255;
  EXPECT_EQ(KeysOf(spec), 2 * (256 + 15));
  spec.masks[0].always_visible = 16;  // Keys at the other end.
  EXPECT_EQ(KeysOf(spec), 2 * (16 + 256 + 15));
  spec.masks[0].query_heads = {0, 1, 2, 3};  // Rows of the other key/value head see all keys.
  EXPECT_EQ(KeysOf(spec), 16 + 256 + 15 + 65536);
  // Two sequences with separate keys, and so many that a task has several.
  spec = CostSpec(1, 1000, false);
  spec.sequences.push_back({1, 500, "", 0, 0});
  EXPECT_EQ(KeysOf(spec), 2 * 1500);
  spec = CostSpec(1, 1000, true);
  spec.sequences.resize(1000, spec.sequences[0]);
  spec.masks[0].window_left = 255;
  EXPECT_EQ(KeysOf(spec), 2 * 1000 * 256);
}

// One row over many keys is limited by reading them. In a tree, ranks share this work.
TEST(CostModelTest, RanksShareTheKeysOfAFewRows) {
  const AttentionSpec spec = CostSpec(1, 8192, false);
  Choice choice = Offer({1, 2});
  const auto by_pairs = ChooseExecution(spec, {}, choice);
  ASSERT_TRUE(by_pairs.ok());
  EXPECT_EQ(by_pairs->front().execution.world_size, 1);
  choice.rates.key_seconds = 1e-6;
  const auto by_keys = ChooseExecution(spec, {}, choice);
  ASSERT_TRUE(by_keys.ok());
  EXPECT_EQ(by_keys->front().execution.world_size, 2);
  EXPECT_EQ(by_keys->front().execution.strategy, Strategy::kTree);
}

}  // namespace
}  // namespace annulus
