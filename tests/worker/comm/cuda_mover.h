#ifndef ANNULUS_TESTS_WORKER_COMM_CUDA_MOVER_H_
#define ANNULUS_TESTS_WORKER_COMM_CUDA_MOVER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/worker/comm/in_process.h"
#include "worker/device/cuda_device.h"

namespace annulus {

// For an InProcessHub whose ranks share one GPU, each with its own queues. A message is a copy in
// the GPU's memory. It runs after all work that its two ranks had queued at the start of the step,
// and in parallel with later work. `devices`, by rank and of one context, must outlive the hub.
absl::StatusOr<std::shared_ptr<MessageMover>> MakeCudaMover(std::vector<CudaDevice*> devices);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_COMM_CUDA_MOVER_H_
