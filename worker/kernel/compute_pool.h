#ifndef ANNULUS_WORKER_KERNEL_COMPUTE_POOL_H_
#define ANNULUS_WORKER_KERNEL_COMPUTE_POOL_H_

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

  // Calls work(index, thread) once for every index in [0, count), handed out in increasing order,
  // and returns when all calls have returned. `thread` in [0, threads()) is running one call at a
  // time.
  using Work = absl::FunctionRef<void(int64_t index, int thread)>;
  void ParallelFor(int64_t count, Work work);

 private:
  explicit ComputePool(int threads) : threads_(threads) {}
  bool StartThreads();
  void Serve(int thread);
  void Drain(const Work& work, int64_t count, int thread);

  const int threads_;
  std::vector<std::thread> others_;
  std::atomic<int64_t> next_{0};

  Mutex mutex_;
  CondVar wake_, done_;
  const Work* work_ GUARDED_BY(mutex_) = nullptr;
  int64_t count_ GUARDED_BY(mutex_) = 0;
  // Written with mutex_ held; who spins looks without it.
  std::atomic<uint64_t> round_{0};
  std::atomic<int> busy_{0};
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_COMPUTE_POOL_H_
