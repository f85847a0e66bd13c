// Claims of docs/explanation/strategies.md about each strategy, except bytes (cost_model_test.cc).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/model/digest.h"
#include "attention/schedule/schedule.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/attention/checker/checker.h"
#include "tests/attention/planning/cost_cases.h"
#include "tests/attention/schedule/drift.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

Mask Causal() { return TestMasks()[1]; }

Execution Grid(int32_t ulysses, int32_t ring) {
  Execution execution = ExecutionOf(Strategy::kUlyssesRing);
  execution.ulysses_degree = ulysses;
  execution.ring_degree = ring;
  execution.head_deal = HeadAssignment::kWholeHeads;
  return execution;
}

Execution DoubleRing(int32_t inner) {
  Execution execution = ExecutionOf(Strategy::kDoubleRing);
  execution.inner_ring_degree = inner;
  return execution;
}

ScheduleCase Case(const Mask& mask, const PlanOptions& plan, const Execution& execution,
                  int64_t rows = 64) {
  return {SmallSpec(8, 4, {Lengths(rows, rows)}, mask), plan, execution};
}

struct StepCounts {
  size_t ring, rotate, all_gather, halo, ring_q, tree, ulysses, grid_2_4, grid_4_2, double_ring;
};

void ExpectSteps(Operation operation, const StepCounts& expected) {
  const auto steps = [&](const Execution& execution) {
    ScheduleCase one = Case(Mask(), TestPlans(8)[0], execution);
    one.spec.operation = operation;
    return BuiltCase(one).ranks[0].steps.size();
  };
  Execution ulysses = ExecutionOf(Strategy::kUlysses);
  ulysses.head_deal = HeadAssignment::kWholeHeads;
  EXPECT_EQ(steps(ExecutionOf(Strategy::kRingPassKv)), expected.ring);
  EXPECT_EQ(steps(ExecutionOf(Strategy::kRotateKv)), expected.rotate);
  EXPECT_EQ(steps(ExecutionOf(Strategy::kAllGatherKv)), expected.all_gather);
  EXPECT_EQ(steps(ExecutionOf(Strategy::kHalo)), expected.halo);
  EXPECT_EQ(steps(ExecutionOf(Strategy::kRingPassQ)), expected.ring_q);
  EXPECT_EQ(steps(ExecutionOf(Strategy::kTree)), expected.tree);
  EXPECT_EQ(steps(ulysses), expected.ulysses);
  EXPECT_EQ(steps(Grid(2, 4)), expected.grid_2_4);
  EXPECT_EQ(steps(Grid(4, 2)), expected.grid_4_2);
  EXPECT_EQ(steps(DoubleRing(2)), expected.double_ring);
}

TEST(StrategiesTest, StepsAreThoseOfTheTable) {
  ExpectSteps(Operation::kForward, {8, 8, 2, 2, 9, 3, 3, 6, 4, 8});
}

TEST(StrategiesTest, StepsOfGradientsAreThoseOfTheTable) {
  ExpectSteps(Operation::kGradients, {10, 10, 4, 4, 10, 4, 4, 7, 5, 10});
}

// The most bytes of keys alive at once, relative to one rank's keys.
double KeyBlocks(const Execution& execution, const Mask& mask = Mask()) {
  ScheduleCase one = Case(mask, TestPlans(8)[0], execution);
  one.spec.kv_heads = 8;  // One per rank, so that ranks share none.
  const BuiltCase built(one);
  const BlockLayout layout(built.spec);
  int64_t most = 0;
  for (int32_t half = 0; half < 2 * static_cast<int32_t>(built.ranks[3].steps.size()); ++half) {
    int64_t alive = 0;
    for (size_t i = 0; i < built.ranks[3].buffers.size(); ++i) {
      const ArenaPlan::Slot& slot = built.placements[3].slots[i];
      const bool keys = built.ranks[3].buffers[i].kind == BlockKind::kKv;
      if (keys && slot.born <= half && half <= slot.dies) {
        alive += layout.BlockBytes(built.ranks[3].buffers[i]);
      }
    }
    most = std::max(most, alive);
  }
  return static_cast<double>(most) / (8.0 * layout.RowBytes(BlockKind::kKv, 8));
}

