// What ptxas said of the kernels: the fast ones (16-bit inputs, no modifiers) keep everything in
// registers, for both architectures, and two blocks of them fit into a multiprocessor.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>

#include "worker/kernel/cuda/hopper_config.h"

namespace annulus::cuda {
namespace {

struct Report {
  int spilled = -1, registers = -1;
};

// By architecture and mangled name. `source`: "forward_bf16", ...
using Reports = std::map<std::pair<std::string, std::string>, Report>;
Reports Read(const std::string& source) {
  const bool gradients = source.find("gradient") == 0;
  std::ifstream file("worker/kernel/cuda/compiled_" +
                     std::string(gradients ? "gradients" : "kernels") + "_nvcc/" + source +
                     ".ptxas.txt");
  EXPECT_TRUE(file.good());
  const std::regex name("Compiling entry function '(\\w+)' for '(\\w+)'");
  const std::regex spills("(\\d+) bytes spill stores, (\\d+) bytes spill loads");
  const std::regex registers("Used (\\d+) registers");
  Reports reports;
  Report* report = nullptr;
  for (std::string line; std::getline(file, line);) {
    std::smatch found;
    if (std::regex_search(line, found, name)) report = &reports[{found[2], found[1]}];
    if (report == nullptr) continue;
    if (std::regex_search(line, found, spills))
      report->spilled = std::stoi(found[1]) + std::stoi(found[2]);
    if (std::regex_search(line, found, registers)) report->registers = std::stoi(found[1]);
  }
  return reports;
}

// CHANGES = false.
bool IsPlain(const std::string& mangled) { return mangled.find("Lb0E") != std::string::npos; }

TEST(PtxasTest, FastKernelsSpillNothing) {
  for (const std::string type : {"bf16", "fp16"}) {
    // Three dimensions (of keys, dK and dV have one each in the last), two architectures.
    for (const auto& [file, expected] : std::map<std::string, int>{
             {"forward_", 6}, {"gradient_query_", 6}, {"gradient_key_", 8}}) {
      int fast = 0;
      for (const auto& [key, report] : Read(file + type)) {
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

// The kernel for Hopper: its registers are dealt out anew at run time, and with fewer at the start
// the last group would wait for its own forever. A dimension of 256 leaves too few for nine numbers
// of a task, which are read again outside of the loop over tiles (sass_test).
TEST(PtxasTest, HopperKernelsSpillNothing) {
  for (const std::string source : {"hopper_bf16", "hopper_fp16"}) {
    int kernels = 0;
    for (const auto& [key, report] : Read(source)) {
      if (key.first != "sm_90a") continue;
      ++kernels;
      const bool wide = key.second.find("Li256E") != std::string::npos;
      EXPECT_GE(report.spilled, 0) << key.second;
      EXPECT_LE(report.spilled, wide ? 36 + 144 : 0) << key.second;
      EXPECT_EQ(report.registers, kStartRegisters) << key.second;
    }
    EXPECT_EQ(kernels, 3) << source;
  }
}

TEST(PtxasTest, Fp32KernelsSpillLittle) {
  for (const auto& [file, expected] : std::map<std::string, size_t>{
           {"forward_fp32", 12}, {"gradient_query_fp32", 12}, {"gradient_key_fp32", 16}}) {
    const Reports reports = Read(file);
    EXPECT_EQ(reports.size(), expected) << file;
    for (const auto& [key, report] : reports) EXPECT_LE(report.spilled, 400) << key.second;
  }
}

}  // namespace
}  // namespace annulus::cuda
