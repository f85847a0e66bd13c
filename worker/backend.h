#ifndef ANNULUS_WORKER_BACKEND_H_
#define ANNULUS_WORKER_BACKEND_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/lane/engine.h"

namespace annulus {

struct BackendOptions {
  std::string kernel = "auto";  // "auto", "amx", "avx512", "avx2" or "portable".
  int threads = 1;              // Of one kernel.
  // Where ranks reach each other: an address or host name of this machine, or else the name of a
  // network interface.
  std::string comm_host;
  std::string comm_interface;
};

// The one switch that pairs device, kernel and communicator. The kernel has been checked against
// the portable one (worker/self_check.h): "auto" goes on to the next path where the fastest one
// fails, and says so in the log and in the description. INVALID_ARGUMENT for an unknown kernel,
// FAILED_PRECONDITION for one that this machine lacks or that fails its check.
absl::StatusOr<Engine> MakeEngine(const BackendOptions& options);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_H_
