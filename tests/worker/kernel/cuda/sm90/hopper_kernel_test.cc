// The source of the sm_90a kernel on the emulator: tests in addition to the conformance suites.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/reference/from_spec.h"
#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"
#include "tests/worker/kernel/cuda/sm90/hopper_jobs.h"
#include "tests/worker/kernel/kernel_harness.h"
#include "worker/kernel/cuda/launch/hopper_plan.h"

namespace annulus::cuda {
namespace {

reference::Input Normal(const AttentionSpec& spec, uint64_t seed) {
  reference::Input input = reference::InputOf(spec);
  FillNormal(seed, reference::PrecisionOf(spec.dtype), 1, &input);
  return input;
}

bool Served(KernelHarness& harness) {
  const std::vector<KernelTask> tasks = harness.Tasks();
  return HopperServes(harness.job(), tasks);
}

// Expects that this kernel serves the job and that its answer is within the budget.
void Check(const AttentionSpec& spec, const reference::Input& input, const Cuts& cuts,
           uint64_t seed) {
  KernelHarness harness(spec, input, cuts);
  ASSERT_TRUE(Served(harness)) << Describe(spec, cuts);
  const absl::Status status = harness.Run(*MakeEmulatedHopperKernel(64 << 10, seed));
  ASSERT_TRUE(status.ok()) << status << "\n" << Describe(spec, cuts);
  EXPECT_TRUE(reference::CheckWithinBudget(input, harness.answer())) << Describe(spec, cuts);
}

TEST(HopperKernelTest, EveryTypeAndDimension) {
  for (const DataType dtype : {DataType::kBf16, DataType::kFp16}) {
    for (const int32_t dim : {64, 128, 256}) {
      const AttentionSpec spec = Causal(Spec(dtype, 2, 1, dim, 70, 150));
      Check(spec, Normal(spec, dim), {}, dim);
    }
  }
}

TEST(HopperKernelTest, RandomJobsAreWithinTheErrorBudget) {
  for (uint64_t seed = 20261122; seed < 20261122 + 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomJob job(seed);
    Check(job.spec, Normal(job.spec, seed), job.cuts, seed);
    if (HasFailure()) return;
  }
}

TEST(HopperKernelTest, LengthsAtTheEdgesOfTiles) {
  for (const int64_t rows : {1, 63, 64, 65, 127, 128, 129}) {
    for (const int64_t keys : {1, 127, 128, 129, 257}) {
      const AttentionSpec spec = Causal(Spec(DataType::kBf16, 1, 1, 16, rows, keys));
      Check(spec, Normal(spec, rows * 1000 + keys), {}, rows + keys);
      if (HasFailure()) return;
    }
  }
}

// Tensor cores truncate every sum in the same direction; these errors must not add up over many
// keys.
TEST(HopperKernelTest, LongRowsOfOneSignAreWithinTheBudget) {
  AttentionSpec spec = Spec(DataType::kBf16, 1, 1, 16, 3, 20000);
  spec.out_dtype = DataType::kFp32;
  reference::Input input = Normal(spec, 5);
  for (double& value : input.v) value = 1 + (value > 0 ? 0.25 : 0);
  Check(spec, input, {}, 1);
}

// Expects equal results of `seeds` emulations, from `seed` on.
void ExpectOneResult(const AttentionSpec& spec, const reference::Input& input, const Cuts& cuts,
                     int64_t memory, uint64_t seed, int seeds) {
  KernelHarness first(spec, input, cuts);
  ASSERT_TRUE(first.Run(*MakeEmulatedHopperKernel(memory, seed)).ok());
  EXPECT_TRUE(reference::CheckWithinBudget(input, first.answer()));
  for (const uint64_t end = seed + seeds; ++seed < end;) {
    KernelHarness other(spec, input, cuts);
    const absl::Status status = other.Run(*MakeEmulatedHopperKernel(memory, seed));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(first.state(), other.state()) << "seed " << seed;
  }
}

// For all times at which copies and products complete.
TEST(HopperKernelTest, WhatIsLateChangesNoBit) {
  const AttentionSpec spec = Causal(Spec(DataType::kBf16, 2, 1, 128, 70, 500));
  Cuts cuts;
  cuts.keys = {300};
  ExpectOneResult(spec, Normal(spec, 3), cuts, 64 << 10, /*seed=*/1, /*seeds=*/4);
}

// Seeds give launches one, two or three blocks, each of which takes more or fewer items.
TEST(HopperKernelTest, WhoTakesAnItemChangesNoBit) {
  const AttentionSpec spec = Causal(Spec(DataType::kBf16, 4, 2, 64, 300, 300));
  Cuts cuts;
  cuts.keys = {170};
  ExpectOneResult(spec, Normal(spec, 4), cuts, 1 << 20, /*seed=*/3, /*seeds=*/6);
}

// Up to rounding: in memory a state uses powers of e, and during computation powers of 2.
void ExpectNear(const std::vector<std::byte>& state, const std::vector<std::byte>& other) {
  ASSERT_EQ(state.size(), other.size());
  for (size_t at = 0; at < state.size(); at += sizeof(float)) {
    float a = 0, b = 0;
    std::memcpy(&a, &state[at], sizeof(a));
    std::memcpy(&b, &other[at], sizeof(b));
    ASSERT_NEAR(a, b, 1e-6f * std::max(1.0f, std::abs(a))) << "at byte " << at;
  }
}

TEST(HopperKernelTest, LaunchesDoNotChangeABitAndCutsBetweenTilesARounding) {
  const AttentionSpec spec = Causal(Spec(DataType::kFp16, 3, 1, 64, 150, 600));
  const reference::Input input = Normal(spec, 7);
  Cuts cuts;
  cuts.keys = {128, 384};
  cuts.call_per_task = true;
  KernelHarness whole(spec, input, {}), many(spec, input, {}), cut(spec, input, cuts);
  ASSERT_TRUE(whole.Run(*MakeEmulatedHopperKernel(1 << 20, 1)).ok());
  ASSERT_TRUE(many.Run(*MakeEmulatedHopperKernel(6 << 10, 2)).ok());
  ASSERT_TRUE(cut.Run(*MakeEmulatedHopperKernel(1 << 20, 3)).ok());
  EXPECT_EQ(whole.state(), many.state());
  ExpectNear(whole.state(), cut.state());
}

// NaN and infinities of keys affect only the rows that see them.
TEST(HopperKernelTest, ValuesThatAreNotFiniteReachThoseWhoSeeThem) {
  const double kInf = std::numeric_limits<double>::infinity();
  for (const DataType dtype : {DataType::kBf16, DataType::kFp16}) {
    for (const int32_t dim : {64, 256}) {
      const AttentionSpec spec = Causal(Spec(dtype, 2, 1, dim, 140, 140));
      reference::Input input = Normal(spec, 9), other = input;
      const auto set = [&](int64_t key, int column, double value) {
        input.v[key * dim + column] = value;
      };
      set(70, 5, std::nan(""));
      set(100, dim - 1, kInf);
      KernelHarness with(spec, input, {}), without(spec, other, {});
      ASSERT_TRUE(with.Run(*MakeEmulatedHopperKernel(64 << 10, 1)).ok());
      ASSERT_TRUE(without.Run(*MakeEmulatedHopperKernel(64 << 10, 2)).ok());
      const reference::Answer a = with.answer(), b = without.answer();
      for (int64_t row = 0; row < 140; ++row) {
        for (int column = 0; column < dim; ++column) {
          const float value = a.out[row * 2 * dim + column];
          if (column == 5 && row >= 70)
            EXPECT_TRUE(std::isnan(value)) << row;
          else if (column == dim - 1 && row >= 100)
            EXPECT_EQ(value, kInf) << row;
          else
            ASSERT_NEAR(value, b.out[row * 2 * dim + column], 0.02) << row << " " << column;
        }
      }
    }
  }
}

// A window far from the first tokens, which stay visible: tiles between them are skipped.
TEST(HopperKernelTest, SpansFarApartAreWithinTheBudget) {
  AttentionSpec spec = Causal(Spec(DataType::kBf16, 1, 1, 16, 300, 1200));
  spec.masks[0].window_left = 40;
  spec.masks[0].always_visible = 3;
  Check(spec, Normal(spec, 11), {}, 4);
}

// The portable kernel serves all other jobs, in the same calls.
TEST(HopperKernelTest, OthersAreServedToo) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    AttentionSpec spec = Causal(Spec(dtype, 2, 1, 24, 30, 50));
    if (dtype == DataType::kBf16) spec.modifiers.soft_cap = 2;
    const reference::Input input = Normal(spec, 13);
    KernelHarness harness(spec, input, {});
    EXPECT_FALSE(Served(harness));
    ASSERT_TRUE(harness.Run(*MakeEmulatedHopperKernel(64 << 10, 1)).ok());
    EXPECT_TRUE(reference::CheckWithinBudget(input, harness.answer()));
  }
}

}  // namespace
}  // namespace annulus::cuda
