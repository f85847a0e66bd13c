#include "attention/schedule/arena/arena_plan.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "attention/schedule/model/block_layout.h"
#include "gtest/gtest.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

Mask Causal() { return TestMasks()[1]; }

BuiltCase Ring(int64_t length, const Mask& mask, int32_t world) {
  return BuiltCase({SmallSpec(4, 2, {Lengths(length, length)}, mask), TestPlans(world)[1],
                    Strategy::kRingPassKv});
}

// The most bytes alive at once: a lower bound of every placement.
int64_t LowerBound(const ArenaPlan& placement) {
  int32_t last = 0;
  for (const ArenaPlan::Slot& slot : placement.slots) last = std::max(last, slot.dies);
  int64_t most = 0;
  for (int32_t half = 0; half <= last; ++half) {
    int64_t alive = 0;
    for (const ArenaPlan::Slot& slot : placement.slots) {
      if (slot.born <= half && half <= slot.dies) alive += slot.bytes;
    }
    most = std::max(most, alive);
  }
  return most;
}

TEST(PlacementTest, DoubleBufferOfARingFallsOut) {
  const BuiltCase built = Ring(512, Mask(), 8);
  const BlockLayout layout(built.spec);
  const int64_t rows = 64;
  const int64_t kv = rows * layout.RowBytes(BlockKind::kKv, 2);
  const int64_t own =
      rows * (layout.RowBytes(BlockKind::kQ, 4) + layout.RowBytes(BlockKind::kPartial, 4));
  const int64_t out = rows * layout.RowBytes(BlockKind::kOut, 4);
  for (const RankSchedule& rank : built.ranks) {
    const ArenaPlan placement = PlanArena(rank, layout);
    // Own keys die after step 0, so two blocks of keys are alive at any time. The output is written
    // after the last read of the queries.
    EXPECT_LE(placement.arena_bytes, own + out + 2 * kv);
    EXPECT_GE(placement.arena_bytes, own + 2 * kv);
  }
}

TEST(PlacementTest, IsAtMostAFewPercentAboveWhatIsAlive) {
  for (const Mask& mask : TestMasks()) {
    for (const PlanOptions& plan : TestPlans(5)) {
      for (const Strategy strategy : TestStrategies()) {
        const BuiltCase built({SmallSpec(4, 2, {Lengths(1000, 1300)}, mask), plan, strategy});
        const BlockLayout layout(built.spec);
        for (const RankSchedule& rank : built.ranks) {
          const ArenaPlan placement = PlanArena(rank, layout);
          EXPECT_LE(placement.arena_bytes, LowerBound(placement) * 117 / 100)
              << Describe({built.spec, plan, strategy});
        }
      }
    }
  }
}

TEST(PlacementTest, OffsetsAreAligned) {
  const BuiltCase built = Ring(77, Causal(), 3);
  for (const int64_t alignment : {4, 64, 4096}) {
    const ArenaPlan placement = PlanArena(built.ranks[1], BlockLayout(built.spec), alignment);
    for (const ArenaPlan::Slot& slot : placement.slots) EXPECT_EQ(slot.offset % alignment, 0);
  }
}

TEST(PlacementTest, AccumulatorsStartAsTheIdentityAndNothingElseDoes) {
  // Without keys, the accumulator is used only by its finish, in the second half of the step.
  const BuiltCase empty(
      {SmallSpec(1, 1, {Lengths(6, 0)}, Mask()), TestPlans(2)[0], Strategy::kRingPassKv});
  const BuiltCase ring = Ring(30, Causal(), 3);
  for (const BuiltCase* built : {&empty, &ring}) {
    for (size_t r = 0; r < built->ranks.size(); ++r) {
      for (size_t i = 0; i < built->ranks[r].buffers.size(); ++i) {
        const ArenaPlan::Slot& slot = built->placements[r].slots[i];
        const bool partial = built->ranks[r].buffers[i].kind == BlockKind::kPartial;
        EXPECT_EQ(slot.starts_as_identity, partial);
        EXPECT_TRUE(!partial || slot.born % 2 == 0);
      }
    }
  }
}

