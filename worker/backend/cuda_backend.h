#ifndef ANNULUS_WORKER_BACKEND_CUDA_BACKEND_H_
#define ANNULUS_WORKER_BACKEND_CUDA_BACKEND_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/spec/spec.h"
#include "worker/backend/backend_options.h"
#include "worker/lane/engine.h"

namespace annulus {

// The number of GPUs. FAILED_PRECONDITION with a one-line message if this program or machine can
// use none. Implemented twice: with the CUDA toolkit and without.
absl::StatusOr<int> GpusHere();

// The engine of one GPU. Chooses its kernel, with a check in a child process if needed
// (worker/backend/hopper_choice.h); allocates memory; loads NCCL; and compares the kernel's results
// with the CPU's portable kernel. FAILED_PRECONDITION with a one-line message. INTERNAL: the kernel
// fails its check.
absl::StatusOr<Engine> MakeCudaEngine(const BackendOptions& options, int ordinal);

// Compares the sm_90a kernel of `operation` with the CPU's portable kernel on this GPU. Allocates
// GPU memory and may hang, so it needs its own process.
absl::Status CheckHopperOn(const std::string& device, Operation operation);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_CUDA_BACKEND_H_
