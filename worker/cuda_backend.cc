#include "worker/cuda_backend.h"

#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/capability.h"
#include "attention/error.h"
#include "attention/status_macros.h"
#include "base/log.h"
#include "worker/comm/bind_address.h"
#include "worker/comm/nccl.h"
#include "worker/comm/nccl_library.h"
#include "worker/device/cuda_device.h"
#include "worker/device/cuda_runtime.h"
#include "worker/kernel/cpu_kernel.h"
#include "worker/kernel/cuda/compiled_kernels.h"
#include "worker/kernel/cuda/cuda_kernel.h"
#include "worker/kernel/cuda/device_launcher.h"
#include "worker/kernel/cuda/shared_bytes.h"
#include "worker/self_check.h"

namespace annulus {
namespace {

constexpr char kNcclInterface[] = "NCCL_SOCKET_IFNAME";

// Where NCCL's ranks find each other. What the environment says goes first: it may name several.
absl::Status SetInterface(const BackendOptions& options) {
  std::string interface = options.comm_interface;
  if (interface.empty()) {
    ASSIGN_OR_RETURN(interface, InterfaceOf(options.comm_host));
  }
  if (const char* const set = std::getenv(kNcclInterface); set != nullptr) {
    LogInfo(kNoJob, kNcclInterface, "=", set, " goes before --comm-address");
    return absl::OkStatus();
  }
  setenv(kNcclInterface, absl::StrCat("=", interface).c_str(), /*overwrite=*/0);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<AttentionKernel>> MakeKernel(Device* device, int threads) {
  cuda::CudaKernel::Options options;
  options.threads = threads;
  ASSIGN_OR_RETURN(options.launcher, cuda::DeviceLauncher::Create(static_cast<CudaDevice*>(device),
                                                                  cuda::CompiledKernels()));
  return cuda::CudaKernel::Create(std::move(options));
}

// A GPU whose numbers are wrong must not serve.
absl::Status CheckNumbers(const Engine& engine) {
  CpuKernel::Options portable;
  portable.isa = &kPortableIsa;
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuKernel> yardstick, CpuKernel::Create(portable));
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, engine.make_device());
  ASSIGN_OR_RETURN(const std::unique_ptr<AttentionKernel> kernel, engine.make_kernel(device.get()));
  absl::Status checked = CheckKernel(*kernel, *yardstick, device.get());
  if (checked.ok()) checked = CheckKernelsByShape(*kernel, *yardstick, device.get());
  if (checked.ok()) return checked;
  return MakeError(checked.code(),
                   absl::StrCat(device->Description(), " fails its check: ", checked.message()),
                   DetailOf(checked));
}

}  // namespace

absl::StatusOr<int> GpusHere() { return CountGpus(CudaRuntime()); }

absl::StatusOr<Engine> MakeCudaEngine(const BackendOptions& options, int ordinal) {
  CudaContext::Options context_options;
  context_options.ordinal = ordinal;
  context_options.arena_bytes = options.device_bytes;
  context_options.staging_bytes = options.staging_bytes;
  context_options.shared_bytes = cuda::kMostSharedBytes;
  ASSIGN_OR_RETURN(const std::shared_ptr<CudaContext> context,
                   CudaContext::Create(CudaRuntime(), context_options));
  RETURN_IF_ERROR(SetInterface(options));
  ASSIGN_OR_RETURN(std::unique_ptr<NcclApi> loaded, LoadNccl(options.nccl_library));
  const std::shared_ptr<NcclApi> nccl = std::move(loaded);
  Engine engine;
  engine.make_device = [context]() -> absl::StatusOr<std::unique_ptr<Device>> {
    return CudaDevice::Create(context);
  };
  engine.make_solo_device = [context]() -> absl::StatusOr<std::unique_ptr<Device>> {
    return CudaDevice::Create(context, CudaPriority::kSolo);
  };
  if (options.staging_bytes > 0) {
    engine.take_staging = [context](int64_t bytes) { return context->staging()->Take(bytes); };
  }
  engine.make_kernel = [threads = options.threads](Device* device) {
    return MakeKernel(device, threads);
  };
  engine.make_communicator = [nccl](Device* device, int32_t rank, int32_t size) {
    NcclOptions made;
    made.api = nccl.get();
    made.device = static_cast<CudaDevice*>(device);
    made.rank = rank;
    made.size = size;
    return MakeNcclCommunicator(made);
  };
  engine.lacks.assign(CudaLacks().begin(), CudaLacks().end());
  engine.device_kind = DeviceKind::kCuda;
  engine.one_rank_a_process = true;
  engine.description = absl::StrCat("cuda/mma + nccl ", NcclVersionText(nccl->Version()), ", ",
                                    context->description());
  RETURN_IF_ERROR(CheckNumbers(engine));
  return engine;
}

}  // namespace annulus
