#include "worker/backend.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/error.h"
#include "attention/status_macros.h"
#include "worker/comm/gloo.h"
#include "worker/device/host.h"
#include "worker/kernel/cpu_kernel.h"
#include "worker/kernel/isa_dispatch.h"
#include "worker/self_check.h"

namespace annulus {
namespace {

// One that was asked for by name is that one or none.
absl::StatusOr<CheckedPath> ChoosePath(const std::string& name) {
  if (name == "auto") return FirstSoundPath(AvailableIsas());
  ASSIGN_OR_RETURN(const TileIsa* isa, SelectIsa(name));
  absl::StatusOr<CheckedPath> path = FirstSoundPath({&isa, 1});
  if (path.ok()) return path;
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("kernel path \"", name, "\" fails its check on this CPU (",
                                CpuModel(), "): ", path.status().message()),
                   {"KERNEL_SELF_CHECK_FAILED", {{"path", name}, {"cpu", CpuModel()}}, {}, {}});
}

}  // namespace

absl::StatusOr<Engine> MakeEngine(const BackendOptions& options) {
  CpuKernel::Options kernel;
  kernel.threads = options.threads;
  ASSIGN_OR_RETURN(const CheckedPath path, ChoosePath(options.kernel));
  kernel.isa = path.isa;
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuKernel> probe, CpuKernel::Create(kernel));
  Engine engine;
  engine.serves_bf16x3 = probe->serves_bf16x3();
  engine.description = absl::StrCat(probe->Description(), " + gloo");
  if (!path.passed_over.empty())
    absl::StrAppend(&engine.description, " (", absl::StrJoin(path.passed_over, ", "), ")");
  engine.make_device = []() -> absl::StatusOr<std::unique_ptr<Device>> { return MakeHostDevice(); };
  engine.make_kernel = [kernel](Device*) -> absl::StatusOr<std::unique_ptr<AttentionKernel>> {
    return CpuKernel::Create(kernel);
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

}  // namespace annulus
