#include "worker/lane/watchdog.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

// Much longer than a thread waits for a CPU on a busy machine.
constexpr absl::Duration kStoodStill = absl::Seconds(5);

}  // namespace

std::optional<std::string> StuckDetector::Look(const LaneSight& sight, absl::Time now) {
  const absl::Time since = sight.aborting.value_or(now);
  if (since >= goes_on_) stood_still_ = absl::ZeroDuration();
  const absl::Duration aborting = now - since - stood_still_;
  if (aborting >= budgets_.abort) {
    return absl::StrCat("the ", sight.lane, " lane has not finished an abort for ",
                        absl::FormatDuration(aborting), ", in ", sight.what);
  }
  if (!sight.busy || sight.progress != progress_) {
    progress_ = sight.progress;
    since_ = now;
    return std::nullopt;
  }
  if (now - since_ < budgets_.stall + sight.patience) return std::nullopt;
  return absl::StrCat("the ", sight.lane, " lane has made no progress for ",
                      absl::FormatDuration(now - since_), ", in ", sight.what);
}

Watchdog::Watchdog(Options options) : options_(std::move(options)), thread_([this] { Loop(); }) {}

Watchdog::~Watchdog() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  stop_changed_.SignalAll();
  thread_.join();
}

void Watchdog::Loop() {
  std::vector<StuckDetector> detectors(options_.lanes.size(), StuckDetector(options_.budgets));
  absl::Time now = options_.now();
  MutexLock lock(&mutex_);
  while (!stopping_) {
    for (size_t i = 0; i < detectors.size(); ++i) {
      const LaneSight sight = options_.lanes[i]();
      const auto record = detectors[i].Look(sight, now);
      if (!record.has_value()) continue;
      options_.stuck(sight.job, *record);
      return;
    }
    const absl::Time slept = options_.now();
    stop_changed_.WaitFor(&mutex_, options_.interval);
    now = options_.now();
    if (now - slept <= options_.interval + kStoodStill) continue;
    for (StuckDetector& detector : detectors) detector.StoodStill(now - slept, now);
  }
}

}  // namespace annulus
