#ifndef ANNULUS_WORKER_LANE_WATCHDOG_H_
#define ANNULUS_WORKER_LANE_WATCHDOG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace annulus {

// One lane as the watchdog observes it.
struct LaneSight {
  std::string lane;  // "group", "solo" or "agent".
  bool busy = false;
  std::string what;      // For the flight record: job, segment, step.
  int64_t progress = 0;  // Grows while the lane computes or transfers.
  // The time since which a thread has not returned from an aborted group.
  std::optional<absl::Time> aborting;
  std::string job;                                 // The job; empty if the work belongs to none.
  absl::Duration patience = absl::ZeroDuration();  // Added to the stall budget.
};

// Distinguishes slow lanes from stuck ones. Pure: its input are observations.
class StuckDetector {
 public:
  struct Budgets {
    // Longest time of a busy lane without progress. Longer than a step's timeout.
    absl::Duration stall = absl::Seconds(60);
    // Longest time to return from an abort.
    absl::Duration abort = absl::Seconds(10);
  };
  explicit StuckDetector(const Budgets& budgets) : budgets_(budgets) {}

  // The whole process, with its lanes, was stopped for `how_long`, until `now`. The time does not
  // count.
  void StoodStill(absl::Duration how_long, absl::Time now) {
    since_ += how_long;
    stood_still_ += how_long;
    goes_on_ = now;
  }
  // The flight record's line if the lane is stuck; otherwise nullopt.
  std::optional<std::string> Look(const LaneSight& sight, absl::Time now);

 private:
  const Budgets budgets_;
  int64_t progress_ = -1;
  absl::Time since_ = absl::InfinitePast();
  // Stopped time within the current abort, if the abort began before goes_on_.
  absl::Duration stood_still_ = absl::ZeroDuration();
  absl::Time goes_on_ = absl::InfinitePast();
};

// Observes all lanes every `interval` and calls `stuck` once if one is stuck. A thread that hangs
// in a library or device cannot be recovered inside its process, so `stuck` ends the process (exit
// code 70). Reads only atomics and briefly held locks of other threads.
class Watchdog {
 public:
  struct Options {
    StuckDetector::Budgets budgets;
    std::function<absl::Time()> now;
    std::vector<std::function<LaneSight()>> lanes;
    std::function<void(const std::string& job, const std::string& record)> stuck;
    absl::Duration interval = absl::Milliseconds(250);
  };
  explicit Watchdog(Options options);
  ~Watchdog();

 private:
  void Loop();

  const Options options_;
  Mutex mutex_;
  CondVar stop_changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_WATCHDOG_H_
