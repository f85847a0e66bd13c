#ifndef ANNULUS_TESTS_WORKER_KERNEL_KERNEL_CONFORMANCE_H_
#define ANNULUS_TESTS_WORKER_KERNEL_KERNEL_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/reference/from_spec.h"
#include "tests/sanitized.h"
#include "tests/worker/kernel/implementations.h"
#include "tests/worker/kernel/kernel_harness.h"

namespace annulus {

// A conformance suite of AttentionKernel: for the CPU's paths and the fp64 stand-in of the tests
// (not under sanitizers, where only the stand-in itself would be tested); in
// tests/worker/kernel/cuda for the GPU's kernels on an emulator; and in tests/gpu on a GPU. Files
// that use it call INSTANTIATE_TEST_SUITE_P over KernelNames().
class KernelConformance : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    kernel_ = MakeKernel(GetParam(), /*threads=*/2);
    if (kernel_ == nullptr) GTEST_SKIP() << "this machine lacks " << GetParam();
  }

  std::unique_ptr<AttentionKernel> kernel_;
};

// True if only some of the cases that differ in numbers run: a few are enough for sanitizers, and
// some kernels are slow.
inline bool RunsASample() { return kSanitized || KernelsAreSlow(); }
inline int Sampled(int cases) { return RunsASample() ? (cases + 3) / 4 : cases; }

inline AttentionSpec Spec(DataType dtype, int32_t q_heads, int32_t kv_heads, int32_t dim) {
  AttentionSpec spec;
  spec.dtype = dtype;
  spec.q_heads = q_heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = dim;
  return spec;
}

inline Sequence Rows(int64_t q_len, int64_t kv_len) {
  Sequence sequence;
  sequence.q_len = q_len;
  sequence.kv_len = kv_len;
  return sequence;
}

inline Mask Causal() {
  Mask mask;
  mask.causal = true;
  return mask;
}

inline reference::Input Normal(const AttentionSpec& spec, uint64_t seed, double deviation = 1) {
  reference::Input input = reference::InputOf(spec);
  FillNormal(seed, reference::PrecisionOf(spec.dtype), deviation, &input);
  return input;
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_KERNEL_CONFORMANCE_H_
