#include "worker/cuda_backend.h"

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/capability.h"
#include "attention/error.h"
#include "attention/status_macros.h"
#include "base/child_process.h"
#include "base/device_name.h"
#include "base/log.h"
#include "worker/comm/bind_address.h"
#include "worker/comm/nccl.h"
#include "worker/comm/nccl_library.h"
#include "worker/device/cuda_device.h"
#include "worker/device/cuda_runtime.h"
#include "worker/hopper_check.h"
#include "worker/hopper_choice.h"
#include "worker/kernel/cpu_kernel.h"
#include "worker/kernel/cuda/compiled_kernels.h"
#include "worker/kernel/cuda/cuda_kernel.h"
#include "worker/kernel/cuda/device_launcher.h"
#include "worker/kernel/cuda/shared_bytes.h"
#include "worker/self_check.h"

namespace annulus {
namespace {

constexpr char kNcclInterface[] = "NCCL_SOCKET_IFNAME";
// Of a process that checks a kernel and ends: beside them CUDA's own.
constexpr int64_t kCheckArenaBytes = int64_t{64} << 20, kCheckWorkspaceBytes = int64_t{64} << 20;

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

absl::StatusOr<std::unique_ptr<cuda::CudaKernel>> MakeKernel(Device* device, int threads,
                                                             const cuda::HopperUse& hopper) {
  cuda::CudaKernel::Options options;
  options.threads = threads;
  ASSIGN_OR_RETURN(options.launcher,
                   cuda::DeviceLauncher::Create(static_cast<CudaDevice*>(device),
                                                cuda::CompiledKernels(), {}, hopper));
  return cuda::CudaKernel::Create(std::move(options));
}

absl::StatusOr<std::unique_ptr<CpuKernel>> MakeYardstick() {
  CpuKernel::Options portable;
  portable.isa = &kPortableIsa;
  return CpuKernel::Create(portable);
}

// Before this process takes anything of the GPU, which may be one that a single process has to
// itself.
absl::StatusOr<HopperChoice> ChooseKernel(const BackendOptions& options, int ordinal) {
  const auto check = [&]() -> ChildEnd {
    std::vector<std::string> command = options.hopper_check;
    if (command.empty()) return {ChildEnd::Kind::kNotStarted, ENOENT, ""};
    command.push_back(absl::StrCat("cuda:", ordinal));
    return RunChild(command, kHopperCheckTime);
  };
  RETURN_IF_ERROR(GpusHere().status());
  return ChooseHopper(options.cuda_kernel, HasCapability(CudaRuntime(), ordinal, 9, 0), check);
}

// A GPU whose numbers are wrong must not serve.
absl::Status CheckNumbers(const Engine& engine) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuKernel> yardstick, MakeYardstick());
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
  ASSIGN_OR_RETURN(const HopperChoice choice, ChooseKernel(options, ordinal));
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
  const cuda::HopperUse hopper = {choice.on,
                                  NcclCtasOf(nccl->Version(), std::getenv("NCCL_MAX_CTAS"))};
  engine.make_kernel = [threads = options.threads, hopper](
                           Device* device) -> absl::StatusOr<std::unique_ptr<AttentionKernel>> {
    return MakeKernel(device, threads, hopper);
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
  engine.description = absl::StrCat(choice.kernels(), " + nccl ", NcclVersionText(nccl->Version()),
                                    ", ", context->description(), choice.note());
  RETURN_IF_ERROR(CheckNumbers(engine));
  return engine;
}

absl::Status CheckHopperOn(const std::string& device_name) {
  ASSIGN_OR_RETURN(const int ordinal, GpuNumber(device_name));
  CudaContext::Options options;
  options.ordinal = ordinal;
  options.arena_bytes = kCheckArenaBytes;
  options.workspace_bytes = kCheckWorkspaceBytes;
  options.shared_bytes = cuda::kMostSharedBytes;
  ASSIGN_OR_RETURN(const std::shared_ptr<CudaContext> context,
                   CudaContext::Create(CudaRuntime(), options));
  ASSIGN_OR_RETURN(const std::unique_ptr<CudaDevice> device, CudaDevice::Create(context));
  ASSIGN_OR_RETURN(const std::unique_ptr<cuda::CudaKernel> kernel,
                   MakeKernel(device.get(), /*threads=*/1, {/*on=*/true, kNcclCtas}));
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuKernel> yardstick, MakeYardstick());
  RETURN_IF_ERROR(CheckHopper(*kernel, *yardstick, device.get(), HopperCheckSpecs(),
                              [&] { return kernel->hopper_launches(); }));
  // What the worker itself goes through at its start.
  RETURN_IF_ERROR(CheckKernel(*kernel, *yardstick, device.get()));
  return CheckKernelsByShape(*kernel, *yardstick, device.get());
}

}  // namespace annulus
