#include <gtest/gtest.h>

#include <string>

#include "tests/kernel/cuda/ptxas_report.h"
#include "worker/kernel/cuda/hopper_config.h"

namespace annulus::cuda {
namespace {

// Its registers are dealt out anew at run time, and with fewer at the start the last group would
// wait for its own forever.
TEST(HopperPtxasTest, KernelsSpillNextToNothing) {
  for (const std::string source : {"hopper_bf16", "hopper_fp16"}) {
    int kernels = 0;
    for (const auto& [key, report] : ReadPtxasReports(source)) {
      if (key.first != "sm_90a") continue;
      ++kernels;
      EXPECT_LE(report.spilled, 64) << key.second;  // None of it beside products (sass_test).
      EXPECT_EQ(report.registers, kStartRegisters) << key.second;
    }
    EXPECT_EQ(kernels, 3) << source;
  }
}

}  // namespace
}  // namespace annulus::cuda
