#include <gtest/gtest.h>

#include <string>

#include "tests/worker/kernel/cuda/ptxas_report.h"
#include "worker/kernel/cuda/launch/hopper_config.h"

namespace annulus::cuda {
namespace {

// Its registers are redistributed at run time. With fewer at the start, the last group would wait
// for its registers for ever.
TEST(HopperPtxasTest, KernelsSpillNextToNothing) {
  for (const std::string source :
       {"hopper_bf16", "hopper_fp16", "hopper_gradient_bf16", "hopper_gradient_fp16"}) {
    const bool gradients = source.find("gradient") != std::string::npos;
    int kernels = 0;
    for (const auto& [key, report] : ReadPtxasReports(source)) {
      if (key.first != "sm_90a") continue;
      ++kernels;
      // No spills are beside products (sass_test).
      EXPECT_LE(report.spilled, gradients ? 0 : 64) << key.second;
      EXPECT_EQ(report.registers, kStartRegisters) << key.second;
    }
    EXPECT_EQ(kernels, gradients ? 4 : 3) << source;
  }
}

}  // namespace
}  // namespace annulus::cuda
