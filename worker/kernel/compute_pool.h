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

// The threads of a CPU kernel. One owner thread calls it and takes part in the work. Where they are
// as many as the CPUs, and those few, each other thread is kept on a CPU of its own, away from the
// owner's: Linux wakes a thread where the waker runs rather than look for an idle CPU among a few
// busy ones.
class ComputePool {
 public:
  static constexpr int kMaxThreads = 1024;

  // A pool of `threads` threads, the caller's included. INVALID_ARGUMENT outside 1 … kMaxThreads;
  // RESOURCE_EXHAUSTED when the system refuses a thread.
  static absl::StatusOr<std::unique_ptr<ComputePool>> Create(int threads);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const { return threads_; }

  // Calls work(index, thread) once for every index in [0, count), and returns when all calls have
  // returned: a thread that wakes too late is not waited for. `thread` in [0, threads()) is running
  // one call at a time.
  //
  // Index i lies in list i % min(threads(), count). A thread takes from the list of its own number,
  // then what is left of the next ones; each list is handed out in increasing order. So a thread
  // meets the same indexes call after call, and what its caches hold of them, unless one is late.
  using Work = absl::FunctionRef<void(int64_t index, int thread)>;
  void ParallelFor(int64_t count, Work work);

 private:
  explicit ComputePool(int threads);
  // The next index of a list, on a cache line of its own.
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
  std::vector<int> cpus_;  // Those to spread over; empty: the system does as it likes.
  int owner_cpu_ = -1;     // When they were last spread.
  std::vector<List> lists_;

  Mutex mutex_;
  CondVar wake_, done_;
  const Work* work_ GUARDED_BY(mutex_) = nullptr;  // nullptr: nothing to join.
  int64_t count_ GUARDED_BY(mutex_) = 0;
  // Written with mutex_ held; who spins looks without it.
  std::atomic<uint64_t> round_{0};
  std::atomic<int> joined_{0};  // Other threads at work_.
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_COMPUTE_POOL_H_
