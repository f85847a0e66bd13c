// Operations on blocks: compares the emulated kernel with the CPU's, bit for bit except where sums
// have another order.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "attention/spec/dtype.h"
#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"
#include "tests/worker/kernel/cuda/emulator/emulated_run.h"
#include "tests/worker/kernel/kernel_harness.h"
#include "worker/kernel/compute_pool.h"
#include "worker/kernel/cpu/block_ops.h"
#include "worker/kernel/cpu/isa/tile_isa.h"
#include "worker/kernel/cuda/ops/op_plan.h"

namespace annulus::cuda {
namespace {

class OpTest : public testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    spec_.dtype = GetParam();
    spec_.q_heads = 3;
    spec_.kv_heads = 3;
    spec_.head_dim = 33;
    spec_.head_dim_v = 37;
    spec_.outputs.max_logit = true;
    spec_.modifiers.sinks = {0.5f, -20, 3};
    spec_.dropout = Dropout{0.25, 1};
  }

  OwnedBlock Make(BlockKind kind, int64_t row_begin, int64_t row_end, int32_t head_begin,
                  int32_t head_end) {
    Block block;
    block.kind = kind;
    block.row_begin = row_begin;
    block.row_end = row_end;
    block.head_begin = head_begin;
    block.head_end = head_end;
    OwnedBlock made(BlockLayout(spec_), block);
    const bool small = kind == BlockKind::kQGrad || kind == BlockKind::kQ ||
                       kind == BlockKind::kKv || kind == BlockKind::kOut;
    for (size_t i = 0; i + 4 <= made.bytes.size(); i += 4) {
      const float value = std::normal_distribution<float>(0, 1)(random_);
      const float next = std::normal_distribution<float>(0, 1)(random_);
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      if (small && GetParam() == DataType::kBf16)
        bits = Fp32ToBf16(value) | static_cast<uint32_t>(Fp32ToBf16(next)) << 16;
      if (small && GetParam() == DataType::kFp16)
        bits = Fp32ToFp16(value) | static_cast<uint32_t>(Fp32ToFp16(next)) << 16;
      std::memcpy(made.bytes.data() + i, &bits, 4);
    }
    return made;
  }
  // Weights are positive. Some rows have seen nothing, or only scores of −infinity, or scores
  // without an LSE of base 2.
  OwnedBlock Partial(int64_t row_begin, int64_t row_end, int32_t head_begin, int32_t head_end) {
    OwnedBlock made = Make(BlockKind::kPartial, row_begin, row_end, head_begin, head_end);
    const int heads = head_end - head_begin, floats = heads * (37 + 2);
    for (int64_t row = 0; row < row_end - row_begin; ++row) {
      for (int h = 0; h < heads; ++h) {
        auto* const max = made.bytes.data() + 4 * (row * floats + heads * 37 + h);
        float weight = 0;
        std::memcpy(&weight, max + heads * 4, 4);
        weight = row % 5 == 1 ? 0 : std::fabs(weight) + 0.5f;
        std::memcpy(max + heads * 4, &weight, 4);
        const float special = row % 5 == 0 ? -std::numeric_limits<float>::infinity()
                                           : std::numeric_limits<float>::lowest();
        if (row % 5 < 3) std::memcpy(max, &special, 4);
      }
    }
    return made;
  }

  // Runs both kernels. `target` gets the CPU's result.
  void Check(KernelOp::Kind kind, OwnedBlock& source, OwnedBlock& target, float tolerance = 0) {
    OwnedBlock emulated(BlockLayout(spec_), target.block);
    emulated.bytes = target.bytes;
    const BlockLayout layout(spec_);
    const MaskMap mask(spec_);
    KernelJob job;
    job.spec = &spec_;
    job.layout = &layout;
    job.mask = &mask;
    ASSERT_TRUE(ApplyBlockOp(job, {kind, source.view(), target.view()}, kPortableIsa, *pool_).ok());
    const absl::Status status = kernel_->Apply(job, {kind, source.view(), emulated.view()});
    ASSERT_TRUE(status.ok()) << status;
    if (tolerance == 0) {
      EXPECT_EQ(target.bytes, emulated.bytes);
      return;
    }
    for (size_t i = 0; i < target.bytes.size(); i += 4) {
      float a, b;
      std::memcpy(&a, target.bytes.data() + i, 4);
      std::memcpy(&b, emulated.bytes.data() + i, 4);
      if (std::memcmp(&a, &b, 4) == 0) continue;
      EXPECT_NEAR(a, b, tolerance) << i;
    }
  }

