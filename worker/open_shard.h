#ifndef ANNULUS_WORKER_OPEN_SHARD_H_
#define ANNULUS_WORKER_OPEN_SHARD_H_

#include <functional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "annulus/control/v1/control.pb.h"
#include "attention/validate/capability.h"
#include "worker/lane/shard_run.h"
#include "worker/staging/page_pool.h"

namespace annulus {

// Resources that OpenReserve uses.
struct ShardResources {
  PagePool* pool = nullptr;
  // Capabilities that the engine lacks. Jobs that use one of them are refused.
  absl::Span<const Capability> lacks;
  // Called when the memory has been returned to the pool. May be empty.
  std::function<void()> on_freed;
  // The kept shard that the command names; nullptr if it names none, or if there is none.
  const ShardWork* lender = nullptr;
};

// True if OpenReserve may take long for many sequences or masks: with layout by area every rank
// computes the rows of all ranks.
bool LaysOutLong(const control::v1::Reserve& reserve);

// Executes a Reserve: determines the rank's rows from the plan, takes staging memory from the pool,
// and makes what the lanes need later. Errors:
// - RESOURCE_EXHAUSTED: no room.
// - INVALID_ARGUMENT: the command is malformed.
// - UNIMPLEMENTED / NOT_SERVED: a capability in `lacks` is needed.
// - INTERNAL / INVALID_PLAN: the command's byte count or row cuts differ from its plan's, or the
//   lender belongs to another principal or lacks what is lent.
absl::StatusOr<ShardWork> OpenReserve(const control::v1::Reserve& reserve, ShardResources means);

}  // namespace annulus

#endif  // ANNULUS_WORKER_OPEN_SHARD_H_
