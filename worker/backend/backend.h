#ifndef ANNULUS_WORKER_BACKEND_BACKEND_H_
#define ANNULUS_WORKER_BACKEND_BACKEND_H_

#include "absl/status/statusor.h"
#include "worker/backend/backend_options.h"
#include "worker/lane/engine.h"

namespace annulus {

// The one switch that pairs device, kernel and communicator. The kernel has been checked against
// the portable one (worker/backend/self_check.h): "auto" goes on to the next path where the fastest
// one fails, and says so in the log and in the description. INVALID_ARGUMENT for an unknown kernel,
// FAILED_PRECONDITION for one that this machine lacks or that fails its check;
// likewise for a GPU (worker/backend/cuda_backend.h). "auto" says in the log which device it took,
// and why.
absl::StatusOr<Engine> MakeEngine(const BackendOptions& options);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_BACKEND_H_
