// Few query rows over many keys: the split changes results only by rounding.
#include "worker/kernel/cuda/launch/key_split.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"
#include "tests/worker/kernel/kernel_conformance.h"
#include "tests/worker/kernel/kernel_harness.h"

namespace annulus::cuda {
namespace {

AttentionSpec Decoding(DataType dtype, int64_t keys) {
  AttentionSpec spec = Spec(dtype, 4, 2, 16);
  spec.sequences = {Rows(2, keys)};
  spec.masks = {Causal()};
  return spec;
}

KvSplit Split(const AttentionSpec& spec, const Cuts& cuts, int64_t partial_bytes = 1 << 20,
              bool hopper = false) {
  KernelHarness harness(spec, reference::InputOf(spec), cuts);
  return SplitKeys(harness.job(), harness.Tasks(), hopper, partial_bytes);
}

TEST(KeySplitTest, ChunksAreOfAThousandKeysAtLeastAndFitTheirMemory) {
  AttentionSpec spec = Decoding(DataType::kBf16, 10240);
  EXPECT_EQ(Split(spec, {}).chunks, 10);
  const int64_t partial = BlockLayout(spec).BlockBytes(Split(spec, {}).partial);
  EXPECT_EQ(Split(spec, {}, 3 * partial).chunks, 4);
  EXPECT_EQ(Split(spec, {}, partial - 1).chunks, 0);
  spec.sequences = {Rows(2, 1792)};
  EXPECT_EQ(Split(spec, {}).chunks, 0);
}

TEST(KeySplitTest, EnoughBlocksStayWhole) {
  AttentionSpec spec = Decoding(DataType::kBf16, 10240);
  spec.sequences = {Rows(32 * 65, 10240)};  // 65 tiles of two key/value heads.
  EXPECT_EQ(Split(spec, {}).chunks, 0);
  spec.sequences = {Rows(32 * 20, 10240)};
  EXPECT_EQ(Split(spec, {}).chunks, 6);
}

// Its tiles have 128 slots, and a multiprocessor has room for one block.
TEST(KeySplitTest, TheKernelForHopperNeedsFewerBlocks) {
  AttentionSpec spec = Decoding(DataType::kBf16, 10240);
  EXPECT_EQ(Split(spec, {}, 1 << 20, /*hopper=*/true).chunks, 10);
  spec.sequences = {Rows(64 * 20, 10240)};  // 20 of its tiles of two key/value heads.
  EXPECT_EQ(Split(spec, {}, 1 << 20, /*hopper=*/true).chunks, 3);
  EXPECT_EQ(Split(spec, {}, 1 << 20, /*hopper=*/false).chunks, 3);
  spec.sequences = {Rows(641, 10240)};  // 11 of its tiles, 21 of the portable kernel's.
  EXPECT_EQ(Split(spec, {}, 1 << 20, /*hopper=*/true).chunks, 5);
  EXPECT_EQ(Split(spec, {}, 1 << 20, /*hopper=*/false).chunks, 6);
  spec.sequences = {Rows(64 * 33, 10240)};
  EXPECT_EQ(Split(spec, {}, 1 << 20, /*hopper=*/true).chunks, 0);
}

TEST(KeySplitTest, DeterministicJobsAndSeveralAccumulatorsStayWhole) {
  AttentionSpec spec = Decoding(DataType::kBf16, 10240);
  Cuts two;
  two.q_heads = {2};
  EXPECT_EQ(Split(spec, two).chunks, 0);
  spec.deterministic = true;
  EXPECT_EQ(Split(spec, {}).chunks, 0);
}

// Its partials have the alignment of the call's accumulator.
TEST(KeySplitTest, SplitCallsOfTheKernelForHopperAreWithinTheBudget) {
  const std::unique_ptr<AttentionKernel> kernel = MakeEmulatedHopperKernel(64 << 10, /*seed=*/7);
  const AttentionSpec spec = Decoding(DataType::kBf16, 5000);
  ASSERT_GT(Split(spec, {}, 16 << 10, /*hopper=*/true).chunks, 1);
  EXPECT_TRUE(WithinBudget(*kernel, spec, Normal(spec, 8), {}));
}

TEST(KeySplitTest, SplitCallsAreWithinTheBudget) {
  const std::unique_ptr<AttentionKernel> kernel = MakeEmulatedKernel(64 << 10);
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    AttentionSpec spec = Decoding(dtype, 5000);
    spec.masks[0].window_left = 2000;  // Chunks that the rows do not see, or see in part.
    Cuts cuts;
    cuts.keys = {1500};
    cuts.key_shards = 2;
    ASSERT_GT(Split(spec, cuts, 16 << 10).chunks, 1);
    EXPECT_TRUE(WithinBudget(*kernel, spec, Normal(spec, 3), cuts)) << DataTypeName(dtype);
  }
}

// The accumulator has the results of earlier calls. Other rows and heads keep their bits.
TEST(KeySplitTest, TheStateOfEarlierCallsGoesOn) {
  const std::unique_ptr<AttentionKernel> kernel = MakeEmulatedKernel(64 << 10);
  AttentionSpec spec = Decoding(DataType::kFp32, 6000);
  spec.modifiers.sinks = {1, 0, -1, 2};
  Cuts cuts;
  cuts.keys = {2500};
  cuts.call_per_task = true;
  EXPECT_TRUE(WithinBudget(*kernel, spec, Normal(spec, 4), cuts));
}

TEST(KeySplitTest, ADeterministicJobHasTheBitsOfOneFold) {
  const std::unique_ptr<AttentionKernel> kernel = MakeEmulatedKernel(64 << 10);
  AttentionSpec spec = Decoding(DataType::kBf16, 4096);
  spec.deterministic = true;
  const reference::Input input = Normal(spec, 5);
  Cuts cuts;
  cuts.keys = {1024, 3072};
  cuts.call_per_task = true;
  KernelHarness whole(spec, input, {}), cut(spec, input, cuts);
  ASSERT_TRUE(whole.Run(*kernel).ok());
  ASSERT_TRUE(cut.Run(*kernel).ok());
  EXPECT_EQ(whole.state(), cut.state());
}

}  // namespace
}  // namespace annulus::cuda
