#include "worker/backend/hopper_check.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/validate/validate.h"
#include "tests/worker/data_plane/copy_probe.h"
#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"
#include "worker/kernel/cpu/cpu_kernel.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"
#include "worker/kernel/cuda/cuda_kernel.h"

namespace annulus {
namespace {

std::unique_ptr<CpuKernel> Portable() {
  CpuKernel::Options options;
  options.isa = &kPortableIsa;
  return *CpuKernel::Create(options);
}

// A kernel that serves everything, reports launches of the Hopper kernel, and has one fault in an
// operation.
class Faulty final : public AttentionKernel {
 public:
  enum class Fault { kNone, kForgetsState, kMasksNothing, kScalesScores, kLosesAKey, kNotLaunched };
  Faulty(Fault fault, Operation operation) : fault_(fault), operation_(operation) {}

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    const bool gradients = tasks[0].q.block.kind == BlockKind::kQGrad;
    if (gradients != (operation_ == Operation::kGradients))
      return kernel_->Accumulate(job, tasks, control);
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
  const Operation operation_;
  const std::unique_ptr<CpuKernel> kernel_ = *CpuKernel::Create({});
};

absl::Status Check(Faulty::Fault fault, const std::vector<AttentionSpec>& specs) {
  Faulty kernel(fault, specs[0].operation);
  const std::unique_ptr<CpuKernel> yardstick = Portable();
  return CheckHopper(kernel, *yardstick, nullptr, specs, [&] { return kernel.launches; });
}

TEST(HopperCheckTest, ItsJobsAreValidAndASoundKernelPassesThemAll) {
  for (const Operation operation : {Operation::kForward, Operation::kGradients}) {
    const std::vector<AttentionSpec> specs = HopperCheckSpecs(operation);
    for (const AttentionSpec& spec : specs) EXPECT_TRUE(Validate(spec, {}, {}).ok());
    EXPECT_GE(specs.size(), 50u);
    const absl::Status status = Check(Faulty::Fault::kNone, specs);
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Every fault is detected in every type and at every dimension.
TEST(HopperCheckTest, FaultsAreSeen) {
  for (const Faulty::Fault fault :
       {Faulty::Fault::kForgetsState, Faulty::Fault::kScalesScores, Faulty::Fault::kLosesAKey,
        Faulty::Fault::kNotLaunched, Faulty::Fault::kMasksNothing}) {
    std::vector<AttentionSpec> specs = HopperCheckSpecs(Operation::kForward);
    for (AttentionSpec& spec : HopperCheckSpecs(Operation::kGradients))
      specs.push_back(std::move(spec));
    for (const AttentionSpec& spec : specs) {
      if (fault == Faulty::Fault::kMasksNothing && spec.masks.empty()) continue;
      if (spec.q_rows() > 200) continue;
      EXPECT_EQ(Check(fault, {spec}).code(), absl::StatusCode::kInternal)
          << static_cast<int>(fault) << " " << static_cast<int>(spec.operation) << " "
          << spec.head_dim << " " << spec.kv_rows();
    }
  }
}

// The kernels' source passes on the emulator: jobs of both types, of all dimensions and masks.
void ExpectToPassOnTheEmulator(Operation operation, const std::vector<size_t>& jobs) {
  auto memory = std::make_shared<cuda::GlobalMemory>();
  cuda::CudaKernel::Options options;
  options.launcher = std::make_unique<cuda::EmulatedLauncher>(memory.get(), 256 << 10,
                                                              /*hopper=*/true, /*seed=*/7);
  std::unique_ptr<cuda::CudaKernel> made = *cuda::CudaKernel::Create(std::move(options));
  const cuda::CudaKernel& counted = *made;
  const std::unique_ptr<AttentionKernel> kernel =
      cuda::WithMemory(memory, std::move(made), [] { return absl::OkStatus(); });
  std::vector<AttentionSpec> some;
  const std::vector<AttentionSpec> all = HopperCheckSpecs(operation);
  for (const size_t i : jobs) some.push_back(all.at(i));
  const std::unique_ptr<CpuKernel> yardstick = Portable();
  CopyProbe device([] {});  // A GPU kernel does not read staging.
  const absl::Status status = CheckHopper(*kernel, *yardstick, &device, some, [&] {
    return operation == Operation::kGradients ? counted.hopper_gradient_launches()
                                              : counted.hopper_launches();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(HopperCheckTest, TheKernelForHopperPassesOnTheEmulator) {
  ExpectToPassOnTheEmulator(Operation::kForward, {0, 9, 18, 27, 38, 47});
}

TEST(HopperCheckTest, TheKernelForGradientsOnHopperPassesOnTheEmulator) {
  ExpectToPassOnTheEmulator(Operation::kGradients, {0, 6, 13, 23, 27, 34, 48});
}

}  // namespace
}  // namespace annulus
