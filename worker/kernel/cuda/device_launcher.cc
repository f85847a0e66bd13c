#include "worker/kernel/cuda/device_launcher.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/launch/hopper_plan.h"
#include "worker/kernel/cuda/sm80/forward_config.h"
#include "worker/kernel/cuda/sm80/gradient_config.h"
#include "worker/kernel/cuda/sm90/hopper_gradient_config.h"

namespace annulus::cuda {

absl::StatusOr<std::unique_ptr<DeviceLauncher>> DeviceLauncher::Create(CudaDevice* device,
                                                                       KernelTable* kernels,
                                                                       const LauncherMemory& memory,
                                                                       const HopperUse& hopper) {
  const CudaProperties& properties = device->context()->properties();
  // Code for sm_90a runs on no other architecture, not even on a later one.
  const bool is_hopper = properties.major == 9 && properties.minor == 0;
  const int kept = device->priority() == CudaPriority::kSolo ? 0 : hopper.kept;
  std::unique_ptr<DeviceLauncher> launcher(new DeviceLauncher(
      device, kernels, memory, {hopper.on && is_hopper, hopper.gradients, kept}));
  RETURN_IF_ERROR(device->MakeCurrent());
  RETURN_IF_ERROR(
      device->Check(kernels->Prepare(properties.shared_bytes_per_block), "loading the kernels"));
  ASSIGN_OR_RETURN(launcher->tables_, device->Allocate(memory.table_bytes));
  ASSIGN_OR_RETURN(launcher->partials_, device->Allocate(memory.partial_bytes));
  return launcher;
}

absl::StatusOr<const std::byte*> DeviceLauncher::Upload(absl::Span<const std::byte> tables) {
  const auto bytes = static_cast<int64_t>(tables.size());
  if (bytes > memory_.table_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("tables of ", bytes, " bytes are above the limit of ", memory_.table_bytes));
  }
  RETURN_IF_ERROR(device_->Upload(tables_.get(), tables.data(), bytes));
  return tables_.get();
}

absl::Status DeviceLauncher::EncodeMaps(absl::Span<const TensorMapSpec> maps, std::byte* to) {
  // The thread may not have used CUDA before, and the driver needs a context.
  RETURN_IF_ERROR(device_->MakeCurrent());
  for (size_t i = 0; i < maps.size(); ++i) {
    int refusal = 0;
    const CudaError error = kernels_->EncodeMap(maps[i], to + i * kMapBytes, &refusal);
    if (refusal != 0) {
      return absl::UnimplementedError(absl::StrCat("the driver refuses the map of a tensor of ",
                                                   maps[i].rows, " rows (CUresult ", refusal, ")"));
    }
    RETURN_IF_ERROR(device_->Check(error, "describing a tensor to the GPU"));
  }
  return absl::OkStatus();
}

absl::Status DeviceLauncher::CheckShared(int64_t bytes, int dim) const {
  if (bytes <= device_->context()->properties().shared_bytes_per_block) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "this GPU has less shared memory than the kernel for head dimension ", dim, " needs"));
}

absl::Status DeviceLauncher::Forward(const ForwardKind& kind, const ForwardArgs& args,
                                     int64_t blocks) {
  RETURN_IF_ERROR(
      CheckShared(kind.hopper ? HopperSharedBytes(kind.dim) : SharedBytesOf(kind), kind.dim));
  if (kind.hopper) {
    const int multiprocessors = device_->context()->properties().multiprocessors;
    blocks = HopperBlocks(blocks, multiprocessors, hopper_.kept);
  }
  ASSIGN_OR_RETURN(const CudaStream stream, device_->Compute());
  return device_->Check(kernels_->Forward(kind, args, blocks, stream), "launching attention");
}

absl::Status DeviceLauncher::Gradients(const GradientKind& kind, const GradientArgs& args,
                                       int64_t blocks) {
  RETURN_IF_ERROR(
      CheckShared(kind.forward.hopper ? HopperGradientSharedBytes(kind) : SharedBytesOf(kind),
                  kind.forward.dim));
  ASSIGN_OR_RETURN(const CudaStream stream, device_->Compute());
  return device_->Check(kernels_->Gradients(kind, args, blocks, stream), "launching gradients");
}

absl::Status DeviceLauncher::Op(const OpArgs& args, int64_t blocks) {
  ASSIGN_OR_RETURN(const CudaStream stream, device_->Compute());
  return device_->Check(kernels_->Op(args, blocks, stream), "launching an operation");
}

}  // namespace annulus::cuda
