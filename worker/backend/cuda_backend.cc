#include "worker/backend/cuda_backend.h"

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/validate/capability.h"
#include "base/device_name.h"
#include "base/error.h"
#include "base/log.h"
#include "base/run_child.h"
#include "base/status_macros.h"
#include "worker/backend/cudnn_check.h"
#include "worker/backend/hopper_check.h"
#include "worker/backend/hopper_choice.h"
#include "worker/backend/self_check.h"
#include "worker/comm/bind_address.h"
#include "worker/comm/nccl.h"
#include "worker/comm/nccl_library.h"
#include "worker/device/cuda_device.h"
#include "worker/device/cuda_runtime.h"
#include "worker/kernel/cpu/cpu_kernel.h"
#include "worker/kernel/cuda/cudnn/cudnn_kernel.h"
#include "worker/kernel/cuda/cudnn/cudnn_library.h"
#include "worker/kernel/cuda/device_kernel.h"
#include "worker/kernel/cuda/sm80/shared_bytes.h"

namespace annulus {
namespace {

constexpr char kNcclInterface[] = "NCCL_SOCKET_IFNAME";
// Memory of a checking process, in addition to CUDA's own.
constexpr int64_t kCheckArenaBytes = int64_t{64} << 20, kCheckWorkspaceBytes = int64_t{64} << 20;

// Sets the network interface for NCCL's connection setup. The environment has precedence: it may
// name several interfaces.
absl::Status SetInterface(const BackendOptions& options) {
  ASSIGN_OR_RETURN(const std::string interface,
                   InterfaceOf(options.comm_host, options.comm_interface));
  if (const char* const set = std::getenv(kNcclInterface); set != nullptr) {
    LogInfo(kNoJob, kNcclInterface, "=", set, " overrides --comm-address");
    return absl::OkStatus();
  }
  setenv(kNcclInterface, absl::StrCat("=", interface).c_str(), /*overwrite=*/0);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CpuKernel>> MakeYardstick() {
  CpuKernel::Options portable;
  portable.isa = &kPortableIsa;
  return CpuKernel::Create(portable);
}

// Must be called before this process uses the GPU, which may allow only one process.
absl::StatusOr<HopperChoice> ChooseKernel(const BackendOptions& options, int ordinal) {
  const auto check = [&](Operation operation) -> ChildEnd {
    const bool gradients = operation == Operation::kGradients;
    std::vector<std::string> command =
        gradients ? options.hopper_gradients_check : options.hopper_check;
    if (command.empty()) return {ChildEnd::Kind::kNotStarted, ENOENT, ""};
    command.push_back(absl::StrCat("cuda:", ordinal));
    return RunChild(command, kHopperCheckTime);
  };
  RETURN_IF_ERROR(GpusHere().status());
  return ChooseHopper(options.cuda_kernel, HasCapability(CudaRuntime(), ordinal, 9, 0), check);
}

// Holds the cuDNN scratch and workspace memory of all lanes' kernels.
constexpr int64_t kCudnnBytes = int64_t{256} << 20;

absl::Status CheckAtStart(AttentionKernel& kernel, AttentionKernel& yardstick, Device* device) {
  RETURN_IF_ERROR(CheckKernel(kernel, yardstick, device));
  RETURN_IF_ERROR(CheckKernelsByShape(kernel, yardstick, device));
  return CheckNonfinite(kernel, yardstick, device);
}

absl::Status CheckKernelOn(Device* device, const cuda::DeviceKernelOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuKernel> yardstick, MakeYardstick());
  ASSIGN_OR_RETURN(const std::unique_ptr<AttentionKernel> kernel,
                   cuda::MakeDeviceKernel(static_cast<CudaDevice*>(device), options));
  return CheckAtStart(*kernel, *yardstick, device);
}

absl::Status CheckCudnnOn(Device* device, const cuda::DeviceKernelOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuKernel> yardstick, MakeYardstick());
  ASSIGN_OR_RETURN(const std::unique_ptr<cuda::CudnnKernel> kernel,
                   cuda::MakeCudnnKernel(static_cast<CudaDevice*>(device), options));
  return CheckCudnn(*kernel, *yardstick, device, [&] { return kernel->rectangles(); });
}

absl::Status Failing(absl::string_view what, const absl::Status& checked) {
  return MakeError(checked.code(), absl::StrCat(what, " fails its check: ", checked.message()),
                   DetailOf(checked));
}

// A GPU with wrong results must not serve. cuDNN's check includes jobs that are smaller than those
// that it gets in operation.
absl::Status CheckNumbers(const Engine& engine, cuda::DeviceKernelOptions options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, engine.make_device());
  cuda::DeviceKernelOptions own = options;
  own.cudnn = nullptr;
  if (const absl::Status checked = CheckKernelOn(device.get(), own); !checked.ok())
    return Failing(device->Description(), checked);
  if (options.cudnn == nullptr) return absl::OkStatus();
  options.rule.least_rows = options.rule.least_keys = 1;
  options.rule.granule = 8;
  const absl::Status checked = CheckCudnnOn(device.get(), options);
  if (checked.ok() || absl::IsFailedPrecondition(checked)) return checked;
  return Failing(absl::StrCat("cuDNN on ", device->Description()), checked);
}

}  // namespace

