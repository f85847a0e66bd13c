#ifndef ANNULUS_WORKER_DATA_PLANE_STATUS_CALL_H_
#define ANNULUS_WORKER_DATA_PLANE_STATUS_CALL_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "annulus/v1/data_plane.pb.h"
#include "base/mutex.h"
#include "worker/data_plane/shard_board.h"

namespace annulus {

// One GetShardStatus call. Waits for its Reserve like other calls. Thread-safe.
class StatusCall : public DataCall, public std::enable_shared_from_this<StatusCall> {
 public:
  using Answer = std::function<void(absl::StatusOr<v1::ShardStatus>)>;

  // `answer` is called once.
  StatusCall(ShardBoard* board, Answer answer);

  void Start(const v1::GetShardStatusRequest& request);

  void OnShard(const ShardId& id, std::shared_ptr<StagedShard> shard,
               const v1::ShardReport& report) override;
  void End(const absl::Status& why) override;
  std::optional<absl::Status> Stalled(absl::Time now) override;

 private:
  void Conclude(absl::StatusOr<v1::ShardStatus> answer);

  ShardBoard* const board_;
  Mutex mutex_;
  Answer answer_ GUARDED_BY(mutex_);  // Empty once called.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_STATUS_CALL_H_
