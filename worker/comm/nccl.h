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
  NcclApi* api = nullptr;        // Outlives the communicator, as the device does.
  CudaDevice* device = nullptr;  // Whose memory the messages are in.
  int32_t rank = 0;
  int32_t size = 1;
  NcclLostIds* lost_ids = nullptr;  // Outlives the communicator; null: nobody counts.
  // Longest time that the destructor of a healthy communicator waits until all is flushed: NCCL
  // may wait for the other ranks of this machine.
  absl::Duration flush_timeout = absl::Seconds(2);
};

// Between GPUs. A step is one NCCL group on the device's queue for transfers, behind all that was
// queued when it started; while it is open, and while a group forms, nothing is loaded onto the
// device (CudaContext::load_gate), for which it waits first. The owner thread makes every call of
// NCCL, and asks for completion, NCCL's errors, the abort and the deadline in turn. No call blocks
// inside NCCL but the last one about a communicator, which joins NCCL's threads: an abort after an
// error, and what frees a flushed one in the destructor. Whoever hangs there is the watchdog's. A
// deadline begins when what this rank itself had queued before the step is done. Messages of no
// bytes are not sent, since both sides know of them. NCCL does not name the peer that failed: the
// metadata does where a step has only one.
//
// RESOURCE_EXHAUSTED, where NCCL's last words say so (of the host, words that were not there
// before: else a peer counts as lost): OUT_OF_MEMORY, where it was refused memory, of the device or
// the host, or the device has next to none left; HOST_LIMIT, where it was refused shared memory,
// files or threads.
//
// A group's ranks all need the same version of NCCL: Connect refuses others (INVALID_ARGUMENT).
// INVALID_ARGUMENT: rank or size.
absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const NcclOptions& options);

// "2.28.9".
std::string NcclVersionText(int version);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_H_
