#include "tests/worker/kernel/implementations.h"

#include <utility>

#include "gtest/gtest.h"
#include "tests/gpu/real_gpu.h"
#include "tests/worker/kernel/mirrored_kernel.h"

namespace annulus {

namespace {

// Rectangles of any size go to cuDNN.
absl::StatusOr<std::unique_ptr<AttentionKernel>> KernelOf(const std::string& name,
                                                          CudaDevice* device) {
  if (name == "hopper") return HopperKernelOn(device);
  if (name == "cudnn") return CudnnKernelOn(device, {1, 1, 8, int64_t{4} << 20});
  return KernelOn(device);
}

}  // namespace

std::vector<std::string> KernelNames() { return {"cuda", "hopper", "cudnn"}; }

bool KernelsAreSlow() { return false; }

std::unique_ptr<AttentionKernel> MakeKernel(const std::string& name, int) {
  if (!WhyNoGpu().empty()) return nullptr;
  static const auto* const gpu =
      new absl::StatusOr<std::shared_ptr<CudaContext>>(RealGpu(int64_t{1} << 30));
  EXPECT_TRUE(gpu->ok()) << gpu->status();
  if (!gpu->ok()) return nullptr;
  auto device = CudaDevice::Create(**gpu);
  EXPECT_TRUE(device.ok()) << device.status();
  if (!device.ok()) return nullptr;
  auto kernel = KernelOf(name, device->get());
  if (name != "cuda" && absl::IsFailedPrecondition(kernel.status())) return nullptr;
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  if (!kernel.ok()) return nullptr;
  return MakeMirroredKernel(*std::move(device), *std::move(kernel));
}

}  // namespace annulus
