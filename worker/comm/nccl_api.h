#ifndef ANNULUS_WORKER_COMM_NCCL_API_H_
#define ANNULUS_WORKER_COMM_NCCL_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "worker/device/cuda_api.h"

namespace annulus {

// ncclComm_t, opaque.
using NcclComm = void*;

// ncclResult_t. The values that the code distinguishes:
using NcclResult = int;
inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclUnhandledCudaError = 1;
inline constexpr NcclResult kNcclSystemError = 2;
inline constexpr NcclResult kNcclInternalError = 3;
inline constexpr NcclResult kNcclInvalidUsage = 5;
inline constexpr NcclResult kNcclRemoteError = 6;
inline constexpr NcclResult kNcclInProgress = 7;

// Size of a ncclUniqueId in bytes.
inline constexpr int64_t kNcclIdBytes = 128;

// The NCCL functions that the workers use, for non-blocking communicators. LoadNccl
// (worker/comm/nccl_library.h) returns the real one; tests have a fake. The owner thread of a
// communicator makes all calls on it. Calls may return kNcclInProgress; then poll AsyncError until
// they are done.
class NcclApi {
 public:
  virtual ~NcclApi() = default;

  // For example 22809.
  virtual int Version() = 0;
  // For example "remote process exited or there was a network error".
  virtual std::string ErrorText(NcclResult result) = 0;
  // NCCL's last error text, of `comm`, or of any communicator if `comm` is nullptr. NCCL ignores
  // `comm` today. May be empty, or older than the last failure.
  virtual std::string LastError(NcclComm comm) = 0;

  // Sets *id to kNcclIdBytes bytes. Any process that has them can join the group.
  virtual NcclResult GetUniqueId(std::string* id) = 0;
  // Runs on the thread's current device. If *comm is not nullptr afterwards, even after an error,
  // it must be aborted, and the variable must not move until then.
  virtual NcclResult CommInit(NcclComm* comm, int32_t size, const std::string& id,
                              int32_t rank) = 0;
  // Sets *state to kNcclSuccess, kNcclInProgress or the error.
  virtual NcclResult AsyncError(NcclComm comm, NcclResult* state) = 0;
  // Finalize flushes. After it has finished, Destroy frees the communicator or returns an error.
  // After an error the thread may still be inside an NCCL group; GroupEnd ends it.
  virtual NcclResult Finalize(NcclComm comm) = 0;
  virtual NcclResult Destroy(NcclComm comm) = 0;
  // Stops all running operations and frees the communicator. May be called at any time.
  virtual NcclResult Abort(NcclComm comm) = 0;

  // Sends and receives between GroupStart and GroupEnd become one operation on their stream.
  // GroupEnd returns kNcclInvalidUsage if the thread is in no group.
  virtual NcclResult GroupStart() = 0;
  virtual NcclResult GroupEnd() = 0;
  virtual NcclResult Send(NcclComm comm, const std::byte* data, int64_t bytes, int32_t peer,
                          CudaStream stream) = 0;
  virtual NcclResult Receive(NcclComm comm, std::byte* data, int64_t bytes, int32_t peer,
                             CudaStream stream) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_API_H_
