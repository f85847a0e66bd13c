// The reports of ptxas: the fast kernels (16-bit inputs, no modifiers) keep everything in registers
// on both architectures, and two of their blocks fit into a multiprocessor.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/worker/kernel/cuda/ptxas_report.h"

namespace annulus::cuda {
namespace {

// CHANGES = false.
bool IsPlain(const std::string& mangled) { return mangled.find("Lb0E") != std::string::npos; }

TEST(PtxasTest, FastKernelsSpillNothing) {
  for (const std::string type : {"bf16", "fp16"}) {
    // Three dimensions, two architectures. In gradient_key_, dK and dV have separate kernels at the
    // last dimension.
    for (const auto& [file, expected] : std::map<std::string, int>{
             {"forward_", 6}, {"gradient_query_", 6}, {"gradient_key_", 8}}) {
      int fast = 0;
      for (const auto& [key, report] : ReadPtxasReports(file + type)) {
        EXPECT_GE(report.spilled, 0) << key.second;
        EXPECT_LE(report.registers, 255) << key.second;
        EXPECT_LE(report.spilled, 64) << key.second;
        if (!IsPlain(key.second)) continue;
        ++fast;
        EXPECT_EQ(report.spilled, 0) << key.first << " " << key.second;
      }
      EXPECT_EQ(fast, expected) << file;
    }
  }
}

TEST(PtxasTest, Fp32KernelsSpillLittle) {
  for (const auto& [file, expected] : std::map<std::string, size_t>{
           {"forward_fp32", 12}, {"gradient_query_fp32", 12}, {"gradient_key_fp32", 16}}) {
    const PtxasReports reports = ReadPtxasReports(file);
    EXPECT_EQ(reports.size(), expected) << file;
    for (const auto& [key, report] : reports) EXPECT_LE(report.spilled, 400) << key.second;
  }
}

// A GPU reserves this much for every thread that it can run. The first launch of a kernel that
// needs more would allocate memory, and wait for all work of the GPU, including messages.
constexpr int kStackOfAThread = 1024;

TEST(PtxasTest, NoLaunchTakesMemoryForStacks) {
  int kernels = 0;
  for (const char* const source :
       {"forward_bf16", "forward_fp16", "forward_fp32", "gradient_query_bf16",
        "gradient_query_fp16", "gradient_query_fp32", "gradient_key_bf16", "gradient_key_fp16",
        "gradient_key_fp32", "hopper_bf16", "hopper_fp16", "hopper_gradient_bf16",
        "hopper_gradient_fp16", "compiled_kernels"}) {
    for (const auto& [key, report] : ReadPtxasReports(source)) {
      ++kernels;
      EXPECT_GE(report.stack, 0) << key.second;
      EXPECT_LE(report.stack, kStackOfAThread) << key.second;
    }
  }
  EXPECT_EQ(kernels, 170);
}

}  // namespace
}  // namespace annulus::cuda
