#ifndef ANNULUS_WORKER_COMM_NCCL_H_
#define ANNULUS_WORKER_COMM_NCCL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"
#include "worker/comm/nccl_api.h"
#include "worker/comm/nccl_error_text.h"
#include "worker/device/cuda_device.h"

namespace annulus {

struct NcclOptions {
  NcclApi* api = nullptr;        // Must outlive the communicator, like `device`.
  CudaDevice* device = nullptr;  // The device that holds the messages' memory.
  int32_t rank = 0;
  int32_t size = 1;
  // Counts groups that did not form. May be nullptr. Must outlive the communicator.
  NcclLostIds* lost_ids = nullptr;
  // Limit of the destructor's wait for the flush of a healthy communicator. NCCL may wait for other
  // ranks of this machine.
  absl::Duration flush_timeout = absl::Seconds(2);
};

// A communicator between GPUs, over NCCL.
//
// A step is one NCCL group on the device's transfer stream. It runs after all work that was queued
// when the step started. No code is loaded onto the device while a step is open or a group forms
// (CudaContext::load_gate); Start first waits for the gate.
//
// Threads: the owner thread makes all NCCL calls. It polls for completion, NCCL errors, abort and
// deadline. Calls do not block inside NCCL, except the last call on a communicator, which joins
// NCCL's threads: the abort after an error, and the destroy after a flush. The watchdog handles a
// hang there.
//
// A deadline starts when the work is done that this rank had queued before the step. Messages of 0
// bytes are not sent, because both sides know about them. NCCL does not report which peer failed:
// metadata "peer" is set only if the step has one peer.
//
// RESOURCE_EXHAUSTED, according to NCCL's last error text (for host limits only if the text is new;
// otherwise PEER_LOST):
// - OUT_OF_MEMORY: the device or host refused memory, or the device has almost none left.
// - HOST_LIMIT: the host refused shared memory, files or threads.
//
// All ranks of a group need the same NCCL version; otherwise Connect returns INVALID_ARGUMENT.
// INVALID_ARGUMENT here: rank or size.
absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const NcclOptions& options);

// For example "2.28.9".
std::string NcclVersionText(int version);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_H_
