#ifndef ANNULUS_WORKER_ASYNC_SHARD_OPENER_H_
#define ANNULUS_WORKER_ASYNC_SHARD_OPENER_H_

#include <functional>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/work_queue.h"
#include "worker/staging/shard_id.h"

namespace annulus {

// Opens shards beside the agent's turns, one after the other: those whose rows take long to lay
// out, so that beats are not late for them. Thread-safe.
class AsyncShardOpener {
 public:
  AsyncShardOpener() : queue_(/*limit=*/0) {}
  // Begins nothing more, and waits for what has begun.
  ~AsyncShardOpener();

  // `id` is not being opened. `open` runs on the thread of openings. `close` where a Close has come
  // meanwhile: behind `open`, or, where that had not begun, in its place. Neither under a lock.
  void Begin(const ShardId& id, std::function<void()> open,
             std::function<void(const absl::Status& why)> close) EXCLUDES(mutex_);
  // True where the shard is being opened: it will be closed. False: there is nothing to wait for.
  bool Close(const ShardId& id, const absl::Status& why) EXCLUDES(mutex_);

 private:
  // Why the shard is to be closed, if it is.
  std::optional<absl::Status> ToClose(const ShardId& id) EXCLUDES(mutex_);
  // The same, and the shard is no longer being opened.
  std::optional<absl::Status> End(const ShardId& id) EXCLUDES(mutex_);
  bool Stopping() EXCLUDES(mutex_);

  Mutex mutex_;
  std::map<ShardId, std::optional<absl::Status>> opening_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  WorkQueue queue_;  // Last: its thread ends first.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_ASYNC_SHARD_OPENER_H_
