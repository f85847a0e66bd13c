#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_PLACED_GRADIENTS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_PLACED_GRADIENTS_H_

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/reference/from_spec.h"
#include "tests/worker/kernel/gradient_harness.h"
#include "worker/kernel/cuda/sm80/gradient_launch.h"
#include "worker/kernel/visibility.h"

namespace annulus::cuda {

// A gradients job in memory with arbitrary numbers, for tests of its launches.
class PlacedGradients : public testing::Test {
 protected:
  void Place(const AttentionSpec& spec, const Cuts& cuts) {
    reference::Input input = reference::InputOf(spec);
    input.bias = [](int64_t, int32_t, int64_t, int64_t) { return 0.0; };
    input.bit = [](int64_t, int32_t, int64_t, int64_t) { return true; };
    reference::Upstream up;
    up.out = up.d_out = input.q;
    up.lse.assign(spec.q_rows() * spec.q_heads, 0.0);
    harness_ = std::make_unique<GradientHarness>(spec, input, up, cuts);
    job_ = harness_->job();
    tasks_ = harness_->Tasks();
    visible_ = std::make_unique<CallVisibility>(*job_.mask, tasks_, *pool_);
    seen_ = std::make_unique<VisibleRows>(*job_.mask, tasks_, *pool_);
  }
  std::vector<LaunchPieces> Cut(int64_t max_bytes) {
    auto cut = CutGradients(job_, tasks_, *seen_, max_bytes);
    EXPECT_TRUE(cut.ok()) << cut.status();
    return *cut;
  }

  const std::unique_ptr<ComputePool> pool_ = *ComputePool::Create(1);
  std::unique_ptr<GradientHarness> harness_;
  KernelJob job_;
  std::vector<KernelTask> tasks_;
  std::unique_ptr<CallVisibility> visible_;  // Visibility for the checks.
  std::unique_ptr<VisibleRows> seen_;
  PlanMemory memory_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_PLACED_GRADIENTS_H_
