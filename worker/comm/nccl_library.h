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

// The beginning of ncclConfig_t as NCCL 2.17 defined it; later versions take it, by its size. No
// call blocks.
struct NcclConfig {
  static constexpr int kUndefined = std::numeric_limits<int>::min();
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21700;
  int blocking = 0;
  // Blocks in clusters would wait for free multiprocessors side by side.
  int cluster_size = 0;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
};

// What NCCL's environment says, which goes before what a program says; null: not set.
struct NcclEnvironment {
  const char* comm_blocking = nullptr;
  const char* comm_id = nullptr;
  const char* max_ctas = nullptr;
  const char* min_channels = nullptr;      // NCCL_MIN_NCHANNELS.
  const char* min_rings = nullptr;         // NCCL_MIN_NRINGS, where that is not set.
  const char* min_p2p_channels = nullptr;  // NCCL_MIN_P2P_NCHANNELS.

  static NcclEnvironment OfProcess();
};

// Blocks of threads that the kernels of a communicator have at most, each of which wants a
// multiprocessor to itself, or nearly: kNcclCtas, or what NCCL_MAX_CTAS says; at least the channels
// that the environment wants; and rounded up to a power of two, as NCCL rounds channels between
// peers. (NCCL_MIN_CTAS ends at the most that there may be.)
inline constexpr int32_t kNcclCtas = 8;
int32_t NcclCtasOf(const NcclEnvironment& environment);

// ncclUniqueId.
struct NcclUniqueId {
  char internal[kNcclIdBytes];
};

// Whether NCCL does what it is told. FAILED_PRECONDITION for values of NCCL_COMM_BLOCKING (as NCCL
// reads numbers) that make calls block, for NCCL_MAX_CTAS that is no number of blocks, and for any
// NCCL_COMM_ID, by which all groups would meet in one place.
absl::Status CheckNcclEnvironment(const NcclEnvironment& environment);

// Loads NCCL, so that programs start where there is none; `path` as for dlopen ("libnccl.so.2"). It
// is never unloaded. FAILED_PRECONDITION in one line: no such library, one that is older than 2.19,
// or an environment that CheckNcclEnvironment refuses.
absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl(const std::string& path);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_LIBRARY_H_
