#ifndef ANNULUS_CLIENT_TRANSPORT_CALLBACK_THREAD_H_
#define ANNULUS_CLIENT_TRANSPORT_CALLBACK_THREAD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace annulus {

// A thread that runs functions in the order of their times: callbacks of the user, and waits before
// retries. The destructor runs the functions that are due, drops the others and joins the thread.
// Thread-safe.
class CallbackThread {
 public:
  CallbackThread();
  ~CallbackThread();

  void Post(std::function<void()> function) {
    PostAfter(absl::ZeroDuration(), std::move(function));
  }
  // Runs `function` after `delay`, which may be infinite.
  void PostAfter(absl::Duration delay, std::function<void()> function) EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;
  void Run() EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  int64_t next_ GUARDED_BY(mutex_) = 0;
  std::map<std::pair<Clock::time_point, int64_t>, std::function<void()>> waiting_
      GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_CALLBACK_THREAD_H_