TEST(StrategiesTest, BlocksAreThoseOfTheTable) {
  EXPECT_EQ(KeyBlocks(ExecutionOf(Strategy::kRingPassKv)), 2);
  EXPECT_EQ(KeyBlocks(ExecutionOf(Strategy::kRotateKv)), 3);
  EXPECT_EQ(KeyBlocks(ExecutionOf(Strategy::kAllGatherKv)), 8);
  EXPECT_EQ(KeyBlocks(ExecutionOf(Strategy::kRingPassQ)), 1);
  EXPECT_EQ(KeyBlocks(ExecutionOf(Strategy::kTree)), 1);
  EXPECT_EQ(KeyBlocks(DoubleRing(4)), 4);
  EXPECT_EQ(KeyBlocks(ExecutionOf(Strategy::kHalo)), 8);
  Mask window = Causal();
  window.window_left = 4;
  EXPECT_EQ(KeyBlocks(ExecutionOf(Strategy::kHalo), window), 1.5);
  Execution ulysses = ExecutionOf(Strategy::kUlysses);
  ulysses.head_deal = HeadAssignment::kWholeHeads;
  EXPECT_EQ(KeyBlocks(ulysses), 1 + 7.0 / 8);
  EXPECT_EQ(KeyBlocks(Grid(2, 4)), 2);
  EXPECT_EQ(KeyBlocks(Grid(4, 2)), 2);
}

// The column "peak, MB" of the table in a section, by strategy.
std::map<std::string, int64_t> PeaksOfPage(const std::string& section) {
  std::ifstream file("docs/explanation/strategies.md");
  std::map<std::string, int64_t> peaks;
  bool inside = false;
  size_t column = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("## ", 0) == 0) inside = line == "## " + section;
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    for (size_t i = 0; i < cells.size() && inside; ++i)
      if (cells[i] == " peak, MB ") column = i;
    if (!inside || cells.size() < 3 || line.rfind("| `", 0) != 0) continue;
    const std::vector<std::string> names = absl::StrSplit(cells[1], '`');
    int64_t peak = 0;
    EXPECT_TRUE(column < cells.size() && absl::SimpleAtoi(cells[column], &peak)) << line;
    for (size_t i = 1; i < names.size(); i += 2) peaks[names[i]] = peak;
  }
  return peaks;
}

// The job of these tables.
std::map<std::string, Cost> PredictedCosts(Operation operation) {
  constexpr int64_t kRows = 65536;
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.operation = operation;
  spec.q_heads = 24;
  spec.kv_heads = 8;
  spec.head_dim = 128;
  spec.sequences = {Lengths(kRows, kRows)};
  spec.masks = {Causal()};
  std::map<std::string, Cost> costs;
  for (const Strategy strategy : TestStrategies()) {
    Execution execution = ExecutionOf(strategy);
    if (strategy == Strategy::kUlyssesRing) execution = Grid(4, 2);
    if (strategy == Strategy::kDoubleRing) execution = DoubleRing(4);
    costs[std::string(StrategyName(strategy))] = CostOf(spec, execution, Layout::kZigzag, 8);
  }
  return costs;
}

int64_t Megabytes(int64_t bytes) { return std::llround(static_cast<double>(bytes) / 1e6); }

std::map<std::string, int64_t> PredictedPeaks(Operation operation) {
  std::map<std::string, int64_t> peaks;
  for (const auto& [name, cost] : PredictedCosts(operation))
    peaks[name] = Megabytes(cost.peak_bytes_per_rank);
  return peaks;
}

TEST(StrategiesTest, PeaksAreThoseOfTheTables) {
  EXPECT_EQ(PeaksOfPage("What each costs"), PredictedPeaks(Operation::kForward));
  EXPECT_EQ(PeaksOfPage("Gradients"), PredictedPeaks(Operation::kGradients));
}

