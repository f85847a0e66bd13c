#include "worker/device/cuda_runtime.h"

#include "gtest/gtest.h"
#include "worker/device/cuda_context.h"

namespace annulus {
namespace {

TEST(CudaRuntime, StartsAndSaysWhatIsHere) {
  int driver = -1, runtime = -1;
  ASSERT_EQ(CudaRuntime()->Versions(&driver, &runtime), kCudaSuccess);
  EXPECT_GE(runtime, 12000);
  EXPECT_EQ(CudaRuntime()->ErrorText(kCudaNoDevice),
            "cudaErrorNoDevice: no CUDA-capable device is detected");
  const auto gpus = CountGpus(CudaRuntime());
  if (driver == 0) {
    EXPECT_EQ(gpus.status().message(), "this machine has no NVIDIA driver");
    EXPECT_EQ(CudaContext::Create(CudaRuntime(), {}).status(), gpus.status());
  }
}

}  // namespace
}  // namespace annulus
