#ifndef ANNULUS_BASE_MUTEX_H_
#define ANNULUS_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"
#include "base/thread_annotations.h"

namespace annulus {

class CondVar;

// A std::mutex that clang's -Wthread-safety understands. Not recursive. The project's only lock:
// ThreadSanitizer sees into it, and not into those of the system's Abseil.
class CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ACQUIRE() { mutex_.lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }
  // True when it got the lock; never waits.
  bool TryLock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds `mutex` from construction to the end of its scope.
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() RELEASE() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// A condition variable for Mutex. Every wait may wake for no reason: call it in a loop over the
// condition, which the caller's thread reads with the lock held.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Wakes one, or every, waiting thread. The lock need not be held.
  void Signal() { condition_.notify_one(); }
  void SignalAll() { condition_.notify_all(); }

  // Releases `mutex` while it waits; holds it again when it returns.
  void Wait(Mutex* mutex) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // As Wait, and gives up at `deadline`: false when the deadline has passed. A steady_clock
  // deadline does not move when the system's clock is set.
  template <typename Clock, typename Duration>
  bool WaitUntil(Mutex* mutex, std::chrono::time_point<Clock, Duration> deadline) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  bool WaitUntil(Mutex* mutex, absl::Time deadline) REQUIRES(mutex) {
    if (deadline == absl::InfiniteFuture()) {
      Wait(mutex);
      return true;
    }
    return WaitUntil(mutex, absl::ToChronoTime(deadline));
  }

  // As Wait, and gives up after `timeout`, which is measured by the steady clock: false when it has
  // passed.
  bool WaitFor(Mutex* mutex, absl::Duration timeout) REQUIRES(mutex) {
    if (timeout == absl::InfiniteDuration()) {
      Wait(mutex);
      return true;
    }
    return WaitUntil(mutex, std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout));
  }

 private:
  std::condition_variable condition_;
};

}  // namespace annulus

#endif  // ANNULUS_BASE_MUTEX_H_
