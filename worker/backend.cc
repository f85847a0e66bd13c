#include "worker/backend.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/status_macros.h"
#include "worker/comm/gloo.h"
#include "worker/device/host.h"
#include "worker/kernel/cpu_kernel.h"

namespace annulus {

absl::StatusOr<Engine> MakeEngine(const BackendOptions& options) {
  CpuKernel::Options kernel;
  kernel.threads = options.threads;
  kernel.path = options.kernel;
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuKernel> probe, CpuKernel::Create(kernel));
  Engine engine;
  engine.description = absl::StrCat(probe->Description(), " + gloo");
  engine.make_device = []() -> absl::StatusOr<std::unique_ptr<Device>> { return MakeHostDevice(); };
  engine.make_kernel = [kernel]() -> absl::StatusOr<std::unique_ptr<AttentionKernel>> {
    return CpuKernel::Create(kernel);
  };
  engine.make_communicator = [options](int32_t rank, int32_t size) {
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
