#include "worker/async_shard_opener.h"

#include <utility>

namespace annulus {

AsyncShardOpener::~AsyncShardOpener() {
  MutexLock lock(&mutex_);
  stopping_ = true;
}

void AsyncShardOpener::Begin(const ShardId& id, std::function<void()> open,
                             std::function<void(const absl::Status& why)> close) {
  {
    MutexLock lock(&mutex_);
    opening_.emplace(id, std::nullopt);
  }
  // The queue needs no limit: the coordinator limits the number of shards.
  queue_.PostAlways([this, id, open = std::move(open), close = std::move(close)] {
    if (Stopping()) return;
    if (!ToClose(id)) open();
    if (const std::optional<absl::Status> why = End(id)) close(*why);
  });
}

bool AsyncShardOpener::Close(const ShardId& id, const absl::Status& why) {
  MutexLock lock(&mutex_);
  const auto opening = opening_.find(id);
  if (opening == opening_.end()) return false;
  if (!opening->second) opening->second = why;
  return true;
}

std::optional<absl::Status> AsyncShardOpener::ToClose(const ShardId& id) {
  MutexLock lock(&mutex_);
  return opening_.at(id);
}

std::optional<absl::Status> AsyncShardOpener::End(const ShardId& id) {
  MutexLock lock(&mutex_);
  const auto opening = opening_.find(id);
  std::optional<absl::Status> why = std::move(opening->second);
  opening_.erase(opening);
  return why;
}

bool AsyncShardOpener::Stopping() {
  MutexLock lock(&mutex_);
  return stopping_;
}

}  // namespace annulus
