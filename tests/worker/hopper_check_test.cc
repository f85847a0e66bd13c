#include "worker/hopper_check.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/validate.h"
#include "tests/kernel/cuda/emulated_launcher.h"
#include "tests/worker/copy_probe.h"
#include "worker/kernel/cpu_kernel.h"
#include "worker/kernel/cuda/cuda_kernel.h"
#include "worker/kernel/isa_dispatch.h"

namespace annulus {
namespace {

std::unique_ptr<CpuKernel> Portable() {
  CpuKernel::Options options;
  options.isa = &kPortableIsa;
  return *CpuKernel::Create(options);
}

// A kernel that serves everything and says that the one for Hopper did, with one fault.
class Faulty final : public AttentionKernel {
 public:
  enum class Fault { kNone, kForgetsState, kMasksNothing, kScalesScores, kLosesAKey, kNotLaunched };
  explicit Faulty(Fault fault) : fault_(fault) {}

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    if (fault_ != Fault::kNotLaunched) ++launches;
    KernelJob other = job;
    if (fault_ == Fault::kScalesScores) other.scale *= 1.05;
    std::vector<KernelTask> wrong(tasks.begin(), tasks.end());
    for (KernelTask& task : wrong) {
      if (fault_ == Fault::kForgetsState) {
        absl::Status status = kernel_->Apply(job, {KernelOp::Kind::kIdentity, {}, task.out_q});
        if (!status.ok()) return status;
      }
      if (fault_ == Fault::kMasksNothing) task.task.coverage = Coverage::kFull;
      if (fault_ == Fault::kLosesAKey) task.task.k_end -= 1;
    }
    return kernel_->Accumulate(other, wrong, control);
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    return kernel_->Apply(job, op);
  }
  std::string Description() const override { return "faulty"; }

  int64_t launches = 0;

 private:
  const Fault fault_;
  const std::unique_ptr<CpuKernel> kernel_ = *CpuKernel::Create({});
};

absl::Status Check(Faulty::Fault fault, const std::vector<AttentionSpec>& specs) {
  Faulty kernel(fault);
  const std::unique_ptr<CpuKernel> yardstick = Portable();
  return CheckHopper(kernel, *yardstick, nullptr, specs, [&] { return kernel.launches; });
}

TEST(HopperCheckTest, ItsJobsAreValidAndASoundKernelPassesThemAll) {
  const std::vector<AttentionSpec> specs = HopperCheckSpecs();
  for (const AttentionSpec& spec : specs) EXPECT_TRUE(Validate(spec, {}, {}).ok());
  EXPECT_GE(specs.size(), 60u);
  const absl::Status status = Check(Faulty::Fault::kNone, specs);
  EXPECT_TRUE(status.ok()) << status;
}

// Every fault is seen in every type, at every dimension.
TEST(HopperCheckTest, FaultsAreSeen) {
  for (const Faulty::Fault fault :
       {Faulty::Fault::kForgetsState, Faulty::Fault::kScalesScores, Faulty::Fault::kLosesAKey,
        Faulty::Fault::kNotLaunched, Faulty::Fault::kMasksNothing}) {
    for (const AttentionSpec& spec : HopperCheckSpecs()) {
      if (fault == Faulty::Fault::kMasksNothing && spec.masks.empty()) continue;
      if (spec.q_rows() > 200) continue;
      EXPECT_EQ(Check(fault, {spec}).code(), absl::StatusCode::kInternal)
          << static_cast<int>(fault) << " " << spec.head_dim << " " << spec.kv_rows();
    }
  }
}

// The kernel's own source on the emulator serves the jobs, and passes: some of both types, of all
// dimensions and masks.
TEST(HopperCheckTest, TheKernelForHopperPassesOnTheEmulator) {
  auto memory = std::make_shared<cuda::GlobalMemory>();
  cuda::CudaKernel::Options options;
  options.launcher = std::make_unique<cuda::EmulatedLauncher>(memory.get(), 256 << 10,
                                                              /*hopper=*/true, /*seed=*/7);
  std::unique_ptr<cuda::CudaKernel> made = *cuda::CudaKernel::Create(std::move(options));
  const cuda::CudaKernel& counted = *made;
  const std::unique_ptr<AttentionKernel> kernel =
      cuda::WithMemory(memory, std::move(made), [] { return absl::OkStatus(); });
  std::vector<AttentionSpec> some;
  const std::vector<AttentionSpec> all = HopperCheckSpecs();
  for (const size_t i : {0, 9, 18, 27, 38, 47}) some.push_back(all.at(i));
  const std::unique_ptr<CpuKernel> yardstick = Portable();
  CopyProbe device([] {});  // A kernel of a GPU does not read staging.
  const absl::Status status =
      CheckHopper(*kernel, *yardstick, &device, some, [&] { return counted.hopper_launches(); });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace annulus
