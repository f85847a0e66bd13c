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

// The beginning of ncclConfig_t as NCCL 2.17 defined it; later versions take it, by its size, and
// those before take the part that they know (NcclConfigOf).
struct NcclConfig {
  static constexpr int kUndefined = std::numeric_limits<int>::min();
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21700;
  int blocking = 0;
  // From here on since 2.17. Blocks in clusters would wait for free multiprocessors side by side.
  int cluster_size = 0;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
};

// What a version of NCCL is told: no call blocks, and kernels have at most `max_ctas` blocks.
NcclConfig NcclConfigOf(int version, int32_t max_ctas);

// Blocks of threads that the kernels of a communicator have at most, each of which wants a
// multiprocessor to itself, or nearly: kNcclCtas, or what the environment's NCCL_MAX_CTAS says
// (`max_ctas`; null or "": nothing), which goes before what a program says. NCCL before 2.17 cannot
// be told, and has a block for each of 32 channels.
inline constexpr int32_t kNcclCtas = 8;
int32_t NcclCtasOf(int version, const char* max_ctas);

// ncclUniqueId.
struct NcclUniqueId {
  char internal[kNcclIdBytes];
};

// Whether NCCL, which puts its environment before what a program says, does what it is told.
// FAILED_PRECONDITION for values of NCCL_COMM_BLOCKING (as NCCL reads numbers) that make calls
// block, and of NCCL_MAX_CTAS that are no number of blocks. Null or "": not set.
absl::Status CheckNcclEnvironment(const char* blocking, const char* max_ctas);

// Loads NCCL, so that programs start where there is none; `path` as for dlopen ("libnccl.so.2"). It
// is never unloaded. FAILED_PRECONDITION in one line: no such library, one that is older than 2.14,
// or an environment that CheckNcclEnvironment refuses.
absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl(const std::string& path);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_LIBRARY_H_
