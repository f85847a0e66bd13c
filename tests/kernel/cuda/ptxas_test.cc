// What ptxas said of the kernels: the fast ones (16-bit inputs, no modifiers) keep everything in
// registers, for both architectures, and two blocks of them fit into a multiprocessor.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>

namespace annulus::cuda {
namespace {

struct Report {
  int spilled = -1, registers = -1;
};

// By architecture and mangled name.
using Reports = std::map<std::pair<std::string, std::string>, Report>;
Reports Read(const std::string& source) {
  std::ifstream file("worker/kernel/cuda/compiled_kernels_nvcc/" + source + ".ptxas.txt");
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

TEST(PtxasTest, FastKernelsSpillNothing) {
  for (const std::string type : {"bf16", "fp16"}) {
    int fast = 0;
    for (const auto& [key, report] : Read("forward_" + type)) {
      EXPECT_GE(report.spilled, 0) << key.second;
      EXPECT_LE(report.registers, 255) << key.second;
      EXPECT_LE(report.spilled, 64) << key.second;
      if (key.second.find("Lb0E") == std::string::npos) continue;  // CHANGES = false
      ++fast;
      EXPECT_EQ(report.spilled, 0) << key.first << " " << key.second;
    }
    EXPECT_EQ(fast, 6) << "three dimensions, two architectures";
  }
}

// The kernel for Hopper: 168 registers is what ptxas says of three groups of warps, whose
// registers are dealt out anew at run time. A dimension of 256 leaves too few for a few numbers of
// a task, which are read again outside of the loop over tiles.
TEST(PtxasTest, HopperKernelsSpillNothing) {
  for (const std::string source : {"hopper_bf16", "hopper_fp16"}) {
    int kernels = 0;
    for (const auto& [key, report] : Read(source)) {
      if (key.first != "sm_90a") continue;
      ++kernels;
      const bool wide = key.second.find("Li256E") != std::string::npos;
      EXPECT_GE(report.spilled, 0) << key.second;
      EXPECT_LE(report.spilled, wide ? 200 : 0) << key.second;
      EXPECT_LE(report.registers, 168) << key.second;
    }
    EXPECT_EQ(kernels, 3) << source;
  }
}

TEST(PtxasTest, Fp32KernelsSpillLittle) {
  const Reports reports = Read("forward_fp32");
  EXPECT_EQ(reports.size(), 12u);
  for (const auto& [key, report] : reports) EXPECT_LE(report.spilled, 400) << key.second;
}

}  // namespace
}  // namespace annulus::cuda
