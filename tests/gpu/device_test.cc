// Devices on CUDA's runtime: the conformance suite on memory that this process can read, and copies
// to GPU memory and back.

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/cuda_host_function.h"
#include "tests/gpu/real_gpu.h"
#include "tests/worker/device/device_conformance.h"
#include "worker/device/cuda_runtime.h"

namespace annulus {
namespace {

constexpr int64_t kArenaBytes = 40 << 20;

DeviceUnderTest OnRuntime() {
  const std::shared_ptr<CudaApi> api = MakeHostMemoryRuntime();
  CudaContext::Options options;
  options.arena_bytes = kArenaBytes;
  options.workspace_bytes = 1 << 20;
  options.bounce_bytes = 8 * 5000;
  DeviceUnderTest made;
  auto context = CudaContext::Create(api.get(), options);
  EXPECT_TRUE(context.ok()) << context.status();
  auto device = CudaDevice::Create(*context);
  EXPECT_TRUE(device.ok()) << device.status();
  made.launch = [device = device->get()](std::function<void()> kernel) -> absl::Status {
    const absl::StatusOr<CudaStream> stream = device->Compute();
    if (!stream.ok()) return stream.status();
    return device->Check(LaunchOnHost(*stream, std::move(kernel)), "a launch");
  };
  made.keeps = std::make_shared<std::pair<std::shared_ptr<CudaApi>, std::shared_ptr<CudaContext>>>(
      api, *context);
  made.device = *std::move(device);
  return made;
}

std::vector<DeviceCase> Cases() {
  if (!WhyNoGpu().empty()) return {};
  return {DeviceCase{"CudaRuntime", OnRuntime}};
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceConformance);
INSTANTIATE_TEST_SUITE_P(Devices, DeviceConformance, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// Needs no GPU.
TEST(GpuDevice, OnlyAnotherGpuMayLackTheKernelForHopper) {
  CudaProperties properties;
  for (const auto& [major, minor] : {std::pair(8, 0), std::pair(9, 0), std::pair(12, 0)}) {
    properties.major = major;
    properties.minor = minor;
    EXPECT_EQ(absl::IsFailedPrecondition(WithoutHopperKernel(properties)), major != 9) << major;
  }
}

// Needs no GPU.
TEST(GpuDevice, CudnnThatIsThereAndDoesNotStartIsNoSkip) {
  EXPECT_TRUE(absl::IsInternal(LoadedCudnnRefused(absl::FailedPreconditionError("it does not"))));
  EXPECT_TRUE(absl::IsResourceExhausted(LoadedCudnnRefused(absl::ResourceExhaustedError("full"))));
  EXPECT_TRUE(LoadedCudnnRefused(absl::OkStatus()).ok());
}

TEST(GpuDevice, CopiesToItsOwnMemoryAndBack) {
  if (const std::string lacks = WhyNoGpu(); !lacks.empty()) GTEST_SKIP() << lacks;
  const auto context = RealGpu(kArenaBytes);
  ASSERT_TRUE(context.ok()) << context.status();
  const auto device = CudaDevice::Create(*context);
  ASSERT_TRUE(device.ok()) << device.status();
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  RecordProperty("seed", testing::UnitTest::GetInstance()->random_seed());
  const auto draw = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (int round = 0; round < 50; ++round) {
    const int64_t width = draw(9000), rows = draw(500);
    const int64_t host_stride = width + draw(9), device_stride = width + draw(9);
    std::vector<std::byte> source(rows * host_stride), target(rows * host_stride);
    for (std::byte& byte : source) byte = static_cast<std::byte>(random());
    const auto memory = (*device)->Allocate(rows * device_stride);
    ASSERT_TRUE(memory.ok()) << memory.status();
    std::byte* const data = memory->get();
    ASSERT_TRUE(
        (*device)->CopyIn({data, device_stride, source.data(), host_stride, width, rows}).ok());
    ASSERT_TRUE(
        (*device)->CopyOut({target.data(), host_stride, data, device_stride, width, rows}).ok());
    const absl::Status done = (*device)->Synchronize();
    ASSERT_TRUE(done.ok()) << done;
    for (int64_t row = 0; row < rows; ++row) {
      ASSERT_EQ(std::memcmp(&source[row * host_stride], &target[row * host_stride], width), 0);
    }
  }
}

}  // namespace
}  // namespace annulus
