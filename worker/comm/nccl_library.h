#ifndef ANNULUS_WORKER_COMM_NCCL_LIBRARY_H_
#define ANNULUS_WORKER_COMM_NCCL_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/comm/nccl_api.h"

namespace annulus {

// The beginning of ncclConfig_t as of NCCL 2.17. Later versions accept it because of its size
// field. Makes calls non-blocking.
struct NcclConfig {
  static constexpr int kUndefined = std::numeric_limits<int>::min();
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21700;
  int blocking = 0;
  // Blocks in clusters would have to wait for free adjacent multiprocessors.
  int cluster_size = 0;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
};

// NCCL's environment variables, which override the program's settings. nullptr: not set.
struct NcclEnvironment {
  const char* comm_blocking = nullptr;
  const char* comm_id = nullptr;
  const char* max_ctas = nullptr;
  const char* min_channels = nullptr;  // NCCL_MIN_NCHANNELS.
  const char* min_rings = nullptr;     // NCCL_MIN_NRINGS, used if NCCL_MIN_NCHANNELS is not set.
  const char* min_p2p_channels = nullptr;  // NCCL_MIN_P2P_NCHANNELS.

  static NcclEnvironment OfProcess();
};

// The most thread blocks (CTAs) of a communicator's kernels. Each occupies about one
// multiprocessor. The value is kNcclCtas or NCCL_MAX_CTAS, at least the number of channels that the
// environment demands, rounded up to a power of two as NCCL rounds channels between peers.
// NCCL_MIN_CTAS has no effect above this value.
inline constexpr int32_t kNcclCtas = 8;
int32_t NcclCtasOf(const NcclEnvironment& environment);

// ncclUniqueId.
struct NcclUniqueId {
  char internal[kNcclIdBytes];
};

// OK if NCCL will follow the program's settings. FAILED_PRECONDITION: NCCL_COMM_BLOCKING (parsed as
// NCCL does) makes calls block; NCCL_MAX_CTAS is not a number of blocks; or NCCL_COMM_ID is set, so
// that all groups would use one address.
absl::Status CheckNcclEnvironment(const NcclEnvironment& environment);

// Loads NCCL at run time, so that programs start on machines without it. `path` is as for dlopen
// ("libnccl.so.2"). The library is never unloaded. FAILED_PRECONDITION with a one-line message: the
// library is missing, is older than 2.19, or CheckNcclEnvironment fails.
absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl(const std::string& path);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_LIBRARY_H_
