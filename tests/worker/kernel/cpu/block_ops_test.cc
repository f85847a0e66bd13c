#include "worker/kernel/cpu/block_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "absl/functional/function_ref.h"
#include "attention/numerics/partial.h"
#include "tests/worker/kernel/kernel_harness.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

AttentionSpec Spec() {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 3;
  spec.head_dim_v = 5;
  return spec;
}

Block MakeBlock(BlockKind kind, int64_t row_begin, int64_t row_end, int32_t head_begin,
                int32_t head_end) {
  Block block;
  block.kind = kind;
  block.row_begin = row_begin;
  block.row_end = row_end;
  block.head_begin = head_begin;
  block.head_end = head_end;
  return block;
}

class BlockOpsTest : public testing::Test {
 protected:
  OwnedBlock Make(BlockKind kind, int64_t row_begin, int64_t row_end, int32_t head_begin,
                  int32_t head_end) {
    return OwnedBlock(layout_, MakeBlock(kind, row_begin, row_end, head_begin, head_end));
  }
  absl::Status Apply(KernelOp::Kind kind, OwnedBlock& source, OwnedBlock& target) {
    KernelOp op;
    op.kind = kind;
    op.source = source.view();
    op.target = target.view();
    KernelJob job;
    job.spec = &spec_;
    job.layout = &layout_;
    return ApplyBlockOp(job, op, kPortableIsa, *pool_);
  }
  // Fills every float with normal numbers. In a block of partials, this gives plausible maxima and
  // weights.
  void FillFloats(OwnedBlock& block) {
    std::normal_distribution<float> normal;
    for (size_t at = 0; at < block.bytes.size(); at += 4) {
      const float value = std::fabs(normal(random_)) + 0.1f;
      std::memcpy(block.bytes.data() + at, &value, 4);
    }
  }
  // The state of (row, head) in a block of partials.
  struct State {
    RowState row;
    std::vector<float> sum;
  };
  State StateAt(const OwnedBlock& block, int64_t row, int32_t head) const {
    const int32_t heads = block.block.head_end - block.block.head_begin;
    const std::byte* at = block.bytes.data() + (row - block.block.row_begin) *
                                                   layout_.RowBytes(BlockKind::kPartial, heads);
    const int32_t h = head - block.block.head_begin;
    State state;
    state.sum.resize(5);
    std::memcpy(state.sum.data(), at + h * 5 * 4, 5 * 4);
    std::memcpy(&state.row.max, at + layout_.SecondOffset(BlockKind::kPartial, heads) + 4 * h, 4);
    std::memcpy(&state.row.weight, at + layout_.ThirdOffset(BlockKind::kPartial, heads) + 4 * h, 4);
    return state;
  }

  // Every cell of the partials is unchanged, or merged with the cell that `other` returns for it.
  void ExpectMerged(
      const OwnedBlock& before, const OwnedBlock& after,
      absl::FunctionRef<std::optional<State>(int64_t row, int32_t head)> other) const {
    const Block& block = before.block;
    for (int64_t row = block.row_begin; row < block.row_end; ++row) {
      for (int32_t head = block.head_begin; head < block.head_end; ++head) {
        State expected = StateAt(before, row, head);
        if (const std::optional<State> more = other(row, head)) {
          Merge(expected.row, absl::MakeSpan(expected.sum), more->row, more->sum);
        }
        const State got = StateAt(after, row, head);
        EXPECT_EQ(got.row.max, expected.row.max);
        EXPECT_EQ(got.row.weight, expected.row.weight);
        EXPECT_EQ(got.sum, expected.sum);
      }
    }
  }

  AttentionSpec spec_ = Spec();
  const BlockLayout layout_{Spec()};
  const std::unique_ptr<ComputePool> pool_ = *ComputePool::Create(2);
  std::mt19937_64 random_{20261121};
};

TEST_F(BlockOpsTest, IdentityIsNothingSeen) {
  OwnedBlock target = Make(BlockKind::kPartial, 10, 200, 1, 4);
  FillFloats(target);
  const OwnedBlock before = target;
  ASSERT_TRUE(Apply(KernelOp::Kind::kIdentity, target, target).ok());
  for (int64_t row = 10; row < 200; ++row) {
    for (int32_t head = 1; head < 4; ++head) {
      const State state = StateAt(target, row, head);
      EXPECT_EQ(state.row.max, kMinusInf);
      EXPECT_EQ(state.row.weight, 0.0f);
      EXPECT_EQ(state.sum, StateAt(before, row, head).sum) << "not worth the time";
    }
  }
}

