#ifndef ANNULUS_WORKER_COMM_NCCL_API_H_
#define ANNULUS_WORKER_COMM_NCCL_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "worker/device/cuda_api.h"

namespace annulus {

// ncclComm_t, opaque.
using NcclComm = void*;

// ncclResult_t; those that are told apart:
using NcclResult = int;
inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclUnhandledCudaError = 1;
inline constexpr NcclResult kNcclSystemError = 2;
inline constexpr NcclResult kNcclInternalError = 3;
inline constexpr NcclResult kNcclInvalidUsage = 5;
inline constexpr NcclResult kNcclRemoteError = 6;
inline constexpr NcclResult kNcclInProgress = 7;

// Bytes of a ncclUniqueId.
inline constexpr int64_t kNcclIdBytes = 128;

// What we ask of NCCL, as it names it, of communicators that do not block: the real one is of
// nccl_library.h, tests bring a stand-in. Every call about a communicator comes from the thread
// that owns it; calls may answer kNcclInProgress, and AsyncError then tells when that is over.
class NcclApi {
 public:
  virtual ~NcclApi() = default;

  // As 22809.
  virtual int Version() = 0;
  // "remote process exited or there was a network error".
  virtual std::string ErrorText(NcclResult result) = 0;
  // The last error that NCCL told in words, of `comm` or, as it is now, of any (null: of any); may
  // be empty, or older than what has just failed.
  virtual std::string LastError(NcclComm comm) = 0;

  // kNcclIdBytes bytes. Whoever knows them can join.
  virtual NcclResult GetUniqueId(std::string* id) = 0;
  // On the thread's current device. *comm is to be aborted where it is not null, whatever this
  // says, and to stay where it is until then.
  virtual NcclResult CommInit(NcclComm* comm, int32_t size, const std::string& id,
                              int32_t rank) = 0;
  // *state: kNcclSuccess, kNcclInProgress, or what went wrong.
  virtual NcclResult AsyncError(NcclComm comm, NcclResult* state) = 0;
  // Flushes; when that is over, Destroy frees, or says why not: then it may have left the thread in
  // a group, whose end is GroupEnd.
  virtual NcclResult Finalize(NcclComm comm) = 0;
  virtual NcclResult Destroy(NcclComm comm) = 0;
  // Ends what runs, and frees. At any time.
  virtual NcclResult Abort(NcclComm comm) = 0;

  // The sends and receives between these two become one operation on their stream. In no group
  // GroupEnd says kNcclInvalidUsage.
  virtual NcclResult GroupStart() = 0;
  virtual NcclResult GroupEnd() = 0;
  virtual NcclResult Send(NcclComm comm, const std::byte* data, int64_t bytes, int32_t peer,
                          CudaStream stream) = 0;
  virtual NcclResult Receive(NcclComm comm, std::byte* data, int64_t bytes, int32_t peer,
                             CudaStream stream) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_API_H_
