#ifndef ANNULUS_WORKER_BACKEND_CUDA_BACKEND_H_
#define ANNULUS_WORKER_BACKEND_CUDA_BACKEND_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/spec/spec.h"
#include "worker/backend/backend_options.h"
#include "worker/lane/engine.h"

namespace annulus {

// How many GPUs there are; FAILED_PRECONDITION in one line where this program or this machine can
// use none. There are two implementations: with the CUDA toolkit and without it.
absl::StatusOr<int> GpusHere();

// Of one GPU: has chosen its kernel, in a process of its own where that has to be checked first
// (worker/backend/hopper_choice.h), takes its memory, loads NCCL, and has compared the kernel's
// answers with those of the CPU's portable one. FAILED_PRECONDITION in one line, INTERNAL for a
// kernel that fails its check.
absl::StatusOr<Engine> MakeCudaEngine(const BackendOptions& options, int ordinal);

// Compares the kernel for sm_90a of an operation with the CPU's portable one on that GPU: takes
// some of its memory, and may hang. For a process of its own.
absl::Status CheckHopperOn(const std::string& device, Operation operation);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_CUDA_BACKEND_H_
