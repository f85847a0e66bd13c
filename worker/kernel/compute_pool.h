#ifndef ANNULUS_WORKER_KERNEL_COMPUTE_POOL_H_
#define ANNULUS_WORKER_KERNEL_COMPUTE_POOL_H_

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace annulus {

// The threads of a CPU kernel. One owner thread calls it and takes part in the work.
//
// If there are as many threads as CPUs, and few, the pool pins each other thread to its own CPU,
// away from the owner's. Linux wakes a thread on the waker's CPU rather than look for an idle one
// among a few busy ones.
class ComputePool {
 public:
  static constexpr int kMaxThreads = 1024;

  // Makes a pool of `threads` threads; the count includes the caller. Errors: INVALID_ARGUMENT
  // outside 1 … kMaxThreads; RESOURCE_EXHAUSTED if the system refuses a thread.
  static absl::StatusOr<std::unique_ptr<ComputePool>> Create(int threads);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const { return threads_; }

  // Calls work(index, thread) once for every index in [0, count), and returns when all calls have
  // returned. It does not wait for a thread that wakes too late. Each `thread` in [0, threads())
  // runs one call at a time.
  //
  // Index i lies in list i % min(threads(), count). A thread takes indexes from the list of its own
  // number, then from the next lists; each list is handed out in increasing order. So a thread gets
  // the same indexes in each call, with the data that its caches hold, unless a thread is late.
  using Work = absl::FunctionRef<void(int64_t index, int thread)>;
  void ParallelFor(int64_t count, Work work);

 private:
  explicit ComputePool(int threads);
  // The next index of a list. Each has a cache line of its own.
  struct alignas(64) List {
    std::atomic<int64_t> next{0};
  };

  bool StartThreads();
  void Spread();
  void Serve(int thread);
  int64_t Lists(int64_t count) const { return std::min<int64_t>(threads_, count); }
  void Drain(const Work& work, int64_t count, int thread);

  const int threads_;
  std::vector<std::thread> others_;
  std::vector<int> cpus_;  // The CPUs to spread the threads over; empty: no pinning.
  int owner_cpu_ = -1;     // The owner's CPU when the threads were last spread.
  std::vector<List> lists_;

  Mutex mutex_;
  CondVar wake_, done_;
  const Work* work_ GUARDED_BY(mutex_) = nullptr;  // nullptr: there is no work to join.
  int64_t count_ GUARDED_BY(mutex_) = 0;
  // Written with mutex_ held; spinning threads read it without.
  std::atomic<uint64_t> round_{0};
  std::atomic<int> joined_{0};  // The number of other threads at work_.
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_COMPUTE_POOL_H_
