#include "worker/device/cuda_device.h"

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "tests/worker/device/cuda_stand_in.h"
#include "tests/worker/device/device_conformance.h"
#include "worker/device/host.h"

namespace annulus {
namespace {

CudaContext::Options SmallContext() {
  CudaContext::Options options;
  options.ordinal = 1;
  options.arena_bytes = 40 << 20;
  options.workspace_bytes = 1 << 20;
  options.bounce_bytes = 8 * 5000;
  return options;
}

// A stand-in, and a context on it.
struct Gpu {
  explicit Gpu(const CudaStandIn::Options& stand_in = {},
               const CudaContext::Options& options = SmallContext())
      : api(stand_in) {
    auto made = CudaContext::Create(&api, options);
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) context = *made;
  }
  std::unique_ptr<CudaDevice> Device() {
    auto device = CudaDevice::Create(context);
    EXPECT_TRUE(device.ok()) << device.status();
    return *std::move(device);
  }

  CudaStandIn api;
  std::shared_ptr<CudaContext> context;
};

DeviceUnderTest OnStandIn() {
  auto gpu = std::make_shared<Gpu>();
  DeviceUnderTest made;
  std::unique_ptr<CudaDevice> device = gpu->Device();
  made.launch = [gpu, device = device.get()](std::function<void()> kernel) -> absl::Status {
    const absl::StatusOr<CudaStream> stream = device->Compute();
    if (!stream.ok()) return stream.status();
    return device->Check(gpu->api.Launch(*stream, std::move(kernel)), "a launch");
  };
  made.keeps = gpu;
  made.device = std::move(device);
  return made;
}

DeviceUnderTest OnHost() {
  DeviceUnderTest made;
  made.device = MakeHostDevice();
  made.launch = [](const std::function<void()>& kernel) {
    kernel();
    return absl::OkStatus();
  };
  return made;
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceConformance,
                         testing::Values(DeviceCase{"Host", OnHost},
                                         DeviceCase{"CudaStandIn", OnStandIn}),
                         [](const auto& info) { return info.param.name; });

std::string WhyNot(const CudaStandIn::Options& stand_in, int ordinal = 0,
                   int64_t shared_bytes = 0) {
  CudaStandIn api(stand_in);
  CudaContext::Options options = SmallContext();
  options.shared_bytes = shared_bytes;
  options.ordinal = ordinal;
  const auto context = CudaContext::Create(&api, options);
  EXPECT_EQ(context.status().code(), absl::StatusCode::kFailedPrecondition) << context.status();
  EXPECT_EQ(api.live(), 0);
  return std::string(context.status().message());
}

TEST(CudaContext, SaysInOneLineWhyAGpuCannotServe) {
  CudaStandIn::Options no_driver;
  no_driver.driver = 0;
  no_driver.at_start = kCudaInsufficientDriver;
  EXPECT_EQ(WhyNot(no_driver), "this machine has no NVIDIA driver");
  CudaStandIn::Options old_driver;
  old_driver.driver = 12080;
  EXPECT_EQ(WhyNot(old_driver),
            "the NVIDIA driver is too old: it supports CUDA 12.8, but this program needs 13.0");
  CudaStandIn::Options none;
  none.at_start = kCudaNoDevice;
  EXPECT_EQ(WhyNot(none), "this machine has no GPU");
  CudaStandIn::Options busy;
  busy.at_start = kCudaDevicesUnavailable;
  EXPECT_EQ(WhyNot(busy), "the GPU is busy: another process uses it exclusively (compute mode)");
  EXPECT_EQ(WhyNot({}, 2), "no GPU cuda:2: this machine has 2 GPUs, numbered from 0");
  EXPECT_EQ(WhyNot({}, -1), "no GPU cuda:-1: this machine has 2 GPUs, numbered from 0");
  CudaStandIn::Options turing;
  turing.major = 7;
  turing.minor = 5;
  EXPECT_EQ(WhyNot(turing), "cuda:0 is a Stand-in of compute capability 7.5: 8.0 is needed");
  CudaStandIn::Options ada;
  ada.shared_bytes = 99 << 10;
  EXPECT_EQ(
      WhyNot(ada, 0, 101377),
      "cuda:0 is a Stand-in with 101376 bytes of shared memory for a kernel: 101377 bytes are "
      "needed");
  CudaStandIn::Options small;
  small.memory_bytes = 10 << 20;
  EXPECT_EQ(WhyNot(small),
            "not enough memory on cuda:0: 42991616 bytes requested, 10485760 of 10485760 free");
}

TEST(CudaContext, ServesWhereSharedMemoryIsJustEnough) {
  CudaContext::Options options = SmallContext();
  CudaStandIn::Options ada;
  ada.shared_bytes = options.shared_bytes = 99 << 10;
  EXPECT_NE(Gpu(ada, options).context, nullptr);
}

// Any first call counts: a worker that checks for a GPU makes one.
TEST(CudaContext, KernelsAreLoadedAtOnceFromTheFirstCallOn) {
  ASSERT_EQ(unsetenv("CUDA_MODULE_LOADING"), 0);
  CudaStandIn counted({}), set({});
  ASSERT_TRUE(CountGpus(&counted).ok());
  EXPECT_EQ(counted.module_loading(), "EAGER");
  ASSERT_EQ(unsetenv("CUDA_MODULE_LOADING"), 0);
  EXPECT_EQ(Gpu().api.module_loading(), "EAGER");
  ASSERT_EQ(setenv("CUDA_MODULE_LOADING", "LAZY", 1), 0);
  ASSERT_TRUE(CountGpus(&set).ok());
  EXPECT_EQ(set.module_loading(), "EAGER") << "images set it for programs of their own";
  ASSERT_EQ(unsetenv("CUDA_MODULE_LOADING"), 0);
}

TEST(CudaContext, TellsACapabilityBeforeItTakesAnything) {
  CudaStandIn::Options options;
  options.count = 2;
  options.major = 9;
  options.minor = 0;
  CudaStandIn hopper(options);
  EXPECT_TRUE(HasCapability(&hopper, 1, 9, 0));
  EXPECT_FALSE(HasCapability(&hopper, 1, 9, 1));
  EXPECT_FALSE(HasCapability(&hopper, 1, 10, 0));
  EXPECT_FALSE(HasCapability(&hopper, 2, 9, 0));
  EXPECT_FALSE(HasCapability(&hopper, -1, 9, 0));
  EXPECT_EQ(hopper.live(), 0);
  options.driver = 0;
  CudaStandIn none(options);
  EXPECT_FALSE(HasCapability(&none, 0, 9, 0));
}

TEST(CudaContext, DescribesItsGpu) {
  EXPECT_EQ(Gpu().context->description(),
            "Stand-in (sm_90) at 0000:01:00.0, CUDA 13.0, driver 13.0");
  CudaStandIn::Options linked;
  linked.links = "18 NVLinks to switches";
  EXPECT_EQ(Gpu(linked).context->description(),
            "Stand-in (sm_90) at 0000:01:00.0, 18 NVLinks to switches, CUDA 13.0, driver 13.0");
}

TEST(CudaContext, ANewerDriverServes) {
  CudaStandIn::Options newer;
  newer.driver = 14010;
  EXPECT_NE(Gpu(newer).context, nullptr);
}

// Content that a copy changes while a kernel reads it. No lock is between them, as on a GPU.
__attribute__((no_sanitize("thread"))) bool IsSet(const volatile std::byte* flag) {
  return *flag != std::byte{0};
}

// A job's inputs are copied while the job before it computes.
TEST(CudaDevice, CopiesInDoNotWaitForKernels) {
  Gpu gpu;
  const auto device = gpu.Device();
  const DeviceMemory flag = *device->Allocate(1);
  const std::byte zero{0}, one{1};
  ASSERT_TRUE(device->CopyIn({flag.get(), 1, &zero, 1, 1, 1}).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  std::atomic<bool> seen{false};
  const auto kernel = [&seen, flag = flag.get()] {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!IsSet(flag) && absl::Now() < deadline) std::this_thread::yield();
    seen = IsSet(flag);
  };
  ASSERT_EQ(gpu.api.Launch(*device->Compute(), kernel), kCudaSuccess);
  ASSERT_TRUE(device->CopyIn({flag.get(), 1, &one, 1, 1, 1}).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_TRUE(seen) << "the copy waited for the kernel that waited for it";
}

TEST(CudaDevice, TakesEverythingAtStartAndGivesItBack) {
  Gpu gpu;
  {
    const auto device = gpu.Device();
    const int64_t live = gpu.api.live();
    std::vector<std::byte> host(100000);
    for (int i = 0; i < 10; ++i) {
      DeviceMemory memory = *device->Allocate(100000);
      ASSERT_TRUE(device->CopyIn({memory.get(), 100000, host.data(), 100000, 100000, 1}).ok());
      ASSERT_TRUE(device->CopyOut({host.data(), 100000, memory.get(), 100000, 100000, 1}).ok());
      ASSERT_TRUE(device->Synchronize().ok());
    }
    EXPECT_EQ(gpu.api.live(), live);
  }
  EXPECT_EQ(gpu.api.live(), 1);  // The slab.
  gpu.context.reset();
  EXPECT_EQ(gpu.api.live(), 0);
}

TEST(CudaDevice, FullMemoryIsATypedErrorAndNoFault) {
  Gpu gpu;
  const auto device = gpu.Device();
  DeviceMemory most = *device->Allocate(40 << 20);
  const absl::Status refusal = device->Allocate(2 << 20).status();
  EXPECT_EQ(DetailOf(refusal).reason, "OUT_OF_MEMORY");
  EXPECT_EQ(DetailOf(refusal).metadata["requested_bytes"], "2097152");
  most.reset();
  EXPECT_TRUE(device->Allocate(2 << 20).ok());
}

TEST(CudaDevice, PinnedMemoryIsCopiedWithoutABounce) {
  CudaContext::Options options = SmallContext();
  options.staging_bytes = 1 << 20;
  Gpu gpu({}, options);
  const auto device = gpu.Device();
  const std::shared_ptr<std::byte> host = gpu.context->staging()->Take(100000);
  for (int i = 0; i < 100000; ++i) host.get()[i] = static_cast<std::byte>(i * 3);
  DeviceMemory memory = *device->Allocate(100000);
  ASSERT_TRUE(device->CopyIn({memory.get(), 1000, host.get(), 1000, 1000, 100}).ok());
  // The copy waits for nothing, so the source must not change: the device reads its content at any
  // later time.
  const std::shared_ptr<std::byte> back = gpu.context->staging()->Take(100000);
  ASSERT_TRUE(device->CopyOut({back.get(), 1000, memory.get(), 1000, 1000, 100}).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_EQ(std::memcmp(back.get(), host.get(), 100000), 0);
}

// A step of a group, and messages, do not wait for all of a large job of one worker.
TEST(CudaDevice, MessagesGoBeforeGroupsAndGroupsBeforeJobsOfOneWorker) {
  Gpu gpu;
  const auto group = gpu.Device();
  const auto solo = *CudaDevice::Create(gpu.context, CudaPriority::kSolo);
  EXPECT_EQ(gpu.api.PriorityOf(*solo->Compute()), CudaPriority::kSolo);
  EXPECT_EQ(gpu.api.PriorityOf(*group->Compute()), CudaPriority::kGroup);
  for (const auto* device : {&group, &solo}) {
    EXPECT_EQ(gpu.api.PriorityOf((*device)->transfers()), CudaPriority::kTransfers);
  }
}

TEST(CudaDevice, UploadsKeepTheOrderOfLaunches) {
  Gpu gpu;
  const auto device = gpu.Device();
  DeviceMemory memory = *device->Allocate(sizeof(int));
  auto* const value = reinterpret_cast<int*>(memory.get());
  std::vector<int> seen;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(device->Upload(memory.get(), &i, sizeof(i)).ok());
    ASSERT_EQ(gpu.api.Launch(*device->Compute(), [&seen, value] { seen.push_back(*value); }), 0);
  }
  ASSERT_TRUE(device->Synchronize().ok());
  ASSERT_EQ(seen.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(seen[i], i);
}

TEST(CudaDevice, AStreamCanBeOrderedAfterAllThatIsQueued) {
  Gpu gpu;
  const auto device = gpu.Device();
  ASSERT_TRUE(device->Compute().ok());  // Called on this thread.
  CudaStream other = nullptr;
  ASSERT_EQ(gpu.api.StreamCreate(&other, CudaPriority::kTransfers), 0);
  for (int i = 0; i < 20; ++i) {
    int done = 0, seen = 0;
    ASSERT_EQ(gpu.api.Launch(*device->Compute(), [&] { ++done; }), 0);
    ASSERT_TRUE(device->OrderAfter(other).ok());
    ASSERT_EQ(gpu.api.Launch(other, [&] { seen = done; }), 0);
    CudaEvent event = nullptr;
    ASSERT_EQ(gpu.api.EventCreate(&event), 0);
    ASSERT_EQ(gpu.api.EventRecord(event, other), 0);
    while (gpu.api.EventQuery(event) == kCudaNotReady) std::this_thread::yield();
    EXPECT_EQ(seen, 1);
    ASSERT_EQ(gpu.api.EventDestroy(event), 0);
  }
  ASSERT_TRUE(device->Synchronize().ok());
  ASSERT_EQ(gpu.api.StreamDestroy(other), 0);
}

TEST(CudaDevice, IsTheCurrentDeviceOfWhateverThreadOwnsIt) {
  Gpu gpu;
  const auto device = gpu.Device();
  std::thread owner([&] {
    DeviceMemory memory = *device->Allocate(100);
    std::vector<std::byte> host(100);
    EXPECT_TRUE(device->CopyIn({memory.get(), 100, host.data(), 100, 100, 1}).ok());
    EXPECT_TRUE(device->Synchronize().ok());
  });
  owner.join();
  std::thread launcher([&] {
    const auto stream = device->Compute();
    ASSERT_TRUE(stream.ok());
    EXPECT_EQ(gpu.api.Launch(*stream, [] {}), 0);
  });
  launcher.join();
}

TEST(CudaDevice, AFaultIsTypedAndStays) {
  Gpu gpu;
  const auto device = gpu.Device();
  DeviceMemory memory = *device->Allocate(100);
  std::vector<std::byte> host(100);
  ASSERT_EQ(
      gpu.api.Launch(*device->Compute(), [&] { gpu.api.Break(CudaStandIn::kIllegalAddress); }), 0);
  const absl::Status fault = device->Synchronize();
  EXPECT_TRUE(IsDeviceFault(fault)) << fault;
  EXPECT_EQ(fault.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(device->CopyIn({memory.get(), 100, host.data(), 100, 100, 1}), fault);
  EXPECT_EQ(device->CopyOut({host.data(), 100, memory.get(), 100, 100, 1}), fault);
  EXPECT_EQ(device->Compute().status(), fault);
  EXPECT_EQ(device->OrderAfter(nullptr), fault);
  EXPECT_EQ(device->Check(kCudaSuccess, "anything"), fault);
  EXPECT_EQ(device->Synchronize(), fault);
  EXPECT_TRUE(IsDeviceFault(CudaDevice::Create(gpu.context).status()));
}

}  // namespace
}  // namespace annulus
