#include "tests/kernel/implementations.h"

#include <utility>

#include "gtest/gtest.h"
#include "tests/gpu/real_gpu.h"
#include "tests/kernel/mirrored_kernel.h"

namespace annulus {

std::vector<std::string> KernelNames() { return {"cuda", "hopper"}; }

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
  auto kernel = name == "hopper" ? HopperKernelOn(device->get()) : KernelOn(device->get());
  if (name == "hopper" && absl::IsFailedPrecondition(kernel.status())) return nullptr;
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  if (!kernel.ok()) return nullptr;
  return MakeMirroredKernel(*std::move(device), *std::move(kernel));
}

}  // namespace annulus
