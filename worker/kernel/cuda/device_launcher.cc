#include "worker/kernel/cuda/device_launcher.h"

#include "absl/strings/str_cat.h"
#include "attention/status_macros.h"
#include "worker/kernel/cuda/forward_config.h"

namespace annulus::cuda {

absl::StatusOr<std::unique_ptr<DeviceLauncher>> DeviceLauncher::Create(CudaDevice* device,
                                                                       KernelTable* kernels,
                                                                       int64_t table_bytes) {
  std::unique_ptr<DeviceLauncher> launcher(new DeviceLauncher(device, kernels, table_bytes));
  RETURN_IF_ERROR(device->MakeCurrent());
  const CudaProperties& properties = device->context()->properties();
  RETURN_IF_ERROR(
      device->Check(kernels->Prepare(properties.shared_bytes_per_block), "loading the kernels"));
  ASSIGN_OR_RETURN(launcher->tables_, device->Allocate(table_bytes));
  return launcher;
}

absl::StatusOr<const std::byte*> DeviceLauncher::Upload(absl::Span<const std::byte> tables) {
  const auto bytes = static_cast<int64_t>(tables.size());
  if (bytes > table_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("tables of ", bytes, " bytes, more than ", table_bytes_));
  }
  RETURN_IF_ERROR(device_->Upload(tables_.get(), tables.data(), bytes));
  return tables_.get();
}

absl::Status DeviceLauncher::Forward(const ForwardKind& kind, const ForwardArgs& args,
                                     int64_t blocks) {
  const int64_t shared = SharedBytesOf(kind);
  if (shared > device_->context()->properties().shared_bytes_per_block) {
    return absl::UnimplementedError(absl::StrCat(
        "this GPU has less shared memory than the kernel for head dimension ", kind.dim, " takes"));
  }
  ASSIGN_OR_RETURN(const CudaStream stream, device_->Compute());
  return device_->Check(kernels_->Forward(kind, args, blocks, stream), "launching attention");
}

absl::Status DeviceLauncher::Op(const OpArgs& args, int64_t blocks) {
  ASSIGN_OR_RETURN(const CudaStream stream, device_->Compute());
  return device_->Check(kernels_->Op(args, blocks, stream), "launching an operation");
}

}  // namespace annulus::cuda
