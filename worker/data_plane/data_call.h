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

// A client's call, as ShardBoard uses it. The board holds a reference from Enter or Join to Leave.
// It calls these functions without holding its lock.
class DataCall {
 public:
  virtual ~DataCall() = default;
  // The shard, or its outputs, that the call waits for are there. `report` is set with outputs.
  virtual void OnShard(const ShardId& id, std::shared_ptr<StagedShard> shard,
                       const v1::ShardReport& report) = 0;
  // Ends the call now: the job has ended, or a wait took too long. May be called at any time and
  // more than once.
  virtual void End(const absl::Status& why) = 0;
  // An error if the client keeps this worker waiting too long; otherwise nullopt.
  virtual std::optional<absl::Status> Stalled(absl::Time now) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_DATA_CALL_H_
