#include "worker/lane/watchdog.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

// Far more than a busy machine keeps a thread waiting.
constexpr absl::Duration kStoodStill = absl::Seconds(5);

}  // namespace

std::optional<std::string> StuckDetector::Look(const LaneSight& sight, absl::Time now) {
  if (sight.aborting.has_value() && now - *sight.aborting >= budgets_.abort) {
    return absl::StrCat("the ", sight.lane, " lane has not come back from an abort for ",
                        absl::FormatDuration(now - *sight.aborting), ", in ", sight.what);
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
  absl::Time looked = options_.now();
  MutexLock lock(&mutex_);
  while (!stopping_) {
    // Between two looks no more than an interval passes while the process runs.
    const absl::Duration gap = options_.now() - looked;
    looked += gap;
    for (size_t i = 0; i < detectors.size(); ++i) {
      if (gap > options_.interval + kStoodStill) detectors[i].StoodStill(gap);
      const LaneSight sight = options_.lanes[i]();
      const auto record = detectors[i].Look(sight, options_.now());
      if (!record.has_value()) continue;
      options_.stuck(sight.job, *record);
      return;
    }
    stop_changed_.WaitFor(&mutex_, options_.interval);
  }
}

}  // namespace annulus
