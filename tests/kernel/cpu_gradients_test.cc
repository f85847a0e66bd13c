// What the conformance suites do not ask of the CPU kernel's gradients.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "tests/kernel/gradient_harness.h"
#include "tests/kernel/kernel_conformance.h"

namespace annulus {
namespace {

using reference::Input;
using reference::Upstream;

TEST(CpuGradients, TheBitsDoNotDependOnThreads) {
  AttentionSpec spec = Spec(DataType::kBf16, 4, 2, 40);
  spec.sequences = {Rows(700, 900)};
  spec.masks = {Causal()};
  Cuts cuts;
  cuts.keys = {300};
  cuts.q_rows = {97};
  cuts.key_shards = 2;
  cuts.striped = true;
  const Input input = Normal(spec, 43);
  // What they are does not matter here, and the exact ones take long.
  Upstream up;
  up.out = up.d_out = Normal(spec, 44).q;
  up.lse.assign(700 * 4, 3.0);
  for (const char* path : {"amx", "avx512bf16", "avx512", "avx2", "portable"}) {
    if (MakeKernel(path, 1) == nullptr) continue;
    SCOPED_TRACE(path);
    std::vector<std::byte> first;
    for (const int threads : {1, 2, 3, 5}) {
      GradientHarness harness(spec, input, up, cuts);
      ASSERT_TRUE(harness.Run(*MakeKernel(path, threads)).ok());
      if (threads == 1) first = harness.state();
      EXPECT_EQ(harness.state(), first) << threads;
    }
  }
}

}  // namespace
}  // namespace annulus
