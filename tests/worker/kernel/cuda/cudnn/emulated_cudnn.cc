#include "tests/worker/kernel/cuda/cudnn/emulated_cudnn.h"

#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"
#include "worker/device/host.h"
#include "worker/kernel/cuda/cuda_kernel.h"
#include "worker/kernel/cuda/cudnn/cudnn_kernel.h"

namespace annulus::cuda {
namespace {

// A device whose memory launches may access; it contains NaN at first.
class EmulatedDevice final : public Device {
 public:
  EmulatedDevice(GlobalMemory* memory, const EmulatedCudnnOptions& more)
      : memory_(memory), waits_(more.waits), fault_(more.fault) {}

  absl::StatusOr<DeviceMemory> Allocate(int64_t bytes) override {
    absl::StatusOr<DeviceMemory> made = host_->Allocate(bytes);
    if (!made.ok()) return made;
    std::memset(made->get(), 0xff, bytes);
    taken_.emplace_back(made->get(), bytes);
    return made;
  }
  absl::Status CopyIn(const Copy2d& copy) override { return host_->CopyIn(copy); }
  absl::Status CopyOut(const Copy2d& copy) override { return host_->CopyOut(copy); }
  absl::Status Synchronize() override {
    waits_();
    return fault_ == nullptr ? absl::OkStatus() : *fault_;
  }
  std::string Description() const override { return "emulated"; }

  CudaStream Stream() {
    for (const auto& [data, bytes] : taken_) memory_->Add(data, bytes, true);
    return this;
  }

 private:
  GlobalMemory* const memory_;
  const std::function<void()> waits_;
  const absl::Status* const fault_;
  const std::unique_ptr<Device> host_ = MakeHostDevice();
  std::vector<std::pair<std::byte*, int64_t>> taken_;
};

// Owns the objects that the kernel borrows.
class Owner final : public AttentionKernel {
 public:
  Owner(std::unique_ptr<Device> device, std::unique_ptr<AttentionKernel> kernel)
      : device_(std::move(device)), kernel_(std::move(kernel)) {}
  bool prepares() const override { return kernel_->prepares(); }
  absl::Status Prepare(const KernelJob& job, absl::Span<const KernelTask> tasks,
                       const KernelControl& control) override {
    return kernel_->Prepare(job, tasks, control);
  }
  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    return kernel_->Accumulate(job, tasks, control);
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    return kernel_->Apply(job, op);
  }
  std::string Description() const override { return kernel_->Description(); }

 private:
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<AttentionKernel> kernel_;
};

}  // namespace

CudnnRule SmallCudnnRule() { return {1, 1, 8, 16 << 10}; }

std::unique_ptr<AttentionKernel> MakeEmulatedCudnnKernel(std::shared_ptr<CudnnStandIn> cudnn,
                                                         const CudnnRule& rule,
                                                         const EmulatedCudnnOptions& more) {
  auto memory = std::make_shared<GlobalMemory>();
  auto device = std::make_unique<EmulatedDevice>(memory.get(), more);
  CudnnKernel::Options options;
  CudaKernel::Options other;
  other.launcher = std::make_unique<EmulatedLauncher>(memory.get(), 32 << 10, false, 0);
  options.launcher = other.launcher.get();
  options.other = *CudaKernel::Create(std::move(other));
  options.api = std::move(cudnn);
  options.device = device.get();
  options.stream = [at = device.get()]() -> absl::StatusOr<CudaStream> { return at->Stream(); };
  options.rule = rule;
  options.most_plans = more.most_plans;
  options.gate = more.gate;
  auto kernel = CudnnKernel::Create(std::move(options));
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  if (!kernel.ok()) return nullptr;
  if (more.made != nullptr) *more.made = kernel->get();
  return WithMemory(memory, std::make_unique<Owner>(std::move(device), *std::move(kernel)),
                    [] { return absl::OkStatus(); });
}

}  // namespace annulus::cuda
