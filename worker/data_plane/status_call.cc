#include "worker/data_plane/status_call.h"

#include <utility>

#include "worker/data_plane/put_call.h"

namespace annulus {

StatusCall::StatusCall(ShardBoard* board, Answer answer)
    : board_(board), answer_(std::move(answer)) {}

void StatusCall::Start(const v1::GetShardStatusRequest& request) {
  board_->Join(shared_from_this(), request.ticket(), ShardBoard::Stage::kReserved);
}

void StatusCall::OnShard(const ShardId&, std::shared_ptr<StagedShard> shard,
                         const v1::ShardReport&) {
  Conclude(StatusOfShard(*shard));
}

void StatusCall::End(const absl::Status& why) { Conclude(why); }

std::optional<absl::Status> StatusCall::Stalled(absl::Time) { return std::nullopt; }

void StatusCall::Conclude(absl::StatusOr<v1::ShardStatus> answer) {
  Answer once;
  {
    MutexLock lock(&mutex_);
    once = std::exchange(answer_, nullptr);
  }
  if (once) once(std::move(answer));
  board_->Leave(this);
}

}  // namespace annulus
