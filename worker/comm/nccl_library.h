#ifndef ANNULUS_WORKER_COMM_NCCL_LIBRARY_H_
#define ANNULUS_WORKER_COMM_NCCL_LIBRARY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/comm/nccl_api.h"

namespace annulus {

// The beginning of ncclConfig_t as NCCL 2.14 defined it; later versions take it, by its size.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;
};

// ncclUniqueId.
struct NcclUniqueId {
  char internal[kNcclIdBytes];
};

// Loads NCCL, so that programs start where there is none; `path` as for dlopen ("libnccl.so.2"). It
// is never unloaded. FAILED_PRECONDITION in one line: no such library, one that is older than 2.14,
// or an environment that makes its calls block.
absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl(const std::string& path);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_LIBRARY_H_