  AttentionSpec spec_;
  std::mt19937_64 random_{11};
  const std::unique_ptr<AttentionKernel> kernel_ = MakeEmulatedKernel(1 << 20);
  const std::unique_ptr<ComputePool> pool_ = *ComputePool::Create(1);
};

TEST_P(OpTest, StatesAreEmptiedMergedAndFinished) {
  for (const int round : {0, 1, 2}) {
    if (round > 0) spec_.modifiers.sinks.clear();
    spec_.outputs.lse_base = round < 2 ? LseBase::k2 : LseBase::kE;
    spec_.outputs.lse_rest = round != 1;
    OwnedBlock a = Partial(0, 23, 0, 3), b = Partial(4, 40, 1, 3);
    OwnedBlock out = Make(BlockKind::kOut, 2, 30, 0, 2);
    Check(KernelOp::Kind::kMerge, b, a);
    Check(KernelOp::Kind::kFinish, a, out);
    Check(KernelOp::Kind::kIdentity, a, a);
  }
}

TEST_P(OpTest, PartialsAreRoundedAndMergedFromBf16) {
  OwnedBlock a = Partial(0, 23, 0, 3), b = Partial(4, 40, 1, 3);
  OwnedBlock sent(BlockLayout(spec_), b.block);
  sent.block.kind = BlockKind::kBf16Partial;
  sent = OwnedBlock(BlockLayout(spec_), sent.block);
  Check(KernelOp::Kind::kRound, b, sent);
  Check(KernelOp::Kind::kMerge, sent, a);
}

// The bits of the CPU's merges, one after the other.
TEST_P(OpTest, ManyPartialsAreMergedAsOneAfterTheOther) {
  constexpr int kPartials = 19;
  OwnedBlock target = Partial(0, 23, 0, 3), all = Partial(0, kPartials * 10, 1, 3);
  OwnedBlock emulated(BlockLayout(spec_), target.block);
  emulated.bytes = target.bytes;
  const BlockLayout layout(spec_);
  KernelJob job;
  job.spec = &spec_;
  job.layout = &layout;
  Block part = all.block;
  part.row_begin = 4;  // Each has rows 4 to 13.
  part.row_end = 14;
  const int64_t bytes = layout.BlockBytes(part);
  for (int p = 0; p < kPartials; ++p) {
    const BlockView source{part, all.bytes.data() + p * bytes, 0};
    ASSERT_TRUE(
        ApplyBlockOp(job, {KernelOp::Kind::kMerge, source, target.view()}, kPortableIsa, *pool_)
            .ok());
  }
  const BlockView first{part, all.bytes.data(), 0};
  absl::StatusOr<OpArgs> args =
      MakeMergeArgs(job, {KernelOp::Kind::kMerge, first, emulated.view()}, kPartials, bytes);
  ASSERT_TRUE(args.ok()) << args.status();
  GlobalMemory memory;
  memory.Add(all.bytes.data(), static_cast<int64_t>(all.bytes.size()), false);
  memory.Add(emulated.bytes.data(), static_cast<int64_t>(emulated.bytes.size()), true);
  EXPECT_EQ(EmulateOp(*args, OpBlocks(*args), &memory), "");
  EXPECT_EQ(target.bytes, emulated.bytes);
}

// The bits of the CPU's merge of the partials that they are the means of.
TEST_P(OpTest, MeansAreMergedByTheirWeights) {
  OwnedBlock target = Partial(0, 23, 0, 3), source = Partial(4, 14, 1, 3);
  OwnedBlock emulated(BlockLayout(spec_), target.block);
  emulated.bytes = target.bytes;
  const BlockLayout layout(spec_);
  KernelJob job;
  job.spec = &spec_;
  job.layout = &layout;
  constexpr int kHeads = 2, kDim = 37, kRow = 96, kMaxAt = 80, kWeightAt = 92;  // In floats.
  std::vector<float> means(10 * kRow, std::nanf(""));
  for (int row = 0; row < 10; ++row) {
    auto* const sums = reinterpret_cast<float*>(source.bytes.data()) + row * kHeads * (kDim + 2);
    for (int h = 0; h < kHeads; ++h) {
      float *const max = &sums[kHeads * kDim + h], *const weight = max + kHeads;
      means[row * kRow + kMaxAt + h] = *max;
      means[row * kRow + kWeightAt + h] = *weight;
      const bool lost = std::isinf(*max);
      if (lost) *max = std::numeric_limits<float>::lowest();
      if (lost) *weight = 0;
      for (int i = 0; i < kDim; ++i) {
        float& sum = sums[h * kDim + i];
        if (!lost) means[row * kRow + h * kDim + i] = sum;
        sum = lost ? 0 : sum * *weight;
      }
    }
  }
  ASSERT_TRUE(ApplyBlockOp(job, {KernelOp::Kind::kMerge, source.view(), target.view()},
                           kPortableIsa, *pool_)
                  .ok());
  const MeansAt at = {reinterpret_cast<std::byte*>(means.data()), kRow * 4, kMaxAt * 4,
                      kWeightAt * 4};
  const absl::StatusOr<OpArgs> args = MakeMeansArgs(job, source.block, at, emulated.view());
  ASSERT_TRUE(args.ok()) << args.status();
  GlobalMemory memory;
  memory.Add(at.data, static_cast<int64_t>(means.size() * 4), false);
  memory.Add(emulated.bytes.data(), static_cast<int64_t>(emulated.bytes.size()), true);
  EXPECT_EQ(EmulateOp(*args, OpBlocks(*args), &memory), "");
  EXPECT_EQ(target.bytes, emulated.bytes);
}

