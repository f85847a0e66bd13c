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

// What a Reserve is carried out with.
struct ShardResources {
  PagePool* pool = nullptr;
  // Of the engine; what uses one of them is refused.
  absl::Span<const Capability> lacks;
  // Runs when the memory has been given back; may be empty.
  std::function<void()> on_freed;
  // The kept shard that the command names; null where it names none or there is none.
  const ShardWork* lender = nullptr;
};

// Whether it takes long to carry it out where the job has many sequences or masks: of shards by
// area every rank works out whose rows are whose.
bool LaysOutLong(const control::v1::Reserve& reserve);

// Carries a Reserve out: the rank's rows by the plan, staging memory from the pool, and what the
// lanes need later. RESOURCE_EXHAUSTED (no room), INVALID_ARGUMENT (a command that makes no
// sense), UNIMPLEMENTED / NOT_SERVED; INTERNAL / INVALID_PLAN where the command counts other bytes
// than its plan gives or cuts rows elsewhere, and where the lender is another principal's or does
// not have what is lent.
absl::StatusOr<ShardWork> OpenReserve(const control::v1::Reserve& reserve, ShardResources means);

}  // namespace annulus

#endif  // ANNULUS_WORKER_OPEN_SHARD_H_
