#include "base/device_name.h"

#include <gtest/gtest.h>

namespace annulus {
namespace {

TEST(DeviceName, IsCpuAutoOrAGpusNumber) {
  EXPECT_EQ(*GpuNumber("cuda:0"), 0);
  EXPECT_EQ(*GpuNumber("cuda:15"), 15);
  for (const char* good : {"cpu", "auto", "cuda:7"}) EXPECT_TRUE(CheckDeviceName(good).ok());
  for (const char* wrong : {"", "cuda", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda:1x", "tpu",
                            "cuda:1024", "cuda:99999999999", "CUDA:0", " cuda:0", "cpu:0"}) {
    EXPECT_EQ(CheckDeviceName(wrong).code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
  EXPECT_EQ(CheckDeviceName("tpu").message(), "'tpu' is not cpu, auto or cuda:N");
  EXPECT_FALSE(GpuNumber("cpu").ok());
}

}  // namespace
}  // namespace annulus
