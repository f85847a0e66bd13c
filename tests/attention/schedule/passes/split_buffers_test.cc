#include "attention/schedule/passes/split_buffers.h"

#include <algorithm>
#include <random>

#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/model/digest.h"
#include "attention/schedule/passes/segment_steps.h"
#include "gtest/gtest.h"
#include "tests/attention/checker/checker.h"
#include "tests/attention/schedule/drift.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

std::vector<ArenaPlan> Place(const BuiltCase& built, const std::vector<RankSchedule>& ranks,
                             bool reads_staging = false) {
  std::vector<ArenaPlan> placements;
  for (const RankSchedule& rank : ranks) {
    const std::vector<bool> in_staging =
        reads_staging ? BuffersInStaging(rank) : std::vector<bool>();
    placements.push_back(PlanArena(rank, BlockLayout(built.spec), 4, in_staging));
  }
  return placements;
}

int64_t Arena(const ArenaPlan& placement) { return placement.arena_bytes; }

Mask Window(int64_t left) {
  Mask mask;
  mask.causal = true;
  mask.window_left = left;
  return mask;
}

TEST(BufferCutsTest, SchedulesAreStillRight) {
  constexpr uint64_t kSeed = 5;
  std::mt19937_64 random(kSeed);
  int64_t keys = 0, states = 0;
  for (int i = 0; i < 240; ++i) {
    const std::vector<PlanOptions> plans = TestPlans(1 + random() % 3);
    std::vector<Mask> masks = TestMasks();
    masks.insert(masks.end(), masks.size(), Window(1 + random() % 20));
    const Mask mask = masks[random() % masks.size()];
    const int64_t length = random() % 100;
    const ScheduleCase one{SmallSpec(2, 1, {Lengths(length, length + random() % 5)}, mask),
                           plans[random() % plans.size()],
                           TestStrategies()[random() % TestStrategies().size()],
                           static_cast<int64_t>(random() % 64)};
    const BuiltCase built(one);
    std::vector<int32_t> parts;
    for (size_t k = 0; k < built.ranks[0].steps.size(); ++k) parts.push_back(1 + random() % 9);
    std::vector<RankSchedule> ranks;
    for (const RankSchedule& rank : built.ranks) {
      const RankSchedule apart = SplitSentKeys(rank, built.request, 1 + random() % 4);
      const RankSchedule split = SplitSteps(apart, built.request, parts);
      ranks.push_back(SplitStates(split, 1 + random() % 4));
      keys += apart.inputs.size() - rank.inputs.size();
      states += ranks.back().outputs.size() - rank.outputs.size();
    }
    const std::vector<ArenaPlan> placements = Place(built, ranks);
    const absl::Status checked = CheckSchedule(built.request, ranks, placements);
    ASSERT_TRUE(checked.ok()) << Describe(one) << ": " << checked << " seed " << kSeed;
    const absl::Status ran = RunDrifting(built, ranks, placements, random());
    ASSERT_TRUE(ran.ok()) << Describe(one) << ": " << ran << " seed " << kSeed;
  }
  EXPECT_GT(keys, 20);
  EXPECT_GT(states, 100);
}

// Contiguous rows with a window: a rank sends its last keys and needs those before its own.
class WindowTest : public testing::Test {
 protected:
  static constexpr int64_t kRows = 4000;  // Rows of a rank: too few for SplitSteps to split.
  static constexpr int32_t kParts = 10;
  static constexpr int64_t kLeast = 200;

  const BuiltCase built_{{SmallSpec(1, 1, {Lengths(2 * kRows, 2 * kRows)}, Window(100)),
                          TestPlans(2)[0], Strategy::kRotateKv}};
};

TEST_F(WindowTest, StatesOfFewPartsAreAliveTogether) {
  std::vector<RankSchedule> split, cut;
  for (const RankSchedule& rank : built_.ranks) {
    split.push_back(SplitSteps(rank, built_.request, {kParts, 1}));
    cut.push_back(SplitStates(split.back(), kLeast));
    EXPECT_GT(cut.back().outputs.size(), kParts / 2u);
  }
  const int64_t state = BlockLayout(built_.spec).RowBytes(BlockKind::kPartial, 1) * kRows;
  for (size_t r = 0; r < 2; ++r) {
    const int64_t before = Arena(Place(built_, split, true)[r]);
    EXPECT_LE(Arena(Place(built_, cut, true)[r]), before - state * 7 / 10);
  }
}

TEST_F(WindowTest, KeysThatAreNotSentStayInStaging) {
  const RankSchedule cut = SplitSentKeys(built_.ranks[0], built_.request, kLeast);
  ASSERT_EQ(cut.inputs.size(), built_.ranks[0].inputs.size() + 1);
  const std::vector<bool> before = BuffersInStaging(built_.ranks[0]), after = BuffersInStaging(cut);
  int64_t copied_before = 0, copied = 0;
  for (const int32_t input : built_.ranks[0].inputs)
    copied_before += before[input] ? 0 : built_.ranks[0].buffers[input].row_end;
  for (const int32_t input : cut.inputs) {
    const Block& block = cut.buffers[input];
    copied += after[input] ? 0 : block.row_end - block.row_begin;
  }
  EXPECT_EQ(copied_before, kRows);
  EXPECT_EQ(copied, 100);
  // Only the last rows see the last keys.
  EXPECT_GE(cut.steps[0].tasks.back().q_begin, kRows - 100);
}

TEST_F(WindowTest, PeersAreTouchedAlike) {
  for (const RankSchedule& rank : built_.ranks) {
    const RankSchedule cut = SplitStates(SplitSentKeys(rank, built_.request, kLeast), kLeast);
    const std::vector<PeerDigest> before = PeerDigests(rank), after = PeerDigests(cut);
    ASSERT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(before[i].sends, after[i].sends);
      EXPECT_EQ(before[i].receives, after[i].receives);
    }
  }
}

// Every row of a full mask meets keys of the first step and of the last one, and all keys are sent.
TEST(BufferCutsTest, WhatSavesNothingStaysWhole) {
  const BuiltCase built(
      {SmallSpec(1, 1, {Lengths(9000, 9000)}, Mask()), TestPlans(2)[0], Strategy::kRingPassKv});
  for (const RankSchedule& rank : built.ranks) {
    const RankSchedule split = SplitSteps(rank, built.request, {5, 5});
    EXPECT_EQ(SplitSentKeys(split, built.request, 1).buffers, split.buffers);
    EXPECT_EQ(SplitStates(split, 1).buffers, split.buffers);
  }
}

// Pieces that are too small cost more than they save.
TEST_F(WindowTest, PiecesHaveTheLeastRows) {
  const RankSchedule split = SplitSteps(built_.ranks[1], built_.request, {kParts, 1});
  const RankSchedule cut = SplitStates(split, 700);
  EXPECT_GT(cut.outputs.size(), 1u);
  for (const int32_t out : cut.outputs)
    EXPECT_GE(cut.buffers[out].row_end - cut.buffers[out].row_begin, 700);
  EXPECT_EQ(SplitStates(split, kRows).buffers, split.buffers);
  EXPECT_EQ(SplitSentKeys(built_.ranks[0], built_.request, kRows).buffers, built_.ranks[0].buffers);
}

}  // namespace
}  // namespace annulus
