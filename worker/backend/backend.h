#ifndef ANNULUS_WORKER_BACKEND_BACKEND_H_
#define ANNULUS_WORKER_BACKEND_BACKEND_H_

#include "absl/status/statusor.h"
#include "worker/backend/backend_options.h"
#include "worker/lane/engine.h"

namespace annulus {

// Makes the engine that `options` select: the only place that pairs device, kernel and
// communicator. The kernel is checked against the portable one (worker/backend/self_check.h). With
// "auto", a path that fails its check is replaced by the next faster one; the log and the
// description show it. The log also shows which device "auto" selected, and why. INVALID_ARGUMENT:
// unknown kernel. FAILED_PRECONDITION: the named kernel is not available on this machine or fails
// its check. GPU errors: worker/backend/cuda_backend.h.
absl::StatusOr<Engine> MakeEngine(const BackendOptions& options);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_BACKEND_H_
