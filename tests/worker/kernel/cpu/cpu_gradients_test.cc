// Tests of the CPU kernel's gradients in addition to the conformance suites.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "tests/worker/kernel/gradient_harness.h"
#include "tests/worker/kernel/kernel_conformance.h"

namespace annulus {
namespace {

using reference::Input;
using reference::Upstream;

// One job, on every path of this CPU.
class CpuGradients : public testing::Test {
 protected:
  CpuGradients() : spec_(Spec(DataType::kBf16, 4, 2, 40)) {
    spec_.sequences = {Rows(700, 900)};
    spec_.masks = {Causal()};
    cuts_.keys = {300};
    cuts_.q_rows = {97};
    cuts_.key_shards = 2;
    cuts_.striped = true;
    input_ = Normal(spec_, 43);
    // Their values do not matter here, and exact ones take long.
    up_.out = up_.d_out = Normal(spec_, 44).q;
    up_.lse.assign(700 * 4, 3.0);
  }

  // Expects the same bits with each of these numbers of threads.
  void ExpectSameBits(const std::vector<int>& threads) {
    for (const char* path : {"amx", "avx512bf16", "avx512", "avx2", "portable"}) {
      if (MakeKernel(path, 1) == nullptr) continue;
      SCOPED_TRACE(path);
      std::vector<std::byte> first;
      for (const int count : threads) {
        GradientHarness harness(spec_, input_, up_, cuts_);
        ASSERT_TRUE(harness.Run(*MakeKernel(path, count)).ok());
        if (first.empty()) first = harness.state();
        EXPECT_EQ(harness.state(), first) << count;
      }
    }
  }

  AttentionSpec spec_;
  Cuts cuts_;
  Input input_;
  Upstream up_;
};

TEST_F(CpuGradients, TheBitsOfADeterministicJobDoNotDependOnThreads) {
  spec_.deterministic = true;
  ExpectSameBits({1, 2, 3, 5});
}

TEST_F(CpuGradients, TheBitsDoNotDependOnWhichThreadComesFirst) { ExpectSameBits({3, 3, 3, 3}); }

}  // namespace
}  // namespace annulus
