#ifndef ANNULUS_TESTS_SIMULATION_AGENDA_H_
#define ANNULUS_TESTS_SIMULATION_AGENDA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "absl/time/time.h"

namespace annulus {

// Simulated time and random numbers. Due actions run by time, then by order of creation, so a seed
// determines the history.
class Agenda {
 public:
  explicit Agenda(uint64_t seed) : random_(seed) {}

  absl::Time now() const { return now_; }
  void After(absl::Duration delay, std::function<void()> what) {
    At(now_ + delay, std::move(what));
  }
  void At(absl::Time when, std::function<void()> what) {
    due_.emplace(std::make_pair(std::max(when, now_), ++last_), std::move(what));
  }
  // Runs the next action if it is due by `end`; otherwise sets the time to `end`.
  bool RunOne(absl::Time end) {
    if (due_.empty() || due_.begin()->first.first > end) {
      now_ = std::max(now_, end);
      return false;
    }
    auto first = due_.extract(due_.begin());
    now_ = first.key().first;
    first.mapped()();
    return true;
  }

  // Random numbers. Does not use the library's distributions, which differ between libraries.
  uint64_t Bits() { return random_(); }
  int64_t Below(int64_t n) {
    return n <= 0 ? 0 : static_cast<int64_t>(random_() % static_cast<uint64_t>(n));
  }
  bool Chance(double probability) {
    return static_cast<double>(random_() >> 11) * 0x1.0p-53 < probability;
  }
  // Mostly short, sometimes long, like network delays.
  absl::Duration Delay(absl::Duration typical) {
    const int64_t scale = Chance(0.05) ? 10 : 1;
    return typical * (scale * (1 + Below(1000))) / 1000;
  }

 private:
  absl::Time now_ = absl::FromUnixSeconds(1000000);
  int64_t last_ = 0;
  std::map<std::pair<absl::Time, int64_t>, std::function<void()>> due_;
  std::mt19937_64 random_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SIMULATION_AGENDA_H_
