// Large scores, and the CPU's floating-point mode for small numbers.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <vector>

#include "tests/worker/kernel/gradient_harness.h"
#include "tests/worker/kernel/implementations.h"
#include "tests/worker/kernel/kernel_conformance.h"

namespace annulus {
namespace {

using reference::Input;

reference::Upstream Upstreams(const AttentionSpec& spec, const Input& input, uint64_t seed) {
  return reference::MakeUpstream(input, reference::PrecisionOf(spec.dtype),
                                 reference::PrecisionOf(spec.output_dtype()),
                                 /*with_d_lse=*/true, seed);
}

// Scores that fp32 represents exactly, as for forward passes.
TEST_P(KernelConformance, GradientsOfLargeLogitsStayWithinTheBudget) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    for (const double scale : {40.0 / 8, 1280.0}) {
      AttentionSpec spec = Spec(dtype, 2, 2, 64);
      spec.sequences = {Rows(40, 300)};
      spec.scale = scale;
      spec.masks = {Causal()};
      Input input = Normal(spec, 9);
      for (std::vector<double>* tensor : {&input.q, &input.k})
        for (double& value : *tensor) value = std::round(value * 8) / 8;
      ASSERT_TRUE(GradientsWithinBudget(*kernel_, spec, input, Upstreams(spec, input, 10), {}))
          << scale;
    }
  }
}

TEST_P(KernelConformance, GradientsRestoreTheCallersFloatingPointMode) {
  const unsigned before = _mm_getcsr();
  AttentionSpec spec = Spec(DataType::kFp32, 2, 1, 40);
  spec.sequences = {Rows(150, 300)};
  const Input input = Normal(spec, 11);
  const reference::Upstream upstream = Upstreams(spec, input, 12);
  for (const unsigned mode : {before & ~0x8040u, before | 0x8040u}) {
    _mm_setcsr(mode);
    // The check uses this mode too, so its result does not matter.
    (void)GradientsWithinBudget(*kernel_, spec, input, upstream, {});
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(after & 0x8040u, mode & 0x8040u);
  }
}

// Denormals are flushed only inside a call.
TEST_P(KernelConformance, ForwardPassesRestoreTheCallersFloatingPointMode) {
  const unsigned before = _mm_getcsr();
  for (const int64_t rows : {150, 1}) {  // Tiles, and few rows, which have separate code.
    AttentionSpec spec = Spec(DataType::kFp32, 2, 1, 40);
    spec.sequences = {Rows(rows, 300)};
    const Input input = Normal(spec, 8);
    for (const unsigned mode : {before & ~0x8040u, before | 0x8040u}) {
      KernelHarness harness(spec, input, {});
      _mm_setcsr(mode);
      const absl::Status status = harness.Run(*kernel_);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(before);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(after & 0x8040u, mode & 0x8040u) << rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelConformance, testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace annulus