TEST_P(OpTest, GradientsAreAddedRoundedAndCompleted) {
  OwnedBlock dq = Make(BlockKind::kDq, 0, 9, 0, 3), more = Make(BlockKind::kDq, 2, 20, 1, 3);
  OwnedBlock dkv = Make(BlockKind::kDkv, 0, 9, 0, 3), rest = Make(BlockKind::kDkv, 2, 20, 1, 2);
  OwnedBlock dq_out = Make(BlockKind::kDqOut, 0, 9, 0, 3);
  OwnedBlock dkv_out = Make(BlockKind::kDkvOut, 1, 9, 0, 3);
  OwnedBlock q = Make(BlockKind::kQGrad, 0, 9, 0, 3), out = Make(BlockKind::kOut, 0, 9, 0, 3);
  OwnedBlock d_sink = Make(BlockKind::kDSinkOut, 0, 9, 0, 3);
  Check(KernelOp::Kind::kAdd, more, dq);
  Check(KernelOp::Kind::kAdd, rest, dkv);
  Check(KernelOp::Kind::kFinish, dq, dq_out);
  Check(KernelOp::Kind::kFinish, dkv, dkv_out);
  Check(KernelOp::Kind::kIdentity, dkv, dkv);
  Check(KernelOp::Kind::kDelta, out, q, 1e-5f);
  Check(KernelOp::Kind::kSink, q, d_sink, 1e-5f);
}

TEST_P(OpTest, GradientsTakeARestOfTheLseAndADOutInFp32) {
  spec_.operation = Operation::kGradients;
  spec_.outputs.max_logit = false;
  spec_.outputs.lse_rest = true;
  spec_.out_dtype = spec_.gradients.d_out_dtype = DataType::kFp32;
  OwnedBlock q = Make(BlockKind::kQGrad, 0, 9, 0, 3),
             d_sink = Make(BlockKind::kDSinkOut, 0, 9, 0, 3);
  OwnedBlock given = Make(BlockKind::kDq, 0, 9, 0, 3);  // fp32 numbers.
  OwnedBlock out(BlockLayout(spec_), q.block);
  out.block.kind = BlockKind::kOut;
  out = OwnedBlock(BlockLayout(spec_), out.block);
  for (size_t i = 0; i < out.bytes.size(); ++i) out.bytes[i] = given.bytes[i % given.bytes.size()];
  Check(KernelOp::Kind::kDelta, out, q, 1e-5f);
  Check(KernelOp::Kind::kSink, q, d_sink, 1e-5f);
}

TEST_P(OpTest, WrongKindsAreRefused) {
  OwnedBlock q = Make(BlockKind::kQ, 0, 4, 0, 2), partial = Partial(0, 4, 0, 2);
  const BlockLayout layout(spec_);
  KernelJob job;
  job.spec = &spec_;
  job.layout = &layout;
  for (const KernelOp::Kind kind :
       {KernelOp::Kind::kMerge, KernelOp::Kind::kAdd, KernelOp::Kind::kFinish,
        KernelOp::Kind::kIdentity, KernelOp::Kind::kRound})
    EXPECT_EQ(kernel_->Apply(job, {kind, partial.view(), q.view()}).code(),
              absl::StatusCode::kInternal);
}

INSTANTIATE_TEST_SUITE_P(Types, OpTest,
                         testing::Values(DataType::kFp32, DataType::kFp16, DataType::kBf16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace annulus::cuda
