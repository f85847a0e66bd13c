// Brute force over schedules: the checker accepts every one; code that uses only the mask's formula
// counts the cells one by one; drifting ranks run small ones in fp64.

#include "attention/schedule/schedule.h"

#include <algorithm>
#include <iostream>
#include <random>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/attention/checker/checker.h"
#include "tests/attention/schedule/drift.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

constexpr int64_t kLengths = 64;
constexpr int64_t kHeadSets = 11, kVariants = 15 * 7 * kHeadSets;

// Every visible (query, head, key) is in exactly one task of any rank; full tasks have nothing
// else.
void CountCells(const BuiltCase& built) {
  std::set<std::tuple<int64_t, int32_t, int64_t>> seen;
  for (const RankSchedule& schedule : built.ranks) {
    for (const Step& step : schedule.steps) {
      for (const Task& task : step.tasks) {
        const Shard& own = built.plan.shards[schedule.buffers[task.q].shard];
        const RowMap& keys = built.plan.shards[schedule.buffers[task.kv].shard].kv_rows;
        for (int64_t i = task.q_begin; i < task.q_end; ++i) {
          const int64_t q = own.q_rows.Global(i), sequence = built.mask.SequenceOfQuery(q);
          for (int64_t j = task.k_begin; j < task.k_end; ++j) {
            const int64_t k = keys.Global(j);
            for (int32_t h = task.head_begin; h < task.head_end; ++h) {
              const bool visible =
                  built.mask.SequenceOfKey(k) == sequence &&
                  VisibleByFormula(built.spec, sequence, h, q - built.mask.QueryBegin(sequence),
                                   k - built.mask.KeyBegin(sequence));
              ASSERT_TRUE(visible || task.coverage != Coverage::kFull);
              if (!visible) continue;
              ASSERT_TRUE(seen.insert({q, h, k}).second);
            }
          }
        }
      }
    }
  }
  size_t wanted = 0;
  for (size_t n = 0; n < built.spec.sequences.size(); ++n) {
    const Sequence& s = built.spec.sequences[n];
    for (int64_t i = 0; i < s.q_len; ++i) {
      for (int64_t j = 0; j < s.kv_len; ++j) {
        for (int32_t h = 0; h < built.spec.q_heads; ++h)
          wanted += VisibleByFormula(built.spec, n, h, i, j) ? 1 : 0;
      }
    }
  }
  ASSERT_EQ(seen.size(), wanted);
}

void Check(const BuiltCase& built, const ScheduleCase& one) {
  const absl::Status checked = CheckSchedule(built.request, built.ranks, built.placements);
  ASSERT_TRUE(checked.ok()) << Describe(one) << ": " << checked;
}

void CheckCase(const ScheduleCase& one) { Check(BuiltCase(one), one); }

void RunCase(const ScheduleCase& one, uint64_t seed) {
  SCOPED_TRACE(Describe(one));
  const BuiltCase built(one);
  Check(built, one);
  if (testing::Test::HasFatalFailure()) return;
  CountCells(built);
  if (testing::Test::HasFatalFailure()) return;
  const absl::Status ran = RunDrifting(built, built.ranks, built.placements, seed);
  ASSERT_TRUE(ran.ok()) << ran << " seed " << seed;
}

// Parameters besides length, W, layout, strategy and mask; drawn for each case.
AttentionSpec SpecOfLength(int64_t length, int64_t variant, const Mask& mask) {
  constexpr int32_t kHeads[][2] = {{1, 1}, {2, 1}, {3, 3}, {6, 2},  {4, 1}, {6, 3},
                                   {8, 1}, {5, 5}, {7, 7}, {12, 4}, {8, 8}};
  const auto& heads = kHeads[variant % kHeadSets];
  std::vector<Sequence> sequences;
  switch (variant % 7) {
    case 0:
      sequences = {Lengths(length, length)};
      break;
    case 1:
      sequences = {Lengths(length, length + 5)};
      break;
    case 2:
      sequences = {Lengths(length, std::max<int64_t>(0, length - 6))};
      break;
    case 3:
      sequences = {Lengths(length / 3, length / 3), Lengths(length - length / 3, length / 2)};
      break;
    case 4:
      sequences = {Lengths(1, length), Lengths(0, 3), Lengths(length, 2)};
      break;
    case 5:
      sequences = {Lengths(length, 0), Lengths(length / 2, length / 2), Lengths(2, length / 4)};
      break;
    default:
      for (int64_t left = length, n = 5; left > 0; left -= n) {
        sequences.push_back(Lengths(std::min(left, n), std::min(left, n)));
      }
  }
  AttentionSpec spec = SmallSpec(heads[0], heads[1], sequences, mask);
  VaryMasks(variant / 3, &spec);
  return spec;
}

