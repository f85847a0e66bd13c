// Tests of the CUDA kernel's gradients in addition to the conformance suites.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "tests/worker/data_plane/copy_probe.h"
#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"
#include "tests/worker/kernel/cuda/many_sequences.h"
#include "tests/worker/kernel/gradient_harness.h"
#include "tests/worker/kernel/kernel_conformance.h"
#include "tests/worker/kernel/pair_cases.h"
#include "worker/backend/self_check.h"
#include "worker/kernel/cpu/cpu_kernel.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus::cuda {
namespace {

using reference::Input;
using reference::Upstream;

Upstream UpstreamOf(const AttentionSpec& spec, const Input& input) {
  return reference::MakeUpstream(input, reference::PrecisionOf(spec.dtype),
                                 reference::PrecisionOf(spec.output_dtype()), true, 5);
}

// The bits of a job's accumulators, with these cuts and tables of at most `max_tables` bytes.
std::vector<std::byte> StateOf(const AttentionSpec& spec, const Input& input, const Cuts& cuts,
                               int64_t max_tables, double max_work = kMaxLaunchWork,
                               const KernelControl& control = {}) {
  GradientHarness harness(spec, input, UpstreamOf(spec, input), cuts);
  const absl::Status status = harness.Run(*MakeEmulatedKernel(max_tables, max_work), control);
  EXPECT_TRUE(status.ok()) << status;
  return harness.state();
}

// The check that a worker with a GPU runs at its start.
TEST(CudaGradientsTest, PassesTheCheckOfAWorkersStart) {
  CpuKernel::Options portable;
  portable.isa = &kPortableIsa;
  const std::unique_ptr<CpuKernel> yardstick = *CpuKernel::Create(portable);
  CopyProbe device([] {});  // Like a GPU, it does not read tensors in staging.
  absl::Status status = CheckKernel(*MakeEmulatedKernel(64 << 10), *yardstick, &device);
  EXPECT_TRUE(status.ok()) << status;
  status = CheckKernelsByShape(*MakeEmulatedKernel(64 << 10), *yardstick, &device);
  EXPECT_TRUE(status.ok()) << status;
  status =
      CheckKernelsByShape(*MakeEmulatedHopperKernel(64 << 10, /*seed=*/3), *yardstick, &device);
  EXPECT_TRUE(status.ok()) << status;
  status = CheckNonfinite(*MakeEmulatedKernel(64 << 10), *yardstick, &device);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(CudaGradientsTest, LaunchesDoNotChangeABit) {
  AttentionSpec spec = Spec(DataType::kFp16, 6, 2, 24);
  spec.sequences = {Rows(150, 300)};
  spec.masks = {Causal()};
  spec.modifiers.soft_cap = 2;
  spec.dropout = Dropout{0.2, 9};
  Cuts cuts;
  cuts.keys = {70, 133};
  cuts.key_shards = 2;
  cuts.striped = true;
  const Input input = Normal(spec, 7);
  EXPECT_EQ(StateOf(spec, input, cuts, 1 << 20), StateOf(spec, input, cuts, 7 << 10));
}

// Few rows per launch, with their keys in several launches. A bias that heads share is processed in
// turns.
TEST(CudaGradientsTest, LaunchesOfLittleWorkDoNotChangeABit) {
  for (const bool bias : {false, true}) {
    AttentionSpec spec = Spec(bias ? DataType::kBf16 : DataType::kFp32, 6, 2, 16);
    spec.sequences = {Rows(100, 800)};
    spec.masks = {Causal()};
    if (bias) {
      spec.modifiers.bias = Bias{DataType::kFp32, 1};
      spec.operation = Operation::kGradients;
      spec.gradients.d_bias = true;
    }
    const Input input = WithPairs(spec, 29);
    std::atomic<int64_t> of_one = 0, of_many = 0;
    const std::vector<std::byte> one =
        StateOf(spec, input, {}, 1 << 20, kMaxLaunchWork, {nullptr, &of_one});
    EXPECT_TRUE(one == StateOf(spec, input, {}, 1 << 20, /*max_work=*/1e6, {nullptr, &of_many}))
        << bias;
    EXPECT_GT(of_many, of_one);
  }
}

TEST(CudaGradientsTest, ManySequencesAreWithinTheBudgetHoweverTheyAreCut) {
  const AttentionSpec spec = ManySequencesSpec(DataType::kFp16);
  const Input input = WithPairs(spec, 19);
  Cuts cuts;
  cuts.q_rows = {64, 192};
  EXPECT_TRUE(GradientsWithinBudget(*MakeEmulatedKernel(1 << 20), spec, input,
                                    UpstreamOf(spec, input), cuts));
  EXPECT_TRUE(StateOf(spec, input, cuts, 1 << 20) == StateOf(spec, input, cuts, kFewTables));
}

// The basis of `deterministic`: shards and tasks of whole tiles of 256 rows, in order, and turns of
// heads with separate masks.
TEST(CudaGradientsTest, CutsBetweenGlobalTilesDoNotChangeABit) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    AttentionSpec spec = Spec(dtype, 3, 1, 16);
    spec.sequences = {Rows(300, 600)};
    spec.masks = {Causal()};
    spec.masks[0].window_left = 300;
    const Input input = Normal(spec, 13);
    Cuts cuts;
    cuts.q_rows = {256};
    cuts.keys = {256, 512};
    cuts.call_per_task = true;
    EXPECT_EQ(StateOf(spec, input, {}, 1 << 20), StateOf(spec, input, cuts, 1 << 20))
        << DataTypeName(dtype);
  }
}