TEST(StrategiesTest, MostBytesSentAreThoseOfThePage) {
  const std::map<std::string, Cost> costs = PredictedCosts(Operation::kForward);
  const auto sent = [&](const char* strategy) {
    const std::vector<int64_t>& bytes = costs.at(strategy).bytes_sent;
    return Megabytes(*std::max_element(bytes.begin(), bytes.end()));
  };
  EXPECT_EQ(sent("ring-pass-kv"), sent("rotate-kv"));
  std::ifstream file("docs/explanation/strategies.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string said =
      absl::StrCat("Most bytes sent by a rank there: rings ", sent("ring-pass-kv"), " MB, Ulysses ",
                   sent("ulysses"), ", pass-Q ", sent("ring-pass-q"), ".");
  EXPECT_NE(page.find(said), std::string::npos) << said;
}

bool SameMessages(const BuiltCase& a, const BuiltCase& b) {
  for (size_t r = 0; r < a.ranks.size(); ++r) {
    const std::vector<PeerDigest> x = PeerDigests(a.ranks[r]), y = PeerDigests(b.ranks[r]);
    const bool same = std::equal(
        x.begin(), x.end(), y.begin(), y.end(), [](const PeerDigest& m, const PeerDigest& n) {
          return m.peer == n.peer && m.sends == n.sends && m.receives == n.receives;
        });
    if (!same) return false;
  }
  return true;
}

TEST(StrategiesTest, AGridOfOneColumnIsARingAndOfOneRowUlysses) {
  Execution ulysses = ExecutionOf(Strategy::kUlysses);
  ulysses.head_deal = HeadAssignment::kWholeHeads;
  for (const Mask& mask : TestMasks()) {
    for (const PlanOptions& plan : TestPlans(6)) {
      const BuiltCase column(Case(mask, plan, Grid(1, 6))), row(Case(mask, plan, Grid(6, 1)));
      EXPECT_TRUE(
          SameMessages(column, BuiltCase(Case(mask, plan, ExecutionOf(Strategy::kRingPassKv)))));
      EXPECT_TRUE(SameMessages(row, BuiltCase(Case(mask, plan, ulysses))));
    }
  }
}

// A repaired plan: rank 1 has taken over the shard of rank 3.
TEST(StrategiesTest, ARankMayOwnSeveralShardsOrNone) {
  int64_t cases = 0;  // Every second one is a gradients job.
  for (const Strategy strategy : TestStrategies()) {
    for (const Execution& execution : TestExecutions(strategy, 4, 6)) {
      for (const PlanOptions& options : TestPlans(4)) {
        AttentionSpec spec = SmallSpec(6, 3, {Lengths(21, 25)}, Causal());
        if (++cases % 2 == 0) spec.operation = Operation::kGradients;
        BuiltCase built({std::move(spec), options, execution});
        built.plan.shards[3].owner = 1;
        built.ranks = MakeGroupSchedules(built.request).value();
        for (size_t r = 0; r < 4; ++r) {
          built.placements[r] = PlanArena(built.ranks[r], BlockLayout(built.spec), 4);
        }
        const absl::Status checked = CheckSchedule(built.request, built.ranks, built.placements);
        ASSERT_TRUE(checked.ok()) << StrategyName(strategy) << ": " << checked;
        const absl::Status ran = RunDrifting(built, built.ranks, built.placements, 5);
        ASSERT_TRUE(ran.ok()) << StrategyName(strategy) << ": " << ran;
      }
    }
  }
}

// True if a rank of a forward pass sends anything that its client has not sent.
bool SendsResults(const RankSchedule& rank) {
  for (const Step& step : rank.steps) {
    for (const Transfer& send : step.sends) {
      const BlockKind kind = rank.buffers[send.buffer].kind;
      if (kind != BlockKind::kQ && kind != BlockKind::kKv && kind != BlockKind::kPairs) return true;
    }
  }
  return false;
}

TEST(StrategiesTest, KnowsWhereResultsTravel) {
  for (const Strategy strategy : TestStrategies()) {
    bool some = false, promised = false;
    for (const Execution& execution : TestExecutions(strategy, 4, 6)) {
      AttentionSpec spec = SmallSpec(6, 3, {Lengths(21, 25)}, Causal());
      spec.modifiers.bias.emplace();
      const bool travel = ResultsTravel(spec, execution);
      const BuiltCase built({std::move(spec), TestPlans(4)[0], execution});
      const bool sent = std::any_of(built.ranks.begin(), built.ranks.end(), SendsResults);
      EXPECT_TRUE(travel || !sent) << StrategyName(strategy);
      promised |= travel;
      some |= sent;
    }
    EXPECT_EQ(some, promised) << StrategyName(strategy);
  }
}

// Rows of one kind that a rank receives.
int64_t Received(const RankSchedule& schedule, BlockKind kind) {
  int64_t rows = 0;
  for (const Step& step : schedule.steps) {
    for (const Transfer& receive : step.receives) {
      if (schedule.buffers[receive.buffer].kind != kind) continue;
      rows += receive.row_end - receive.row_begin;
    }
  }
  return rows;
}

// Zigzag over four ranks of 16 rows. The later half of an earlier rank's queries sees this rank's
// keys; all queries of a later rank do. Rank 3 forwards all queries of ranks 1 and 2, which rank 0
// needs, and is the last stop of those of rank 0.
TEST(StrategiesTest, QueriesThatSeeNothingDoNotTravel) {
  const BuiltCase built(Case(Causal(), TestPlans(4)[1], ExecutionOf(Strategy::kRingPassQ)));
  EXPECT_EQ(Received(built.ranks[0], BlockKind::kQ), 3 * 16);
  EXPECT_EQ(Received(built.ranks[0], BlockKind::kPartial), 3 * 8);
  EXPECT_EQ(Received(built.ranks[3], BlockKind::kPartial), 3 * 16);
  EXPECT_EQ(Received(built.ranks[3], BlockKind::kQ), 16 + 16 + 8);
}

// Two numbers of a value are as long as one rounded number of the drifting run.
ScheduleCase Bf16Case(const Mask& mask, const PlanOptions& plan, Strategy strategy) {
  ScheduleCase one = {SmallSpec(4, 2, {Lengths(21, 25)}, mask), plan, strategy};
  one.spec.head_dim_v = 2;
  one.execution.bf16_partials = true;
  return one;
}

TEST(StrategiesTest, PartialsTravelInBf16WhereTheJobSaysSo) {
  for (const Strategy strategy : {Strategy::kRingPassQ, Strategy::kTree}) {
    for (const Mask& mask : TestMasks()) {
      for (const PlanOptions& plan : TestPlans(4)) {
        const ScheduleCase one = Bf16Case(mask, plan, strategy);
        const BuiltCase built(one);
        const absl::Status checked = CheckSchedule(built.request, built.ranks, built.placements);
        ASSERT_TRUE(checked.ok()) << Describe(one) << ": " << checked;
        const absl::Status ran = RunDrifting(built, built.ranks, built.placements, 7);
        ASSERT_TRUE(ran.ok()) << Describe(one) << ": " << ran;
        ScheduleCase exact = one;
        exact.execution.bf16_partials = false;
        const BuiltCase usual(exact);
        for (size_t r = 0; r < 4; ++r) {
          EXPECT_EQ(Received(built.ranks[r], BlockKind::kPartial), 0);
          EXPECT_EQ(Received(built.ranks[r], BlockKind::kBf16Partial),
                    Received(usual.ranks[r], BlockKind::kPartial));
          EXPECT_EQ(Received(usual.ranks[r], BlockKind::kBf16Partial), 0);
        }
      }
    }
  }
}

TEST(StrategiesTest, PartialsOfAnotherTypeThanTheJobSaysAreRefused) {
  for (const bool asked : {true, false}) {
    ScheduleCase one = Bf16Case(Mask(), TestPlans(2)[0], Strategy::kTree);
    one.execution.bf16_partials = !asked;
    BuiltCase built(one);
    built.request.execution.bf16_partials = asked;
    const absl::Status checked = CheckSchedule(built.request, built.ranks, built.placements);
    EXPECT_EQ(DetailOf(checked).metadata["rule"],
              "partials travel in another type than the job says");
  }
}

// A window reaches the last rows of the rank before. The exchange moves what its rows see; the ring
// moves what the first member's rows see of the exchange before.
TEST(StrategiesTest, KeysThatNobodySeesDoNotTravelInAGrid) {
  Mask window = Causal();
  window.window_left = 4;
  const BuiltCase built(Case(window, TestPlans(8)[0], Grid(2, 4), 128));
  for (int32_t rank = 0; rank < 8; ++rank) {
    const int64_t ring = rank < 2 ? 0 : 4;
    EXPECT_EQ(Received(built.ranks[rank], BlockKind::kKv), 16 + ring) << rank;
  }
}

// There are 128 keys, 32 a rank. The last 44 are visible. Twelve belong to rank 2, whose gradients
// return as sums; the others belong to rank 3, whose gradients return finished. Deterministic jobs
// have one order for all plans.
TEST(StrategiesTest, GradientsOfKeysThatNobodySeesDoNotTravelInAnExchange) {
  Mask window = Causal();
  window.window_left = 28;
  Execution ulysses = ExecutionOf(Strategy::kUlysses);
  ulysses.head_deal = HeadAssignment::kWholeHeads;
  ScheduleCase one = {SmallSpec(8, 4, {Lengths(16, 128)}, window), TestPlans(4)[0], ulysses};
  one.spec.operation = Operation::kGradients;
  const BuiltCase built(one);
  one.spec.deterministic = true;
  const BuiltCase deterministic(one);
  for (int32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(Received(built.ranks[rank], BlockKind::kDkv), rank == 2 ? 3 * 12 : 0) << rank;
    EXPECT_EQ(Received(built.ranks[rank], BlockKind::kDkvOut), rank == 3 ? 3 * 32 : 0) << rank;
    EXPECT_EQ(Received(deterministic.ranks[rank], BlockKind::kDkvOut), 3 * 32) << rank;
  }
}

TEST(StrategiesTest, AnOuterHopTakesATurnOfTheInnerRing) {
  const BuiltCase built(Case(Mask(), TestPlans(8)[0], DoubleRing(4)));
  std::map<int32_t, std::vector<int64_t>> rows;  // The rows of each message of rank 1, by peer.
  for (const Step& step : built.ranks[1].steps) {
    for (const Transfer& send : step.sends) {
      rows[send.peer].push_back(send.row_end - send.row_begin);
    }
  }
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[5], (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(rows[2], (std::vector<int64_t>{8, 8, 8, 8, 8, 8}));
}

}  // namespace
}  // namespace annulus
