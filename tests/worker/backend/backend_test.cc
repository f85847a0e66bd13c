#include "worker/backend/backend.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "worker/backend/cuda_backend.h"
#include "worker/device/host.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {
namespace {

using absl::StatusCode;

BackendOptions On(const std::string& device) {
  BackendOptions options;
  options.device = device;
  options.comm_host = "127.0.0.1";
  options.device_bytes = 64 << 20;
  return options;
}

TEST(Backend, UnknownDevicesAreRefused) {
  EXPECT_EQ(MakeEngine(On("tpu")).status().code(), StatusCode::kInvalidArgument);
}

TEST(Backend, APathOfTheCpuGoesWithNoGpu) {
  BackendOptions options = On("cuda:0");
  options.kernel = "portable";
  EXPECT_EQ(MakeEngine(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(Backend, AKernelOfGpusGoesWithNoCpu) {
  BackendOptions options = On("cpu");
  options.cuda_kernel = "hopper";
  EXPECT_EQ(MakeEngine(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(Backend, CudnnGoesWithNoCpu) {
  for (const char* const device : {"cpu", "auto"}) {
    BackendOptions options = On(device);
    options.cudnn_library = "libcudnn.so.9";
    if (options.device == "auto" && GpusHere().ok()) continue;
    const absl::Status status = MakeEngine(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << device;
    EXPECT_EQ(status.message(), "cuDNN (\"libcudnn.so.9\") needs a GPU, but the device is a CPU");
  }
}

TEST(Backend, AnNcclOfOnesOwnGoesWithNoCpu) {
  BackendOptions options = On("cpu");
  options.nccl_library = "/opt/libnccl.so";
  const absl::Status status = MakeEngine(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "NCCL (\"/opt/libnccl.so\") needs a GPU, but the device is a CPU");
}

TEST(Backend, TheCpuServesEverythingButBf16x3WithoutAmx) {
  const auto engine = MakeEngine(On("cpu"));
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(engine->lacks.size(), SelectIsa("amx").ok() ? 0u : 1u);
  for (const Capability& lack : engine->lacks) EXPECT_EQ(lack.feature, "arithmetic/bf16x3");
  EXPECT_EQ(engine->device_kind, DeviceKind::kCpu);
  EXPECT_FALSE(engine->one_rank_a_process);
}

TEST(Backend, WhatIsSaidOfTheCpuNamesItsPathAndThoseThatFailedTheirCheck) {
  const auto described = [](const BackendOptions& options) {
    const auto engine = MakeEngine(options);
    return engine.ok() ? engine->description : engine.status().ToString();
  };
  BackendOptions options = On("cpu");
  EXPECT_EQ(described(options), absl::StrCat("cpu/", AvailableIsas()[0]->name, " + gloo"));
  TileIsa wrong = kPortableIsa;
  wrong.name = "wrong";
  wrong.softmax = [](const TileBlock& tile) {
    kPortableIsa.softmax(tile);
    tile.weight[0] += 1;
  };
  options.cpu_paths = {&wrong, &kPortableIsa};
  EXPECT_EQ(described(options), "cpu/portable + gloo (wrong failed its check)");
  options.kernel = "portable";  // Selected by name.
  EXPECT_EQ(described(options), "cpu/portable + gloo");
}

TEST(Backend, ALanesCopiesAndItsKernelHaveTheSameThreads) {
  BackendOptions options = On("cpu");
  options.threads = 3;
  const auto engine = MakeEngine(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto device = engine->make_device();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto& pool = static_cast<const HostDevice&>(**device).pool();
  EXPECT_EQ(pool->threads(), 3);
  EXPECT_EQ(pool.use_count(), 1);
  const auto kernel = engine->make_kernel(device->get());
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(pool.use_count(), 2);
}

TEST(Backend, WithoutAGpuAutoIsTheCpuAndOthersSayWhy) {
  const auto gpus = GpusHere();
  if (gpus.ok()) GTEST_SKIP() << "there is a GPU here";
  EXPECT_EQ(gpus.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(MakeEngine(On("cuda:0")).status(), gpus.status());
  EXPECT_EQ(gpus.status().message().find('\n'), absl::string_view::npos);
  const auto engine = MakeEngine(On("auto"));
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(engine->description.rfind("cpu/", 0), 0u) << engine->description;
}

}  // namespace
}  // namespace annulus