// Three heads of a key/value head: rows are in two tiles of 64 slots.
TEST(CudaGradientsTest, HeadsThatShareABiasTakeTurns) {
  AttentionSpec spec = Spec(DataType::kBf16, 6, 2, 16);
  spec.sequences = {Rows(90, 100)};
  spec.modifiers.bias = Bias{DataType::kFp32, 1};
  spec.operation = Operation::kGradients;
  spec.gradients.d_bias = true;
  const Input input = WithPairs(spec, 55);
  const std::unique_ptr<AttentionKernel> kernel = MakeEmulatedKernel(64 << 10);
  EXPECT_TRUE(GradientsWithinBudget(*kernel, spec, input, UpstreamOf(spec, input), {}));
}

TEST(CudaGradientsTest, LargeGroupsAndWideHeads) {
  AttentionSpec spec = Spec(DataType::kFp16, 71, 1, 200);
  spec.head_dim_v = 136;
  spec.sequences = {Rows(3, 70)};
  spec.masks = {Causal()};
  const Input input = Normal(spec, 3);
  const std::unique_ptr<AttentionKernel> kernel = MakeEmulatedKernel(64 << 10);
  EXPECT_TRUE(GradientsWithinBudget(*kernel, spec, input, UpstreamOf(spec, input), {}));
}

// A row sees one of two keys with infinities in one tile. The other key must not affect it.
TEST(CudaGradientsTest, NonfiniteKeysReachThoseThatSeeThem) {
  AttentionSpec spec = Spec(DataType::kBf16, 1, 1, 16);
  spec.sequences = {Rows(40, 40)};
  spec.masks = {Causal()};
  Input input = Normal(spec, 21);
  const Upstream up = UpstreamOf(spec, input);
  GradientHarness clean(spec, input, up, {});
  ASSERT_TRUE(clean.Run(*MakeEmulatedKernel(64 << 10)).ok());
  input.k[20 * 16 + 3] = input.k[30 * 16 + 5] = HUGE_VAL;
  GradientHarness nonfinite(spec, input, up, {});
  ASSERT_TRUE(nonfinite.Run(*MakeEmulatedKernel(64 << 10)).ok());
  const std::vector<float> a = clean.answer().dq, b = nonfinite.answer().dq;
  for (int64_t row = 0; row < 40; ++row) {
    bool sound = true;
    for (int64_t d = 0; d < 16; ++d) sound &= std::isfinite(b[row * 16 + d]);
    EXPECT_EQ(sound, row < 20) << row;
    EXPECT_TRUE(row >= 20 || a[row * 16] == b[row * 16]) << row;
    // Row 25 sees infinity in one column of one key: its score is infinite, or its contribution is
    // 0.
    if (row >= 30 || row < 20) continue;
    EXPECT_FALSE(std::isfinite(b[row * 16 + 3])) << row;
  }
}

}  // namespace
}  // namespace annulus::cuda
