#ifndef ANNULUS_WORKER_CUDA_BACKEND_H_
#define ANNULUS_WORKER_CUDA_BACKEND_H_

#include "absl/status/statusor.h"
#include "worker/backend_options.h"
#include "worker/lane/engine.h"

namespace annulus {

// How many GPUs there are; FAILED_PRECONDITION in one line where this program or this machine can
// use none. There are two implementations: with the CUDA toolkit and without it.
absl::StatusOr<int> GpusHere();

// Of one GPU: takes its memory, loads NCCL, and has compared the kernel's answers with those of the
// CPU's portable one. FAILED_PRECONDITION in one line, INTERNAL for a kernel that fails its check.
absl::StatusOr<Engine> MakeCudaEngine(const BackendOptions& options, int ordinal);

}  // namespace annulus

#endif  // ANNULUS_WORKER_CUDA_BACKEND_H_