// In every strategy, buffers that only tasks and ops touch stay in staging, and all others have the
// memory that they need.
TEST(BuffersInStagingTest, AreNeverMovedNorInputsWritten) {
  int64_t stay = 0, move = 0;
  for (const PlanOptions& plan : TestPlans(5)) {
    for (const Strategy strategy : TestStrategies()) {
      for (const Operation operation : {Operation::kForward, Operation::kGradients}) {
        AttentionSpec spec = SmallSpec(4, 2, {Lengths(60, 70)}, Causal());
        spec.operation = operation;
        const BuiltCase built({spec, plan, strategy});
        for (const RankSchedule& rank : built.ranks) {
          const std::vector<bool> in_staging = BuffersInStaging(rank);
          const std::set<int32_t> inputs(rank.inputs.begin(), rank.inputs.end());
          const std::set<int32_t> outputs(rank.outputs.begin(), rank.outputs.end());
          std::set<int32_t> moved, written;
          for (const Step& step : rank.steps) {
            for (const auto* transfers : {&step.sends, &step.receives})
              for (const Transfer& transfer : *transfers) moved.insert(transfer.buffer);
            for (const Task& task : step.tasks)
              written.insert({task.out_q, task.out_kv, task.out_bias});
            for (const Op& op : step.ops)
              if (inputs.count(op.target) > 0) written.insert(op.target);
          }
          const ArenaPlan placement =
              PlanArena(rank, BlockLayout(built.spec), /*alignment=*/128, in_staging);
          const ArenaPlan all = PlanArena(rank, BlockLayout(built.spec));
          EXPECT_LE(placement.arena_bytes, all.arena_bytes);
          for (int32_t i = 0; i < static_cast<int32_t>(rank.buffers.size()); ++i) {
            const bool staged = inputs.count(i) + outputs.count(i) > 0;
            EXPECT_EQ(in_staging[i], staged && moved.count(i) + written.count(i) == 0);
            EXPECT_EQ(placement.slots[i].bytes, in_staging[i] ? 0 : all.slots[i].bytes);
            (in_staging[i] ? stay : move) += staged ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(stay, 100);
  EXPECT_GT(move, 100);
}

// Plans count all buffers, and first fit may need more for fewer of them.
TEST(BuffersInStagingTest, NeverTakeMoreMemoryThanAllBuffers) {
  std::mt19937_64 random(7);
  int smaller = 0, equal = 0;
  for (int i = 0; i < 400; ++i) {
    Mask mask = Causal();
    if (random() % 2 == 0) mask.window_left = random() % 100;
    mask.always_visible = random() % 2 == 0 ? 3 : 0;
    const int64_t q = 1 + random() % 300;
    const AttentionSpec spec = SmallSpec(12, 4, {Lengths(q, q + random() % 50)}, mask);
    const std::vector<PlanOptions> plans = TestPlans(1 + random() % 4);
    const BuiltCase built({spec, plans[random() % plans.size()],
                           TestStrategies()[random() % TestStrategies().size()]});
    const BlockLayout layout(built.spec);
    for (const RankSchedule& rank : built.ranks) {
      const int64_t all = PlanArena(rank, layout).arena_bytes;
      const int64_t fewer = PlanArena(rank, layout, 128, BuffersInStaging(rank)).arena_bytes;
      ASSERT_LE(fewer, all) << i;
      (fewer < all ? smaller : equal) += 1;
    }
  }
  EXPECT_GT(smaller, 50);
  EXPECT_GT(equal, 0);
}

// One rank moves nothing: a forward pass needs memory only for its partials.
TEST(BuffersInStagingTest, OneRankNeedsMemoryForItsStateOnly) {
  const BuiltCase built = Ring(100, Causal(), 1);
  const RankSchedule& rank = built.ranks[0];
  const BlockLayout layout(built.spec);
  const ArenaPlan placement = PlanArena(rank, layout, 1, BuffersInStaging(rank));
  EXPECT_EQ(placement.arena_bytes, 100 * layout.RowBytes(BlockKind::kPartial, 4));
}

TEST(BlockLayoutTest, RowsAreAsTheHeaderSays) {
  AttentionSpec spec = SmallSpec(6, 3, {}, Mask());
  spec.dtype = DataType::kBf16;
  spec.head_dim = 5;
  spec.head_dim_v = 3;
  const BlockLayout layout(spec);
  EXPECT_EQ(layout.group(), 2);
  EXPECT_EQ(layout.RowBytes(BlockKind::kQ, 1), 12);  // 10, padded.
  EXPECT_EQ(layout.RowBytes(BlockKind::kKv, 3), 48);
  EXPECT_EQ(layout.SecondOffset(BlockKind::kKv, 3), 30);
  EXPECT_EQ(layout.RowBytes(BlockKind::kPartial, 2), 2 * 3 * 4 + 2 * 4 + 2 * 4);
  EXPECT_EQ(layout.SecondOffset(BlockKind::kPartial, 2), 24);
  EXPECT_EQ(layout.ThirdOffset(BlockKind::kPartial, 2), 32);
  EXPECT_EQ(layout.RowBytes(BlockKind::kBf16Partial, 3), 20 + 3 * 4 + 3 * 4);
  EXPECT_EQ(layout.SecondOffset(BlockKind::kBf16Partial, 3), 20);  // 18, padded.
  EXPECT_EQ(layout.ThirdOffset(BlockKind::kBf16Partial, 3), 32);
  EXPECT_EQ(layout.SecondOffset(BlockKind::kOut, 1), 8);  // 6, padded.
  EXPECT_EQ(layout.RowBytes(BlockKind::kOut, 1), 12);
  EXPECT_EQ(layout.SecondOffset(BlockKind::kQGrad, 1), 10);
  EXPECT_EQ(layout.ThirdOffset(BlockKind::kQGrad, 1), 16);
  EXPECT_EQ(layout.FourthOffset(BlockKind::kQGrad, 1), 20);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(layout.SectionOffset(BlockKind::kQGrad, 1, i), std::vector<int>({0, 10, 16, 20})[i]);
  }
  EXPECT_EQ(layout.RowBytes(BlockKind::kQGrad, 1), 24);
  EXPECT_EQ(layout.RowBytes(BlockKind::kDq, 2), 40);
  EXPECT_EQ(layout.SecondOffset(BlockKind::kDkv, 2), 40);
  EXPECT_EQ(layout.RowBytes(BlockKind::kDkv, 2), 64);
  EXPECT_EQ(layout.BlockBytes({BlockKind::kKv, 0, 2, 7, 0, 3}), 5 * 48);
  spec.out_dtype = DataType::kFp32;
  EXPECT_EQ(BlockLayout(spec).SecondOffset(BlockKind::kOut, 1), 12);
  spec.outputs.max_logit = true;
  EXPECT_EQ(BlockLayout(spec).ThirdOffset(BlockKind::kOut, 2), 24 + 8);
  EXPECT_EQ(BlockLayout(spec).RowBytes(BlockKind::kOut, 2), 24 + 8 + 8);
  spec.outputs.lse_rest = true;
  EXPECT_EQ(BlockLayout(spec).FourthOffset(BlockKind::kOut, 2), 24 + 8 + 8);
  EXPECT_EQ(BlockLayout(spec).RowBytes(BlockKind::kOut, 2), 24 + 8 + 8 + 8);
  EXPECT_EQ(BlockLayout(spec).RowBytes(BlockKind::kQGrad, 1), 24);
}

TEST(BlockLayoutTest, GradientsHaveTheRestOfTheLseAndDOutOfItsOwnType) {
  AttentionSpec spec = SmallSpec(6, 3, {}, Mask());
  spec.dtype = DataType::kBf16;
  spec.head_dim = 5;
  spec.head_dim_v = 3;
  spec.operation = Operation::kGradients;
  spec.outputs.lse_rest = true;
  EXPECT_EQ(BlockLayout(spec).FifthOffset(BlockKind::kQGrad, 1), 24);
  EXPECT_EQ(BlockLayout(spec).RowBytes(BlockKind::kQGrad, 1), 28);
  EXPECT_EQ(BlockLayout(spec).RowBytes(BlockKind::kOut, 1), 12);
  EXPECT_FALSE(BlockLayout(spec).rounds_d_out());
  spec.out_dtype = spec.gradients.d_out_dtype = DataType::kFp32;
  EXPECT_TRUE(BlockLayout(spec).rounds_d_out());
  EXPECT_EQ(BlockLayout(spec).FifthOffset(BlockKind::kOut, 2), 24 + 8);
  EXPECT_EQ(BlockLayout(spec).RowBytes(BlockKind::kOut, 2), 24 + 8 + 24);
  EXPECT_EQ(BlockLayout(spec).RowBytes(BlockKind::kQGrad, 1), 28) << "it travels in bf16";
}

}  // namespace
}  // namespace annulus
