#include "worker/backend/backend.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/validate/capability.h"
#include "base/device_name.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/backend/cuda_backend.h"
#include "worker/backend/self_check.h"
#include "worker/comm/gloo.h"
#include "worker/device/host.h"
#include "worker/kernel/cpu/cpu_kernel.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus {
namespace {

// A path given by name has no replacement.
absl::StatusOr<CheckedPath> ChoosePath(const BackendOptions& options) {
  const std::string& name = options.kernel;
  if (name == "auto")
    return FirstSoundPath(options.cpu_paths.empty() ? AvailableIsas() : options.cpu_paths);
  ASSIGN_OR_RETURN(const TileIsa* isa, SelectIsa(name));
  absl::StatusOr<CheckedPath> path = FirstSoundPath({&isa, 1});
  if (path.ok()) return path;
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("kernel path \"", name, "\" fails its check on this CPU (",
                                CpuModel(), "): ", path.status().message()),
                   {"KERNEL_SELF_CHECK_FAILED", {{"path", name}, {"cpu", CpuModel()}}, {}, {}});
}

absl::StatusOr<Engine> MakeCpuEngine(const BackendOptions& options) {
  if (options.cuda_kernel != "auto") {
    return absl::InvalidArgumentError(absl::StrCat("the CUDA kernel \"", options.cuda_kernel,
                                                   "\" needs a GPU, but the device is a CPU"));
  }
  if (!options.cudnn_library.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("cuDNN (\"", options.cudnn_library,
                                                   "\") needs a GPU, but the device is a CPU"));
  }
  if (options.nccl_library != BackendOptions::kNcclLibrary) {
    return absl::InvalidArgumentError(
        absl::StrCat("NCCL (\"", options.nccl_library, "\") needs a GPU, but the device is a CPU"));
  }
  CpuKernel::Options kernel;
  kernel.threads = options.threads;
  ASSIGN_OR_RETURN(const CheckedPath path, ChoosePath(options));
  kernel.isa = path.isa;
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuKernel> probe, CpuKernel::Create(kernel));
  Engine engine;
  if (!probe->serves_bf16x3()) {
    engine.lacks.push_back(
        {kBf16x3Feature, /*served=*/false, "It needs a CPU with AMX.", "spec.arithmetic"});
  }
  engine.any_thread = true;
  engine.arithmetic = probe->Description();
  engine.description = absl::StrCat(engine.arithmetic, " + gloo");
  if (!path.passed_over.empty())
    absl::StrAppend(&engine.description, " (", absl::StrJoin(path.passed_over, ", "), ")");
  engine.make_device = [memory = MakeHostMemory(options.device_bytes),
                        threads = options.threads]() -> absl::StatusOr<std::unique_ptr<Device>> {
    ASSIGN_OR_RETURN(std::shared_ptr<ComputePool> pool, ComputePool::Create(threads));
    return std::make_unique<HostDevice>(memory, std::move(pool));
  };
  engine.make_kernel =
      [kernel](Device* device) -> absl::StatusOr<std::unique_ptr<AttentionKernel>> {
    CpuKernel::Options options = kernel;
    options.pool = static_cast<HostDevice*>(device)->pool();
    return CpuKernel::Create(options);
  };
  engine.make_communicator = [options](Device*, int32_t rank, int32_t size) {
    GlooOptions gloo;
    gloo.rank = rank;
    gloo.size = size;
    gloo.host = options.comm_host;
    gloo.interface = options.comm_interface;
    return MakeGlooCommunicator(gloo);
  };
  return engine;
}

// The GPU to use; nullopt: the CPU.
absl::StatusOr<std::optional<int>> ChooseGpu(const BackendOptions& options) {
  if (options.device == "cpu") return std::nullopt;
  if (options.device == "auto") {
    const absl::StatusOr<int> gpus = GpusHere();
    if (gpus.ok()) {
      LogInfo(kNoJob, "GPUs: ", *gpus, "; using cuda:0");
    } else {
      LogInfo(kNoJob, "no GPU: ", gpus.status().message(), "; using the CPU");
      return std::nullopt;
    }
  }
  if (options.kernel != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel path \"", options.kernel, "\" needs a CPU, but the device is a GPU"));
  }
  if (options.device == "auto") return 0;
  ASSIGN_OR_RETURN(const int number, GpuNumber(options.device));
  return number;
}

}  // namespace

absl::StatusOr<Engine> MakeEngine(const BackendOptions& options) {
  ASSIGN_OR_RETURN(const std::optional<int> gpu, ChooseGpu(options));
  return gpu.has_value() ? MakeCudaEngine(options, *gpu) : MakeCpuEngine(options);
}

}  // namespace annulus