TEST_F(BlockOpsTest, MergeTouchesTheIntersectionOnly) {
  OwnedBlock source = Make(BlockKind::kPartial, 0, 100, 2, 4);
  OwnedBlock target = Make(BlockKind::kPartial, 50, 150, 0, 3);
  FillFloats(source);
  FillFloats(target);
  const OwnedBlock before = target;
  ASSERT_TRUE(Apply(KernelOp::Kind::kMerge, source, target).ok());
  ExpectMerged(before, target, [&](int64_t row, int32_t head) -> std::optional<State> {
    if (row >= 100 || head < 2) return std::nullopt;
    return StateAt(source, row, head);
  });
}

TEST_F(BlockOpsTest, RoundingAPartialRoundsItsSumAloneAndItsMergeReadsThat) {
  OwnedBlock source = Make(BlockKind::kPartial, 0, 90, 1, 4);
  OwnedBlock sent = Make(BlockKind::kBf16Partial, 0, 90, 1, 4);
  OwnedBlock target = Make(BlockKind::kPartial, 20, 100, 0, 3);
  FillFloats(source);
  FillFloats(target);
  const OwnedBlock before = target;
  ASSERT_TRUE(Apply(KernelOp::Kind::kRound, source, sent).ok());
  ASSERT_TRUE(Apply(KernelOp::Kind::kMerge, sent, target).ok());
  ExpectMerged(before, target, [&](int64_t row, int32_t head) -> std::optional<State> {
    if (row >= 90 || head < 1) return std::nullopt;
    State other = StateAt(source, row, head);
    for (float& value : other.sum) value = Bf16ToFp32(Fp32ToBf16(value));
    return other;
  });
}

TEST_F(BlockOpsTest, FinishWritesTheOutputTypeAndTheNaturalLog) {
  OwnedBlock source = Make(BlockKind::kPartial, 0, 70, 0, 2);
  OwnedBlock target = Make(BlockKind::kOut, 0, 70, 0, 2);
  FillFloats(source);
  ASSERT_TRUE(Apply(KernelOp::Kind::kFinish, source, target).ok());
  for (int64_t row = 0; row < 70; ++row) {
    for (int32_t head = 0; head < 2; ++head) {
      const State state = StateAt(source, row, head);
      const std::byte* at =
          target.bytes.data() + row * layout_.RowBytes(BlockKind::kOut, 2) + head * 5 * 2;
      for (int d = 0; d < 5; ++d) {
        uint16_t bits;
        std::memcpy(&bits, at + 2 * d, 2);
        EXPECT_EQ(bits, Fp32ToBf16(state.sum[d] / state.row.weight));
      }
      float lse;
      std::memcpy(&lse,
                  target.bytes.data() + row * layout_.RowBytes(BlockKind::kOut, 2) +
                      layout_.SecondOffset(BlockKind::kOut, 2) + 4 * head,
                  4);
      EXPECT_FLOAT_EQ(lse, state.row.max + std::log(state.row.weight));
    }
  }
}

TEST_F(BlockOpsTest, AddSumsGradients) {
  OwnedBlock source = Make(BlockKind::kDkv, 0, 4, 0, 2), target = Make(BlockKind::kDkv, 2, 6, 0, 2);
  FillFloats(source);
  FillFloats(target);
  const OwnedBlock before = target;
  ASSERT_TRUE(Apply(KernelOp::Kind::kAdd, source, target).ok());
  const size_t row_floats = layout_.RowBytes(BlockKind::kDkv, 2) / 4;
  const auto at = [](const OwnedBlock& block, size_t i) {
    float value;
    std::memcpy(&value, block.bytes.data() + 4 * i, 4);
    return value;
  };
  for (size_t i = 0; i < 4 * row_floats; ++i) {
    const float added = i < 2 * row_floats ? at(source, i + 2 * row_floats) : 0.0f;
    EXPECT_EQ(at(target, i), at(before, i) + added);
  }
}

TEST_F(BlockOpsTest, WrongKindsAreRefused) {
  OwnedBlock q = Make(BlockKind::kQ, 0, 4, 0, 2), partial = Make(BlockKind::kPartial, 0, 4, 0, 2);
  for (const KernelOp::Kind kind : {KernelOp::Kind::kMerge, KernelOp::Kind::kAdd,
                                    KernelOp::Kind::kFinish, KernelOp::Kind::kRound})
    EXPECT_EQ(Apply(kind, q, partial).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Apply(KernelOp::Kind::kIdentity, q, q).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace annulus
