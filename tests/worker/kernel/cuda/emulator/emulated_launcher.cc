#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"

#include <cstring>
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "tests/worker/kernel/cuda/emulator/emulated_hopper.h"
#include "tests/worker/kernel/cuda/emulator/emulated_run.h"
#include "worker/kernel/cuda/cuda_kernel.h"
#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/launch/hopper_plan.h"

namespace annulus::cuda {
namespace {

absl::Status StatusOf(const std::string& fault) {
  return fault.empty() ? absl::OkStatus() : absl::InternalError(fault);
}

class KernelWithMemory : public AttentionKernel {
 public:
  KernelWithMemory(std::shared_ptr<GlobalMemory> memory, std::unique_ptr<AttentionKernel> kernel,
                   std::function<absl::Status()> done)
      : memory_(std::move(memory)), kernel_(std::move(kernel)), done_(std::move(done)) {}

  bool prepares() const override { return kernel_->prepares(); }
  absl::Status Prepare(const KernelJob& job, absl::Span<const KernelTask> tasks,
                       const KernelControl& control) override {
    return kernel_->Prepare(job, tasks, control);
  }
  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    memory_->Clear();
    for (const KernelTask& task : tasks) {
      for (const BlockView& view : {task.q, task.kv, task.pairs}) Add(job, view, false);
      for (const BlockView& view : {task.out_q, task.out_kv, task.out_bias}) Add(job, view, true);
    }
    RETURN_IF_ERROR(kernel_->Accumulate(job, tasks, control));
    return done_();
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    memory_->Clear();
    if (op.kind != KernelOp::Kind::kIdentity) Add(job, op.source, false);
    Add(job, op.target, true);
    RETURN_IF_ERROR(kernel_->Apply(job, op));
    return done_();
  }
  std::string Description() const override { return kernel_->Description(); }

 private:
  void Add(const KernelJob& job, const BlockView& view, bool writable) {
    if (view.data != nullptr) memory_->Add(view.data, job.layout->BlockBytes(view.block), writable);
  }

  const std::shared_ptr<GlobalMemory> memory_;
  const std::unique_ptr<AttentionKernel> kernel_;
  const std::function<absl::Status()> done_;
};

}  // namespace

EmulatedLauncher::EmulatedLauncher(GlobalMemory* memory, int64_t max_tables, bool hopper,
                                   uint64_t seed)
    : memory_(memory),
      max_tables_(max_tables),
      hopper_(hopper),
      seed_(seed),
      partials_(std::make_unique<std::byte[]>(kPartialBytes)) {}

absl::StatusOr<const std::byte*> EmulatedLauncher::Upload(absl::Span<const std::byte> tables) {
  if (static_cast<int64_t>(tables.size()) > max_tables_)
    return absl::ResourceExhaustedError("more tables than there may be");
  // Earlier uploads are gone and are not read again.
  constexpr size_t kAlignment = 256;  // Alignment of device memory.
  uploaded_.assign(tables.size() + kAlignment, std::byte{0});
  void* at = uploaded_.data();
  size_t room = uploaded_.size();
  auto* const to = static_cast<std::byte*>(std::align(kAlignment, tables.size(), at, room));
  std::memcpy(to, tables.data(), tables.size());
  memory_->Add(to, static_cast<int64_t>(tables.size()), false);
  return to;
}

absl::Status EmulatedLauncher::EncodeMaps(absl::Span<const TensorMapSpec> maps, std::byte* to) {
  EmulateMaps(maps, to);
  return absl::OkStatus();
}

absl::Status EmulatedLauncher::Forward(const ForwardKind& kind, const ForwardArgs& args,
                                       int64_t blocks) {
  memory_->Add(partials_.get(), kPartialBytes, true);
  if (!kind.hopper) return StatusOf(EmulateForward(kind, args, blocks, memory_));
  const uint64_t seed = seed_++;
  const int64_t grid = HopperBlocks(blocks, static_cast<int>(1 + seed % 3), /*kept=*/0);
  return StatusOf(EmulateHopper(kind, args, grid, memory_, seed));
}

absl::Status EmulatedLauncher::Gradients(const GradientKind& kind, const GradientArgs& args,
                                         int64_t blocks) {
  if (!kind.forward.hopper) return StatusOf(EmulateGradients(kind, args, blocks, memory_));
  return StatusOf(EmulateHopperGradients(kind, args, blocks, memory_, seed_++));
}

absl::Status EmulatedLauncher::Op(const OpArgs& args, int64_t blocks) {
  memory_->Add(partials_.get(), kPartialBytes, true);
  return StatusOf(EmulateOp(args, blocks, memory_));
}

std::unique_ptr<AttentionKernel> WithMemory(std::shared_ptr<GlobalMemory> memory,
                                            std::unique_ptr<AttentionKernel> kernel,
                                            std::function<absl::Status()> done) {
  return std::make_unique<KernelWithMemory>(std::move(memory), std::move(kernel), std::move(done));
}

namespace {

std::unique_ptr<AttentionKernel> Make(int64_t max_tables, double max_work, bool hopper,
                                      uint64_t seed) {
  auto memory = std::make_shared<GlobalMemory>();
  CudaKernel::Options options;
  options.max_launch_work = max_work;
  options.launcher = std::make_unique<EmulatedLauncher>(memory.get(), max_tables, hopper, seed);
  return WithMemory(memory, *CudaKernel::Create(std::move(options)),
                    [] { return absl::OkStatus(); });
}

}  // namespace

std::unique_ptr<AttentionKernel> MakeEmulatedKernel(int64_t max_tables, double max_work) {
  return Make(max_tables, max_work, /*hopper=*/false, 0);
}
std::unique_ptr<AttentionKernel> MakeEmulatedHopperKernel(int64_t max_tables, uint64_t seed) {
  return Make(max_tables, kMaxLaunchWork, /*hopper=*/true, seed);
}

}  // namespace annulus::cuda
