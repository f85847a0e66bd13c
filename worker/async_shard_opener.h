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

// Opens shards on its own thread, one after another. For shards whose rows take long to lay out, so
// that the agent's beats are not late. Thread-safe.
class AsyncShardOpener {
 public:
  AsyncShardOpener() : queue_(/*limit=*/0) {}
  // Starts no further `open`, and waits for the current one.
  ~AsyncShardOpener();

  // Requires: `id` is not being opened. Runs `open` on the opener's thread. If Close is called
  // meanwhile, runs `close` after `open`, or instead of it if it has not started. Holds no lock
  // while they run.
  void Begin(const ShardId& id, std::function<void()> open,
             std::function<void(const absl::Status& why)> close) EXCLUDES(mutex_);
  // True if the shard is being opened; it will be closed. False if it is not.
  bool Close(const ShardId& id, const absl::Status& why) EXCLUDES(mutex_);

 private:
  // The reason to close the shard, or nullopt.
  std::optional<absl::Status> ToClose(const ShardId& id) EXCLUDES(mutex_);
  // Like ToClose. Also marks the shard as no longer being opened.
  std::optional<absl::Status> End(const ShardId& id) EXCLUDES(mutex_);
  bool Stopping() EXCLUDES(mutex_);

  Mutex mutex_;
  std::map<ShardId, std::optional<absl::Status>> opening_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  WorkQueue queue_;  // The last member: its thread ends first.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_ASYNC_SHARD_OPENER_H_
