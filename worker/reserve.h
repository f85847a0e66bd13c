#ifndef ANNULUS_WORKER_RESERVE_H_
#define ANNULUS_WORKER_RESERVE_H_

#include <functional>

#include "absl/status/statusor.h"
#include "annulus/control/v1/control.pb.h"
#include "worker/lane/shard_run.h"
#include "worker/staging/page_pool.h"

namespace annulus {

// Carries a Reserve out: the rank's rows by the plan, staging memory from `pool`, and what the
// lanes need later. `on_freed` runs when the memory has been given back. RESOURCE_EXHAUSTED (no
// room), INVALID_ARGUMENT (a command that makes no sense, or counts other bytes than its plan
// gives). `lender` is the kept shard that the command names, null where it names none or there is
// none: INTERNAL / INVALID_PLAN where it is another principal's or does not have what is lent.
absl::StatusOr<ShardWork> OpenReserve(const control::v1::Reserve& reserve, PagePool* pool,
                                      std::function<void()> on_freed,
                                      const ShardWork* lender = nullptr);

}  // namespace annulus

#endif  // ANNULUS_WORKER_RESERVE_H_
