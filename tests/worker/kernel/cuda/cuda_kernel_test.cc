// Tests of the CUDA kernel in addition to the conformance suites.
#include "worker/kernel/cuda/cuda_kernel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "tests/reference/from_spec.h"
#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"
#include "tests/worker/kernel/cuda/many_sequences.h"
#include "tests/worker/kernel/kernel_harness.h"
#include "tests/worker/kernel/pair_cases.h"

namespace annulus::cuda {
namespace {

AttentionSpec Spec(DataType dtype, int32_t q_heads, int32_t kv_heads, int32_t dim, int64_t rows,
                   int64_t keys) {
  AttentionSpec spec;
  spec.dtype = dtype;
  spec.q_heads = q_heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = dim;
  Sequence sequence;
  sequence.q_len = rows;
  sequence.kv_len = keys;
  spec.sequences = {sequence};
  return spec;
}

// Values of one sign, and outputs with fp32 precision. Tensor cores truncate every sum in the same
// direction; these errors must not add up over many keys.
TEST(CudaKernelTest, LongRowsOfOneSignAreWithinTheBudget) {
  const std::unique_ptr<AttentionKernel> kernel = MakeEmulatedKernel(1 << 20);
  for (const DataType dtype : {DataType::kBf16, DataType::kFp16}) {
    AttentionSpec spec = Spec(dtype, 1, 1, 16, 3, 20000);
    spec.out_dtype = DataType::kFp32;
    reference::Input input = Normal(spec, 5);
    for (double& value : input.v) value = 1 + (value > 0 ? 0.25 : 0);
    EXPECT_TRUE(WithinBudget(*kernel, spec, input, {}));
  }
}

TEST(CudaKernelTest, LaunchesDoNotChangeABit) {
  AttentionSpec spec = Spec(DataType::kFp16, 6, 2, 24, 150, 300);
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  spec.modifiers.soft_cap = 2;
  spec.dropout = Dropout{0.2, 9};
  const reference::Input input = Normal(spec, 7);
  Cuts cuts;
  cuts.keys = {70, 133};
  cuts.key_shards = 2;
  cuts.striped = true;
  KernelHarness one(spec, input, cuts), many(spec, input, cuts);
  ASSERT_TRUE(one.Run(*MakeEmulatedKernel(1 << 20)).ok());
  ASSERT_TRUE(many.Run(*MakeEmulatedKernel(6 << 10)).ok());
  EXPECT_EQ(one.state(), many.state());
}

// Few rows per launch, with their keys in several launches.
TEST(CudaKernelTest, LaunchesOfLittleWorkDoNotChangeABit) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    AttentionSpec spec = Spec(dtype, 2, 1, 16, 150, 1700);
    spec.masks.resize(1);
    spec.masks[0].causal = true;
    const reference::Input input = Normal(spec, 23);
    KernelHarness one(spec, input, {}), many(spec, input, {});
    std::atomic<int64_t> of_one = 0, of_many = 0;
    ASSERT_TRUE(one.Run(*MakeEmulatedKernel(1 << 20), {nullptr, &of_one}).ok());
    ASSERT_TRUE(many.Run(*MakeEmulatedKernel(1 << 20, /*max_work=*/1e6), {nullptr, &of_many}).ok());
    EXPECT_TRUE(one.state() == many.state()) << DataTypeName(dtype);
    EXPECT_EQ(of_one, 5);    // Thread blocks of 64 slots each.
    EXPECT_EQ(of_many, 15);  // Three parts of the keys.
  }
}

// Tables of all sequences and heads do not fit one launch, so each has those of its rows. Heads
// have two masks, which align rows differently; one has bits.
TEST(CudaKernelTest, ManySequencesAreWithinTheBudgetHoweverTheyAreCut) {
  const AttentionSpec spec = ManySequencesSpec(DataType::kBf16);
  const reference::Input input = WithPairs(spec, 17);
  for (const bool striped : {false, true}) {
    Cuts cuts;
    cuts.q_rows = {70, 133};
    cuts.key_shards = striped ? 2 : 1;
    cuts.striped = striped;
    KernelHarness one(spec, input, cuts), many(spec, input, cuts);
    ASSERT_TRUE(one.Run(*MakeEmulatedKernel(1 << 20)).ok());
    EXPECT_TRUE(reference::CheckWithinBudget(input, one.answer()));
    const absl::Status cut = many.Run(*MakeEmulatedKernel(kFewTables));
    ASSERT_TRUE(cut.ok()) << cut;
    EXPECT_TRUE(one.state() == many.state()) << striped;
  }
}

TEST(CudaKernelTest, CutsBetweenTilesOfKeysDoNotChangeABit) {
  const std::unique_ptr<AttentionKernel> kernel = MakeEmulatedKernel(64 << 10);
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    AttentionSpec spec = Spec(dtype, 2, 1, 40, 70, 400);
    spec.masks.resize(1);
    spec.masks[0].causal = true;
    const reference::Input input = Normal(spec, 13);
    Cuts cuts;
    cuts.keys = {64, 192, 320};
    cuts.call_per_task = true;
    KernelHarness whole(spec, input, {}), cut(spec, input, cuts);
    ASSERT_TRUE(whole.Run(*kernel).ok());
    ASSERT_TRUE(cut.Run(*kernel).ok());
    EXPECT_TRUE(whole.state() == cut.state()) << DataTypeName(dtype);
  }
}

TEST(CudaKernelTest, OtherRowsAndHeadsDoNotChangeABit) {
  AttentionSpec spec = Spec(DataType::kBf16, 6, 2, 40, 130, 200);
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  const reference::Input input = Normal(spec, 9);
  Cuts cuts;
  cuts.q_rows = {1, 50, 97};
  cuts.q_heads = {2, 5};
  const std::unique_ptr<AttentionKernel> kernel = MakeEmulatedKernel(64 << 10);
  KernelHarness whole(spec, input, {}), cut(spec, input, cuts);
  ASSERT_TRUE(whole.Run(*kernel).ok());
  ASSERT_TRUE(cut.Run(*kernel).ok());
  EXPECT_EQ(whole.answer().out, cut.answer().out);
  EXPECT_EQ(whole.answer().lse, cut.answer().lse);
}

// A window far from the first tokens, which stay visible: whole tiles between them are skipped.
TEST(CudaKernelTest, SpansFarApartAreWithinTheBudget) {
  AttentionSpec spec = Spec(DataType::kBf16, 1, 1, 16, 700, 700);
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  spec.masks[0].window_left = 40;
  spec.masks[0].always_visible = 3;
  const std::unique_ptr<AttentionKernel> kernel = MakeEmulatedKernel(256 << 10);
  KernelHarness harness(spec, Normal(spec, 11), {});
  ASSERT_TRUE(harness.Run(*kernel).ok());
  EXPECT_TRUE(reference::CheckWithinBudget(Normal(spec, 11), harness.answer()));
}

TEST(CudaKernelTest, ProductsOfSplitNumbersAreRefused) {
  AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 16, 4, 4);
  spec.arithmetic = Arithmetic::kBf16x3;
  KernelHarness harness(spec, Normal(spec, 1), {});
  EXPECT_EQ(harness.Run(*MakeEmulatedKernel(64 << 10)).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace annulus::cuda
