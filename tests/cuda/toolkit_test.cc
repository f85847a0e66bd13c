// Programs of cuda_library have device code for every architecture and start on any machine.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cuda/scale.h"

namespace annulus {
namespace {

TEST(CudaToolkitTest, CompilesForAmpereAndHopper) {
  std::ifstream file("tests/cuda/scale_nvcc/scale.ptxas.txt");
  std::stringstream report;
  report << file.rdbuf();
  EXPECT_THAT(report.str(), testing::HasSubstr("for 'sm_80'"));
  EXPECT_THAT(report.str(), testing::HasSubstr("for 'sm_90a'"));
  EXPECT_THAT(report.str(), testing::HasSubstr("0 bytes spill stores"));
}

TEST(CudaToolkitTest, StartsWithoutADriverAndRunsWithOne) {
  std::vector<float> values(1000, 3);
  const std::string error = ScaleOnGpu(2, &values);
  if (error == "cudaErrorInsufficientDriver" || error == "cudaErrorNoDevice") {
    GTEST_SKIP() << "no GPU here: " << error;
  }
  ASSERT_EQ(error, "");
  EXPECT_THAT(values, testing::Each(6));
}

}  // namespace
}  // namespace annulus
