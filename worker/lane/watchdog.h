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

// What the watchdog looks at: one lane.
struct LaneSight {
  std::string lane;  // "group", "solo", "agent".
  bool busy = false;
  std::string what;      // For the flight record: job, segment, step.
  int64_t progress = 0;  // Grows while anything is computed or moved.
  // Since when it does not come back from a group that is aborted.
  std::optional<absl::Time> aborting;
  std::string job;                                 // Whose it is; empty: no job's.
  absl::Duration patience = absl::ZeroDuration();  // Beyond the budget of a stall.
};

// Tells slow from stuck: pure, fed with sights.
class StuckDetector {
 public:
  struct Budgets {
    // Longest time that a busy lane may go without progress. Longer than a step's timeout.
    absl::Duration stall = absl::Seconds(60);
    // Longest time that coming back from an abort may take.
    absl::Duration abort = absl::Seconds(10);
  };
  explicit StuckDetector(const Budgets& budgets) : budgets_(budgets) {}

  // The whole process did, until now, and its lanes no less than the rest of it.
  void StoodStill(absl::Duration how_long, absl::Time now) {
    since_ += how_long;
    stood_still_ += how_long;
    goes_on_ = now;
  }
  // The flight record's line, where the lane is stuck.
  std::optional<std::string> Look(const LaneSight& sight, absl::Time now);

 private:
  const Budgets budgets_;
  int64_t progress_ = -1;
  absl::Time since_ = absl::InfinitePast();
  // In the abort under way, if that was before the process went on.
  absl::Duration stood_still_ = absl::ZeroDuration();
  absl::Time goes_on_ = absl::InfinitePast();
};

// Looks at every lane a few times a second, and calls `stuck` once when one is stuck: a thread that
// hangs in a library or a device cannot be helped from inside its process, so `stuck` ends it (exit
// code 70). Other threads only lend atomics and short locks.
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
