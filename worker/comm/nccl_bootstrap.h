#ifndef ANNULUS_WORKER_COMM_NCCL_BOOTSTRAP_H_
#define ANNULUS_WORKER_COMM_NCCL_BOOTSTRAP_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace annulus {

// Bootstrap of one rank. All ranks check the version; rank 0 supplies the id.
struct NcclBootstrap {
  int version = 0;
  std::string id;

  std::string Encoded(int32_t rank) const;
};

// The group's id, from the bootstraps of all ranks in rank order. `own` is the bootstrap of `rank`.
// INVALID_ARGUMENT: bytes of another group, or ranks with different NCCL versions.
absl::StatusOr<std::string> NcclIdOf(absl::Span<const std::string> bootstraps,
                                     const NcclBootstrap& own, int32_t rank);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_BOOTSTRAP_H_
