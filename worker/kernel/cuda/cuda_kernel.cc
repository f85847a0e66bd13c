#include "worker/kernel/cuda/cuda_kernel.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/status_macros.h"
#include "worker/kernel/cuda/hopper_plan.h"
#include "worker/kernel/cuda/launch_plan.h"
#include "worker/kernel/cuda/op_plan.h"
#include "worker/kernel/visibility.h"

namespace annulus::cuda {
namespace {

absl::Status Lacks(absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat("the CUDA kernel does not serve ", what));
}

absl::Status CheckServed(const KernelJob& job, absl::Span<const KernelTask> tasks) {
  const BlockLayout& layout = *job.layout;
  if (layout.dtype() != DataType::kFp32 && layout.dtype() != DataType::kFp16 &&
      layout.dtype() != DataType::kBf16)
    return Lacks(DataTypeName(layout.dtype()));
  if (job.spec->arithmetic == Arithmetic::kBf16x3) return Lacks("bf16x3");
  if (layout.head_dim() > kMaxDim || layout.value_dim() > kMaxDim)
    return Lacks(absl::StrCat("head dimensions above ", kMaxDim));
  for (const KernelTask& task : tasks)
    if (task.q.block.kind != BlockKind::kQ) return Lacks("gradients");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKernel>> CudaKernel::Create(Options options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ComputePool> pool, ComputePool::Create(options.threads));
  return std::unique_ptr<CudaKernel>(new CudaKernel(std::move(options.launcher), std::move(pool)));
}

std::string CudaKernel::Description() const {
  return absl::StrCat(launcher_->has_hopper() ? "cuda/wgmma+mma (" : "cuda/mma (",
                      launcher_->Description(), ")");
}

absl::Status CudaKernel::Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                    const KernelControl& control) {
  RETURN_IF_ERROR(CheckServed(job, tasks));
  ForwardKind kind = KindOf(job);
  kind.hopper = launcher_->has_hopper() && HopperServes(job, tasks);
  const CallVisibility visible(*job.mask, tasks, *pool_);
  ASSIGN_OR_RETURN(const std::vector<LaunchPieces> launches,
                   CutCall(job, tasks, visible, launcher_->max_tables(), kind.hopper));
  for (const LaunchPieces& pieces : launches) {
    if (control.stop != nullptr && control.stop->load())
      return absl::CancelledError("the kernel was told to stop");
    Launch launch = MakeLaunch(job, tasks, visible, pieces, kind.hopper);
    RETURN_IF_ERROR(launcher_->EncodeMaps(launch.maps, launch.bytes.data() + launch.args.at.maps));
    ASSIGN_OR_RETURN(launch.args.tables, launcher_->Upload(launch.bytes));
    RETURN_IF_ERROR(launcher_->Forward(kind, launch.args, launch.blocks));
    if (control.progress != nullptr) control.progress->fetch_add(launch.blocks);
  }
  return absl::OkStatus();
}

absl::Status CudaKernel::Apply(const KernelJob& job, const KernelOp& op) {
  ASSIGN_OR_RETURN(OpArgs args, MakeOpArgs(job, op));
  if (args.cells == 0) return absl::OkStatus();
  if (NeedsSinks(job, args)) {
    const std::vector<float>& sinks = job.spec->modifiers.sinks;
    ASSIGN_OR_RETURN(args.sinks,
                     launcher_->Upload({reinterpret_cast<const std::byte*>(sinks.data()),
                                        sinks.size() * sizeof(float)}));
  }
  return launcher_->Op(args, (args.cells + kOpCells - 1) / kOpCells);
}

}  // namespace annulus::cuda