struct Way {
  Operation operation;
  Strategy strategy;
};

class EverySchedule : public testing::TestWithParam<std::tuple<int32_t, Way>> {
 protected:
  static AttentionSpec For(Operation operation, AttentionSpec spec) {
    if (operation != Operation::kGradients) return spec;
    AskForGradients(spec.q_rows() % 3 == 1, &spec);
    if (spec.q_rows() % 4 == 1) AskForBiasGradient(spec.q_rows() % 8 == 1, &spec);
    return spec;
  }
  static int SeedOf(int32_t world, const Way& way) {
    return 1000 * world + static_cast<int>(way.strategy) + 100 * static_cast<int>(way.operation);
  }
  // Takes every second combination of layout and mask for short lengths, for which shards are empty
  // or have few rows, and every sixth for longer ones. The next length and the next number of ranks
  // take the next ones, so that every strategy meets each (length, layout, mask).
  static bool IsTaken(int64_t length, int32_t world, int64_t combination) {
    return (combination + length + world) % (length <= 2 * world ? 2 : 6) == 0;
  }
  // Sixteen blocks a rank make many tasks, so each (length, mask) runs with one of several numbers
  // of ranks.
  static bool IsTakenByArea(int64_t length, int32_t world, int64_t combination) {
    return (combination + length) % 7 == world - 2;
  }
};

std::vector<Way> AllWays() {
  std::vector<Way> ways;
  for (const Operation operation : {Operation::kForward, Operation::kGradients}) {
    for (const Strategy strategy : TestStrategies()) ways.push_back({operation, strategy});
  }
  return ways;
}

