#include "worker/device/cuda_context.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

constexpr int kLeastMajor = 8;  // Ampere.

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

absl::Status Unusable(const absl::string_view what) { return absl::FailedPreconditionError(what); }

// A one-line error for the user who starts the process.
absl::Status StartError(CudaApi* api, CudaError error, absl::string_view what) {
  if (error == kCudaSuccess) return absl::OkStatus();
  if (error == kCudaDevicesUnavailable) {
    return Unusable("the GPU is busy: another process uses it exclusively (compute mode)");
  }
  return Unusable(absl::StrCat(what, ": ", api->ErrorText(error)));
}

}  // namespace

absl::Status CudaStatus(CudaApi* api, CudaError error, absl::string_view what) {
  if (error == kCudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", api->ErrorText(error));
  if (error == kCudaOutOfMemory) {
    return MakeError(absl::StatusCode::kResourceExhausted, text, {"OUT_OF_MEMORY", {}, {}, {}});
  }
  return MakeError(absl::StatusCode::kInternal, text,
                   {std::string(kReasonDeviceFault), {}, {}, {}});
}

absl::StatusOr<int> CountGpus(CudaApi* api) {
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/1);
  int driver = 0, runtime = 0;
  RETURN_IF_ERROR(StartError(api, api->Versions(&driver, &runtime), "CUDA's versions"));
  if (driver == 0) return Unusable("this machine has no NVIDIA driver");
  // A driver supports every runtime of its own major version and of earlier ones.
  if (driver / 1000 < runtime / 1000) {
    return Unusable(absl::StrCat("the NVIDIA driver is too old: it supports CUDA ",
                                 VersionText(driver), ", but this program needs ", runtime / 1000,
                                 ".0"));
  }
  int count = 0;
  const CudaError error = api->DeviceCount(&count);
  if (error == kCudaNoDevice || (error == kCudaSuccess && count == 0)) {
    return Unusable("this machine has no GPU");
  }
  if (error == kCudaInsufficientDriver) return Unusable("the NVIDIA driver is too old");
  RETURN_IF_ERROR(StartError(api, error, "the number of GPUs"));
  return count;
}

bool HasCapability(CudaApi* api, int ordinal, int major, int minor) {
  const absl::StatusOr<int> count = CountGpus(api);
  CudaProperties properties;
  return count.ok() && ordinal >= 0 && ordinal < *count &&
         api->Properties(ordinal, &properties) == kCudaSuccess && properties.major == major &&
         properties.minor == minor;
}

absl::StatusOr<std::shared_ptr<CudaContext>> CudaContext::Create(CudaApi* api,
                                                                 const Options& options) {
  std::shared_ptr<CudaContext> context(new CudaContext(api, options));
  RETURN_IF_ERROR(context->Open());
  RETURN_IF_ERROR(context->TakeMemory());
  return context;
}

absl::Status CudaContext::Open() {
  ASSIGN_OR_RETURN(const int count, CountGpus(api_));
  const int ordinal = options_.ordinal;
  if (ordinal < 0 || ordinal >= count) {
    return Unusable(absl::StrCat("no GPU cuda:", ordinal, ": this machine has ", count,
                                 " GPUs, numbered from 0"));
  }
  const std::string name = absl::StrCat("cuda:", ordinal);
  RETURN_IF_ERROR(StartError(api_, api_->Properties(ordinal, &properties_), name));
  if (properties_.major < kLeastMajor) {
    return Unusable(absl::StrCat(name, " is a ", properties_.name, " of compute capability ",
                                 properties_.major, ".", properties_.minor, ": ", kLeastMajor,
                                 ".0 is needed"));
  }
  if (properties_.shared_bytes_per_block < options_.shared_bytes) {
    return Unusable(absl::StrCat(
        name, " is a ", properties_.name, " with ", properties_.shared_bytes_per_block,
        " bytes of shared memory for a kernel: ", options_.shared_bytes, " bytes are needed"));
  }
  RETURN_IF_ERROR(StartError(api_, api_->SetDevice(ordinal), name));
  int driver = 0, runtime = 0;
  RETURN_IF_ERROR(StartError(api_, api_->Versions(&driver, &runtime), name));
  const std::string links = api_->Links(properties_.place);
  description_ = absl::StrCat(properties_.name, " (sm_", properties_.major, properties_.minor,
                              ") at ", properties_.place, links.empty() ? "" : ", ", links,
                              ", CUDA ", VersionText(runtime), ", driver ", VersionText(driver));
  return absl::OkStatus();
}

absl::Status CudaContext::TakeMemory() {
  int64_t free = 0;
  RETURN_IF_ERROR(StartError(api_, api_->MemoryFree(&free), "free memory"));
  const int64_t bytes = options_.arena_bytes + options_.workspace_bytes;
  std::byte* memory = nullptr;
  CudaApi* const api = api_;
  CudaError error = api->Malloc(&memory, bytes);
  if (error == kCudaOutOfMemory) {
    return Unusable(absl::StrCat("not enough memory on cuda:", options_.ordinal, ": ", bytes,
                                 " bytes requested, ", free, " of ", properties_.memory_bytes,
                                 " free"));
  }
  RETURN_IF_ERROR(StartError(api, error, "device memory"));
  memory_ = MemorySlab::Create(
      std::shared_ptr<std::byte>(memory, [api](std::byte* p) { (void)api->Free(p); }), bytes);
  if (options_.staging_bytes == 0) return absl::OkStatus();
  error = api->HostMalloc(&memory, options_.staging_bytes);
  if (error == kCudaOutOfMemory) {
    return Unusable(absl::StrCat("cannot pin ", options_.staging_bytes, " bytes for staging"));
  }
  RETURN_IF_ERROR(StartError(api, error, "pinned memory"));
  staging_ = MemorySlab::Create(
      std::shared_ptr<std::byte>(memory, [api](std::byte* p) { (void)api->HostFree(p); }),
      options_.staging_bytes);
  return absl::OkStatus();
}

}  // namespace annulus
