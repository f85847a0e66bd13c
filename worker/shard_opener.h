#ifndef ANNULUS_WORKER_SHARD_OPENER_H_
#define ANNULUS_WORKER_SHARD_OPENER_H_

#include <functional>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "annulus/control/v1/control.pb.h"
#include "attention/validate/capability.h"
#include "base/mutex.h"
#include "base/work_queue.h"
#include "worker/lane/shard_run.h"
#include "worker/staging/page_pool.h"
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

#endif  // ANNULUS_WORKER_SHARD_OPENER_H_