TEST_P(EverySchedule, IsAcceptedByTheCheckerAtEveryLength) {
  const auto [world, way] = GetParam();
  const auto [operation, strategy] = way;
  const std::vector<Mask> masks = TestMasks();
  const std::vector<PlanOptions> plans = TestPlans(world);
  const int seed = SeedOf(world, way);
  std::mt19937_64 random(seed);
  std::cout << "seed " << seed << "\n";
  for (int64_t length = 0; length <= kLengths; ++length) {
    for (size_t p = 0; p < plans.size(); ++p) {
      for (size_t m = 0; m < masks.size(); ++m) {
        const auto n = static_cast<int64_t>(m + p);
        const bool by_area = plans[p].layout == Layout::kByArea;
        if (!(by_area ? IsTakenByArea(length, world, n) : IsTaken(length, world, n))) continue;
        const auto variant = static_cast<int64_t>(random() % kVariants);
        CheckCase({For(operation, SpecOfLength(length, variant, masks[m])), plans[p], strategy,
                   static_cast<int64_t>(random() % 64)});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(EverySchedule, IsRightCellByCellAndWhenRanksDrift) {
  const auto [world, way] = GetParam();
  const auto [operation, strategy] = way;
  const std::vector<Mask> masks = TestMasks();
  const int seed = SeedOf(world, way);
  std::mt19937_64 random(seed);
  std::cout << "seed " << seed << "\n";
  for (int i = 0; i < 150; ++i) {
    const std::vector<PlanOptions> plans = TestPlans(world);
    const AttentionSpec spec =
        For(operation, SpecOfLength(random() % 25, static_cast<int64_t>(random() % kVariants),
                                    masks[random() % masks.size()]));
    RunCase({spec, plans[random() % plans.size()], strategy, static_cast<int64_t>(random() % 64)},
            random());
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EverySchedule,
                         testing::Combine(testing::Range(1, 9), testing::ValuesIn(AllWays())),
                         [](const auto& info) {
                           const Way way = std::get<1>(info.param);
                           std::string name(StrategyName(way.strategy));
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           if (way.operation == Operation::kGradients) name += "Gradients";
                           return absl::StrCat(name, "W", std::get<0>(info.param));
                         });

TEST(LargeSchedule, OddLengthsAndUpTo64RanksAreAccepted) {
  constexpr int32_t kHeads[][2] = {{8, 2}, {12, 4}, {7, 7}, {64, 8}};
  const std::vector<Mask> masks = TestMasks();
  std::mt19937_64 random(7);
  int64_t cases = 0;
  for (const int32_t world : {1, 2, 3, 4, 5, 6, 7, 8, 16, 33, 64}) {
    for (const int64_t length : {509, 4097, 16385, 99991}) {
      for (const Strategy strategy : TestStrategies()) {
        PlanOptions plan = TestPlans(world)[random() % 6];
        if (length > 20000) plan.stripe *= 64;
        Mask mask = masks[random() % masks.size()];
        if (mask.window_left) *mask.window_left *= 100;
        if (mask.chunk) *mask.chunk *= 512;
        auto which = random() % std::size(kHeads);
        // Half a million pairs of blocks: with separate tasks of many heads they take half a
        // minute.
        if (plan.layout == Layout::kByArea && world > 16) which = 0;
        const auto& heads = kHeads[which];
        AttentionSpec spec = SmallSpec(heads[0], heads[1], {Lengths(length, length + 13)}, mask);
        if (++cases % 2 == 0) spec.operation = Operation::kGradients;
        CheckCase({std::move(spec), plan, strategy, static_cast<int64_t>(random() % 64)});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ScheduleHeads, HeadsWithTheirOwnMasksGetTheirOwnTasks) {
  AttentionSpec spec = SmallSpec(4, 2, {Lengths(23, 23)}, Mask());
  Mask causal;
  causal.causal = true;
  causal.query_heads = {2, 3};
  spec.masks.push_back(causal);
  for (const PlanOptions& plan : TestPlans(3)) {
    for (const Strategy strategy : TestStrategies()) {
      for (const Execution& execution : TestExecutions(strategy, 3, spec.q_heads)) {
        CheckCase({spec, plan, execution});
      }
    }
  }
  const BuiltCase built({spec, TestPlans(3)[0], Strategy::kRingPassKv});
  std::set<std::pair<int32_t, int32_t>> heads;
  for (const Task& task : built.ranks[1].steps[0].tasks) {
    heads.insert({task.head_begin, task.head_end});
  }
  EXPECT_EQ(heads, (std::set<std::pair<int32_t, int32_t>>{{0, 2}, {2, 4}}));
}

TEST(ScheduleEntry, BuildsOneRankLikeTheGroup) {
  for (const Way& way : AllWays()) {
    AttentionSpec spec = SmallSpec(4, 2, {Lengths(40, 43)}, TestMasks()[1]);
    if (way.operation == Operation::kGradients) AskForGradients(/*with_sinks=*/true, &spec);
    const BuiltCase built({spec, TestPlans(4)[1], way.strategy});
    for (int32_t rank = 0; rank < 4; ++rank) {
      const RankSchedule own = MakeSchedule(built.request, rank).value();
      EXPECT_EQ(NumbersOf(own), NumbersOf(built.ranks[rank])) << StrategyName(way.strategy);
    }
  }
}

TEST(ScheduleEntry, RefusesWhatItLacks) {
  BuiltCase built({SmallSpec(2, 1, {Lengths(40, 40)}, Mask()), TestPlans(4)[1], Strategy::kTree});
  EXPECT_EQ(MakeSchedule(built.request, 4).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeSchedule(built.request, -1).status().code(), absl::StatusCode::kInvalidArgument);
  built.request.execution.strategy = Strategy::kAuto;
  EXPECT_EQ(MakeSchedule(built.request, 0).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(ScheduleEntry, NothingToAttendIsOneStepThatFinishesEveryRow) {
  for (const Strategy strategy : TestStrategies()) {
    const BuiltCase built({SmallSpec(2, 1, {Lengths(9, 0)}, Mask()), TestPlans(4)[1], strategy});
    for (const RankSchedule& rank : built.ranks) {
      ASSERT_EQ(rank.steps.size(), 1u);
      EXPECT_TRUE(rank.steps[0].tasks.empty());
      EXPECT_EQ(rank.steps[0].ops.size(), rank.outputs.size());
    }
    EXPECT_TRUE(CheckSchedule(built.request, built.ranks, built.placements).ok());
  }
}

int64_t RowsReceived(const RankSchedule& schedule) {
  int64_t rows = 0;
  for (const Step& step : schedule.steps)
    for (const Transfer& receive : step.receives) rows += receive.row_end - receive.row_begin;
  return rows;
}

// A window with always-visible rows needs two intervals from one source. 4 + 2 sinks over 4 ranks
// of 16 rows move 6 rows to a rank, not the hull. This is the smallest example of a need that is no
// interval.
TEST(ScheduleNeeds, RowsBetweenSinksAndWindowDoNotMove) {
  Mask mask;
  mask.causal = true;
  mask.window_left = 4;
  mask.always_visible = 2;
  for (const Strategy strategy : {Strategy::kAllGatherKv, Strategy::kRotateKv}) {
    const BuiltCase built({SmallSpec(1, 1, {Lengths(64, 64)}, mask), TestPlans(4)[0], strategy});
    // Rank 1 needs the two sinks and four rows of rank 0; ranks 2 and 3 need four rows of their
    // neighbour and the sinks.
    EXPECT_EQ(RowsReceived(built.ranks[0]), 0);
    for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(RowsReceived(built.ranks[rank]), 6);
  }
}

TEST(ScheduleNeeds, WindowOverContiguousShardsMovesOnlyTheHalo) {
  Mask mask;
  mask.causal = true;
  mask.window_left = 1024;
  const BuiltCase built(
      {SmallSpec(1, 1, {Lengths(65536, 65536)}, mask), TestPlans(8)[0], Strategy::kHalo});
  for (int rank = 1; rank < 8; ++rank) EXPECT_EQ(RowsReceived(built.ranks[rank]), 1024);
  for (const RankSchedule& rank : built.ranks) EXPECT_LE(rank.buffers.size(), 5u);
}

// Three hops with shards of 8,192 rows, or one with longer shards: the rows of the window, or all
// rows before.
TEST(ScheduleNeeds, AWindowOfSeveralShardsMovesAsManyRowsAtAnyLength) {
  constexpr int64_t kWindow = 20000;
  Mask mask;
  mask.causal = true;
  mask.window_left = kWindow;
  for (const int64_t rows : {int64_t{65536}, int64_t{1} << 20}) {
    const BuiltCase built(
        {SmallSpec(1, 1, {Lengths(rows, rows)}, mask), TestPlans(8)[0], Strategy::kHalo});
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(RowsReceived(built.ranks[rank]), std::min(kWindow, rank * rows / 8)) << rank;
    }
    std::set<int32_t> sources;
    for (const Step& step : built.ranks[7].steps) {
      for (const Transfer& receive : step.receives) sources.insert(receive.peer);
    }
    EXPECT_EQ(sources.size(), rows == 65536 ? 3u : 1u);
  }
}

TEST(ScheduleNeeds, GranuleRoundsWhatMoves) {
  Mask mask;
  mask.causal = true;
  mask.window_left = 5;
  PlanOptions plan = TestPlans(4)[0];
  plan.granule = 8;
  const ScheduleCase one{SmallSpec(1, 1, {Lengths(128, 128)}, mask), plan, Strategy::kHalo};
  CheckCase(one);
  EXPECT_EQ(RowsReceived(BuiltCase(one).ranks[2]), 8);
}

// Keys and values of a shard are one block and travel as one message.
TEST(ScheduleTransfers, AStepOfARingIsOneMessageEachWay) {
  for (const PlanOptions& plan : TestPlans(4)) {
    const ScheduleCase one{SmallSpec(2, 1, {Lengths(64, 64)}, Mask()), plan, Strategy::kRingPassKv};
    const BuiltCase built(one);
    const BlockLayout layout(built.spec);
    for (int rank = 0; rank < 4; ++rank) {
      const RankSchedule& schedule = built.ranks[rank];
      int messages = 0;
      for (const Step& step : schedule.steps) {
        ASSERT_EQ(step.sends.size(), step.receives.size()) << Describe(one);
        if (step.sends.empty()) continue;
        ASSERT_EQ(step.sends.size(), 1u) << Describe(one);
        EXPECT_EQ(step.sends[0].peer, (rank + 1) % 4);
        EXPECT_EQ(step.receives[0].peer, (rank + 3) % 4);
        const Block& block = schedule.buffers[step.sends[0].buffer];
        // fp32: a row of one head is one element of K and one of V.
        EXPECT_EQ(layout.RowBytes(block.kind, block.head_end - block.head_begin), 2 * 4);
        const Shard& travels = built.plan.shards[(rank + 4 - messages++) % 4];
        EXPECT_EQ(step.sends[0].row_end - step.sends[0].row_begin, travels.kv_rows.rows());
      }
      EXPECT_EQ(messages, 3);
    }
  }
}

// Causal ring on contiguous shards: keys of the last rank do not travel, those of rank 0 travel to
// all.
TEST(ScheduleNeeds, RingDropsWhatNobodyAfterNeeds) {
  const BuiltCase built(
      {SmallSpec(1, 1, {Lengths(64, 64)}, TestMasks()[1]), TestPlans(4)[0], Strategy::kRingPassKv});
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(RowsReceived(built.ranks[rank]), 16 * rank);
}

TEST(ScheduleTasks, StayFewForStripesAndManySequences) {
  std::vector<Sequence> many(1000, Lengths(7, 7));
  for (const PlanOptions& plan : TestPlans(4)) {
    const BuiltCase packed({SmallSpec(1, 1, many, TestMasks()[1]), plan, Strategy::kRingPassKv});
    const BuiltCase striped(
        {SmallSpec(1, 1, {Lengths(7000, 7000)}, TestMasks()[1]), plan, Strategy::kRingPassKv});
    for (const RankSchedule& rank : packed.ranks) {
      for (const Step& step : rank.steps) EXPECT_LE(step.tasks.size(), 64u * 4u);
    }
    for (const RankSchedule& rank : striped.ranks) {
      for (const Step& step : rank.steps)
        EXPECT_LE(step.tasks.size(), plan.layout == Layout::kByArea ? 256u : 4u);
    }
  }
}

}  // namespace
}  // namespace annulus
