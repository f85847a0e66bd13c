#ifndef ANNULUS_CLIENT_REACHABILITY_H_
#define ANNULUS_CLIENT_REACHABILITY_H_

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "client/transport/callback_thread.h"

namespace annulus {

// Whether the workers can be reached from here: found out on a thread of its own, which exists from
// the first question on, and remembered. Thread-safe.
class Reachability {
 public:
  // `find_out` may wait. Its answer holds for `age`; after that it is still given, while a new one
  // is looked for.
  Reachability(std::function<bool()> find_out, absl::Duration age,
               std::function<absl::Time()> now = SteadyNow);
  // Waits for a search that is under way; questions without an answer get none.
  ~Reachability();

  // The answer, where there is one. Else `later` is called with it, once, from the thread of the
  // search; it must not wait.
  std::optional<bool> Ask(std::function<void(bool)> later) EXCLUDES(mutex_);
  // The answer did not hold.
  void Forget() EXCLUDES(mutex_);

 private:
  void Search() EXCLUDES(mutex_);

  const std::function<bool()> find_out_;
  const absl::Duration age_;
  const std::function<absl::Time()> now_;
  Mutex mutex_;
  std::optional<bool> answer_ GUARDED_BY(mutex_);
  absl::Time known_ GUARDED_BY(mutex_);
  bool searching_ GUARDED_BY(mutex_) = false;
  std::vector<std::function<void(bool)>> asking_ GUARDED_BY(mutex_);
  std::unique_ptr<CallbackThread> thread_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_REACHABILITY_H_
