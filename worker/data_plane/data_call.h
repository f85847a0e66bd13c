#ifndef ANNULUS_WORKER_DATA_PLANE_DATA_CALL_H_
#define ANNULUS_WORKER_DATA_PLANE_DATA_CALL_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "annulus/v1/types.pb.h"
#include "worker/staging/shard_id.h"
#include "worker/staging/staged_shard.h"

namespace annulus {

// A client's call, seen from the board. The board keeps it alive from Enter or Join to Leave, and
// calls it without a lock.
class DataCall {
 public:
  virtual ~DataCall() = default;
  // Answer to a ticket: what was waited for is there. `report` goes with outputs.
  virtual void OnShard(const ShardId& id, std::shared_ptr<StagedShard> shard,
                       const v1::ShardReport& report) = 0;
  // The call must end now: the job has ended, or a wait was too long. May come at any time, more
  // than once.
  virtual void End(const absl::Status& why) = 0;
  // The client keeps this worker waiting; `why` for its error.
  virtual std::optional<absl::Status> Stalled(absl::Time now) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_DATA_CALL_H_
