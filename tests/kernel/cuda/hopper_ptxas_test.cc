#include <gtest/gtest.h>

#include <string>

#include "tests/kernel/cuda/ptxas_report.h"
#include "worker/kernel/cuda/hopper_config.h"

namespace annulus::cuda {
namespace {

// The kernel for Hopper: its registers are dealt out anew at run time, and with fewer at the start
// the last group would wait for its own forever. A dimension of 256 leaves too few for two numbers
// of a task, which are read again outside of the loop over tiles (sass_test).
TEST(HopperPtxasTest, KernelsSpillNothing) {
  for (const std::string source : {"hopper_bf16", "hopper_fp16"}) {
    int kernels = 0;
    for (const auto& [key, report] : ReadPtxasReports(source)) {
      if (key.first != "sm_90a") continue;
      ++kernels;
      const bool wide = key.second.find("Li256E") != std::string::npos;
      EXPECT_GE(report.spilled, 0) << key.second;
      EXPECT_LE(report.spilled, wide ? 8 + 128 : 0) << key.second;
      EXPECT_EQ(report.registers, kStartRegisters) << key.second;
    }
    EXPECT_EQ(kernels, 3) << source;
  }
}

}  // namespace
}  // namespace annulus::cuda
