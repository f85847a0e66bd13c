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

// Caches whether the workers accept connections from this process. A thread of its own, started by
// the first Ask(), runs the search. Thread-safe.
class Reachability {
 public:
  // `find_out` may block. Its answer is valid for `age`. After that it is still returned, and a new
  // search starts.
  Reachability(std::function<bool()> find_out, absl::Duration age,
               std::function<absl::Time()> now = SteadyNow);
  // Waits for a running search. Pending Ask() calls without an answer get none.
  ~Reachability();

  // Returns the answer if there is one. Else returns nothing, and `later` is called once with the
  // answer, on the search thread. `later` must not block.
  std::optional<bool> Ask(std::function<void(bool)> later) EXCLUDES(mutex_);
  // Drops the answer, which has proved wrong.
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
