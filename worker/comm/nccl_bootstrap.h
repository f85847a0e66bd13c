#ifndef ANNULUS_WORKER_COMM_NCCL_BOOTSTRAP_H_
#define ANNULUS_WORKER_COMM_NCCL_BOOTSTRAP_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace annulus {

// What a rank hands to the others: all check the version, and rank 0's has the id.
struct NcclBootstrap {
  int version = 0;
  std::string id;

  std::string Encoded(int32_t rank) const;
};

// The group's id, of what all its ranks have handed over, by rank, `own` by `rank` itself.
// INVALID_ARGUMENT: bytes of another group, or ranks with different versions.
absl::StatusOr<std::string> NcclIdOf(absl::Span<const std::string> bootstraps,
                                     const NcclBootstrap& own, int32_t rank);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_BOOTSTRAP_H_
