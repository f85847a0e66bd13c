#include "tests/kernel/cuda/emulated_launcher.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/status_macros.h"
#include "tests/kernel/cuda/emulated_forward.h"
#include "tests/kernel/cuda/emulated_gpu.h"
#include "worker/kernel/cuda/cuda_kernel.h"
#include "worker/kernel/cuda/op_block.h"

namespace annulus::cuda {
namespace {

EmulatedForward ForwardOf(Element element) {
  if (element == Element::kFp32) return EmulateFp32;
  return element == Element::kFp16 ? EmulateFp16 : EmulateBf16;
}

absl::Status StatusOf(const std::string& fault) {
  return fault.empty() ? absl::OkStatus() : absl::InternalError(fault);
}

// Shows the emulator the blocks of each call, and nothing else.
class EmulatedKernel : public AttentionKernel {
 public:
  explicit EmulatedKernel(int64_t max_tables) {
    CudaKernel::Options options;
    options.launcher = std::make_unique<EmulatedLauncher>(&memory_, max_tables);
    kernel_ = *CudaKernel::Create(std::move(options));
  }

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    memory_.Clear();
    for (const KernelTask& task : tasks) {
      for (const BlockView& view : {task.q, task.kv, task.pairs}) Add(job, view, false);
      Add(job, task.out_q, true);
    }
    return kernel_->Accumulate(job, tasks, control);
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    memory_.Clear();
    if (op.kind != KernelOp::Kind::kIdentity) Add(job, op.source, false);
    Add(job, op.target, true);
    return kernel_->Apply(job, op);
  }
  std::string Description() const override { return kernel_->Description(); }

 private:
  void Add(const KernelJob& job, const BlockView& view, bool writable) {
    if (view.data != nullptr) memory_.Add(view.data, job.layout->BlockBytes(view.block), writable);
  }

  GlobalMemory memory_;
  std::unique_ptr<CudaKernel> kernel_;
};

}  // namespace

EmulatedLauncher::EmulatedLauncher(GlobalMemory* memory, int64_t max_tables)
    : memory_(memory), max_tables_(max_tables), block_(kThreads, memory) {}

absl::StatusOr<const std::byte*> EmulatedLauncher::Upload(absl::Span<const std::byte> tables) {
  if (static_cast<int64_t>(tables.size()) > max_tables_)
    return absl::ResourceExhaustedError("more tables than there may be");
  // What was uploaded before is gone, and read no more.
  uploaded_ = std::make_unique<std::byte[]>(tables.size());
  std::memcpy(uploaded_.get(), tables.data(), tables.size());
  memory_->Add(uploaded_.get(), static_cast<int64_t>(tables.size()), false);
  return uploaded_.get();
}

absl::Status EmulatedLauncher::Forward(const ForwardKind& kind, const ForwardArgs& args,
                                       int64_t blocks) {
  memory_->NewLaunch();
  for (int64_t number = 0; number < blocks; ++number)
    RETURN_IF_ERROR(StatusOf(ForwardOf(kind.element)(kind, args, number, &block_)));
  return absl::OkStatus();
}

absl::Status EmulatedLauncher::Op(const OpArgs& args, int64_t blocks) {
  memory_->NewLaunch();
  for (int64_t number = 0; number < blocks; ++number) {
    RETURN_IF_ERROR(StatusOf(block_.Run(number, 0, [&](int thread) {
      EmulatedGpu gpu{&block_, thread};
      const OpBlock<EmulatedGpu> op{{gpu, args}};
      op.Run(number);
    })));
  }
  return absl::OkStatus();
}

std::unique_ptr<AttentionKernel> MakeEmulatedKernel(int64_t max_tables) {
  return std::make_unique<EmulatedKernel>(max_tables);
}

}  // namespace annulus::cuda