absl::StatusOr<int> GpusHere() { return CountGpus(CudaRuntime()); }

absl::StatusOr<Engine> MakeCudaEngine(const BackendOptions& options, int ordinal) {
  ASSIGN_OR_RETURN(const HopperChoice choice, ChooseKernel(options, ordinal));
  CudaContext::Options context_options;
  context_options.ordinal = ordinal;
  context_options.arena_bytes = options.device_bytes;
  context_options.staging_bytes = options.staging_bytes;
  context_options.shared_bytes = cuda::kMostSharedBytes;
  if (!options.cudnn_library.empty()) context_options.workspace_bytes += kCudnnBytes;
  ASSIGN_OR_RETURN(const std::shared_ptr<CudaContext> context,
                   CudaContext::Create(CudaRuntime(), context_options));
  RETURN_IF_ERROR(SetInterface(options));
  ASSIGN_OR_RETURN(std::unique_ptr<NcclApi> loaded, LoadNccl(options.nccl_library));
  const std::shared_ptr<NcclApi> nccl = std::move(loaded);
  cuda::DeviceKernelOptions kernel_options;
  kernel_options.threads = options.threads;
  kernel_options.hopper = {choice.on, choice.gradients, NcclCtasOf(NcclEnvironment::OfProcess())};
  if (!options.cudnn_library.empty()) {
    ASSIGN_OR_RETURN(kernel_options.cudnn, cuda::LoadCudnn(options.cudnn_library));
  }
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
  engine.make_kernel = [kernel_options](Device* device) {
    return cuda::MakeDeviceKernel(static_cast<CudaDevice*>(device), kernel_options);
  };
  const auto lost_ids = std::make_shared<NcclLostIds>();
  engine.worn = [lost_ids] { return lost_ids->Complaint(); };
  engine.make_communicator = [nccl, lost_ids](Device* device, int32_t rank, int32_t size) {
    NcclOptions made;
    made.api = nccl.get();
    made.device = static_cast<CudaDevice*>(device);
    made.rank = rank;
    made.size = size;
    made.lost_ids = lost_ids.get();
    return MakeNcclCommunicator(made);
  };
  engine.lacks.assign(CudaLacks().begin(), CudaLacks().end());
  engine.device_kind = DeviceKind::kCuda;
  engine.one_rank_a_process = true;
  const std::string cudnn =
      kernel_options.cudnn == nullptr
          ? ""
          : absl::StrCat(" + cudnn ", cuda::CudnnVersionText(kernel_options.cudnn->Version()));
  const CudaProperties& gpu = context->properties();
  // Deterministic jobs use no other kernel.
  engine.arithmetic = absl::StrCat("cuda/mma on sm_", gpu.major, gpu.minor);
  engine.description =
      absl::StrCat(choice.kernels(), cudnn, " + nccl ", NcclVersionText(nccl->Version()), ", ",
                   context->description(), choice.note());
  RETURN_IF_ERROR(CheckNumbers(engine, std::move(kernel_options)));
  return engine;
}

absl::Status CheckHopperOn(const std::string& device_name, Operation operation) {
  ASSIGN_OR_RETURN(const int ordinal, GpuNumber(device_name));
  CudaContext::Options options;
  options.ordinal = ordinal;
  options.arena_bytes = kCheckArenaBytes;
  options.workspace_bytes = kCheckWorkspaceBytes;
  options.shared_bytes = cuda::kMostSharedBytes;
  ASSIGN_OR_RETURN(const std::shared_ptr<CudaContext> context,
                   CudaContext::Create(CudaRuntime(), options));
  ASSIGN_OR_RETURN(const std::unique_ptr<CudaDevice> device, CudaDevice::Create(context));
  cuda::DeviceKernelOptions kernel_options;
  const bool gradients = operation == Operation::kGradients;
  kernel_options.hopper = {/*on=*/true, gradients, kNcclCtas};
  ASSIGN_OR_RETURN(const std::unique_ptr<cuda::CudaKernel> kernel,
                   cuda::MakeCudaKernel(device.get(), kernel_options));
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuKernel> yardstick, MakeYardstick());
  const auto launches = [&] {
    return gradients ? kernel->hopper_gradient_launches() : kernel->hopper_launches();
  };
  RETURN_IF_ERROR(
      CheckHopper(*kernel, *yardstick, device.get(), HopperCheckSpecs(operation), launches));
  // The same checks as at a worker's start.
  return CheckAtStart(*kernel, *yardstick, device.get());
}

}  // namespace annulus
