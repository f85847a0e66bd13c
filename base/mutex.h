#ifndef ANNULUS_BASE_MUTEX_H_
#define ANNULUS_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

// Abseil 20220623 defines some of these names, too, for its own locks.
#include "absl/base/thread_annotations.h"
#undef GUARDED_BY
#undef PT_GUARDED_BY
#undef ACQUIRED_AFTER
#undef ACQUIRED_BEFORE
#undef NO_THREAD_SAFETY_ANALYSIS

// Annotations that say which lock guards what. clang's -Wthread-safety checks them; other compilers
// ignore them.
#if defined(__clang__)
#define ANNULUS_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define ANNULUS_THREAD_ATTRIBUTE(x)
#endif

// On a field: accessed only with the lock held. PT_: applies to what the pointer points to.
#define GUARDED_BY(x) ANNULUS_THREAD_ATTRIBUTE(guarded_by(x))
#define PT_GUARDED_BY(x) ANNULUS_THREAD_ATTRIBUTE(pt_guarded_by(x))
// On a function: the caller must hold the locks, or must not hold them.
#define REQUIRES(...) ANNULUS_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) ANNULUS_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// On a lock: acquired after, or before, the other locks.
#define ACQUIRED_AFTER(...) ANNULUS_THREAD_ATTRIBUTE(acquired_after(__VA_ARGS__))
#define ACQUIRED_BEFORE(...) ANNULUS_THREAD_ATTRIBUTE(acquired_before(__VA_ARGS__))

// On the lock classes themselves.
#define CAPABILITY(x) ANNULUS_THREAD_ATTRIBUTE(capability(x))
#define SCOPED_CAPABILITY ANNULUS_THREAD_ATTRIBUTE(scoped_lockable)
#define ACQUIRE(...) ANNULUS_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) ANNULUS_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) ANNULUS_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define RETURN_CAPABILITY(x) ANNULUS_THREAD_ATTRIBUTE(lock_returned(x))
#define NO_THREAD_SAFETY_ANALYSIS ANNULUS_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace annulus {

class CondVar;

// A std::mutex with annotations for clang's -Wthread-safety. Not recursive. All product code uses
// this lock: ThreadSanitizer instruments it, but not the locks of the system's Abseil.
class CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ACQUIRE() { mutex_.lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }
  // Returns true if it got the lock. Never waits.
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

// A condition variable for Mutex. A wait may return without a signal. Call it in a loop that checks
// the condition with the lock held.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Wake one, or all, waiting threads. The caller need not hold the lock.
  void Signal() { condition_.notify_one(); }
  void SignalAll() { condition_.notify_all(); }

  // Releases `mutex` while it waits, and holds it again when it returns.
  void Wait(Mutex* mutex) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // Wait, but only until `deadline`. Returns false if the deadline has passed. A steady_clock
  // deadline is not affected by setting the system's clock.
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

  // Wait, but only for `timeout`, which the steady clock measures. Returns false if it has passed.
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
