#ifndef ANNULUS_WORKER_LANE_LANE_GAUGE_H_
#define ANNULUS_WORKER_LANE_LANE_GAUGE_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "worker/staging/shard_id.h"

namespace annulus {

// The current work of a lane, for the watchdog. One lane writes; any thread reads.
class LaneGauge {
 public:
  struct Reading {
    bool busy = false;
    std::string what;  // For example "RunSegment 2".
    ShardId shard;
    int32_t segment = 0;
    absl::Duration patience;  // Extra time without progress, beyond the stall budget.
  };

  // Called by the lane's thread when an item of work begins and ends.
  void Begin(const std::string& what, const ShardId& shard, int32_t segment,
             absl::Duration patience = absl::ZeroDuration()) {
    MutexLock lock(&mutex_);
    reading_ = {true, what, shard, segment, patience};
    progress_.fetch_add(1, std::memory_order_relaxed);
  }
  void End() {
    MutexLock lock(&mutex_);
    reading_.busy = false;
    progress_.fetch_add(1, std::memory_order_relaxed);
  }

  // Passed to kernels, which count tiles in it.
  std::atomic<int64_t>* progress() { return &progress_; }
  int64_t steps() const { return progress_.load(std::memory_order_relaxed); }
  Reading Read() const {
    MutexLock lock(&mutex_);
    return reading_;
  }

 private:
  std::atomic<int64_t> progress_{0};
  mutable Mutex mutex_;
  Reading reading_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_LANE_GAUGE_H_
