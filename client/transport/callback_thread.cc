#include "client/transport/callback_thread.h"

#include <algorithm>
#include <chrono>

namespace annulus {
namespace {

// A longer delay would overflow the clock's time.
constexpr absl::Duration kCentury = absl::Hours(24 * 36525);

}  // namespace

CallbackThread::CallbackThread() : thread_([this] { Run(); }) {}

CallbackThread::~CallbackThread() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void CallbackThread::PostAfter(absl::Duration delay, std::function<void()> function) {
  MutexLock lock(&mutex_);
  const Clock::time_point time =
      Clock::now() + absl::ToChronoNanoseconds(std::min(delay, kCentury));
  waiting_.emplace(std::make_pair(time, next_++), std::move(function));
  changed_.SignalAll();
}

void CallbackThread::Run() {
  for (;;) {
    std::function<void()> function;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() || waiting_.begin()->first.first > Clock::now()) {
        if (stopping_) return;
        if (waiting_.empty()) {
          changed_.Wait(&mutex_);
        } else {
          changed_.WaitUntil(&mutex_, waiting_.begin()->first.first);
        }
      }
      function = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
    function();
  }
}

}  // namespace annulus
