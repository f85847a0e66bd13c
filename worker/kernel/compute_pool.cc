#include "worker/kernel/compute_pool.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/cpu_list.h"

namespace annulus {
namespace {

// A kernel call is a few rounds in quick succession. A thread spins this long for the next round
// before it sleeps, because a wake-up takes about as long.
constexpr std::chrono::microseconds kSpin(50);

template <typename Condition>
void SpinUntil(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (condition()) return;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
}

// To spread takes one system call for each thread whenever the owner has moved to another CPU.
constexpr int kMostToSpread = 8;

std::vector<int> CpusToSpreadOver(int threads) {
  if (threads > kMostToSpread) return {};
  std::vector<int> cpus = AllowedCpus();
  return cpus.size() == static_cast<size_t>(threads) ? cpus : std::vector<int>();
}

}  // namespace

ComputePool::ComputePool(int threads)
    : threads_(threads), cpus_(CpusToSpreadOver(threads)), lists_(threads) {}

absl::StatusOr<std::unique_ptr<ComputePool>> ComputePool::Create(int threads) {
  if (threads < 1 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads must be 1 to ", kMaxThreads, ", not ", threads));
  }
  std::unique_ptr<ComputePool> pool(new ComputePool(threads));
  if (!pool->StartThreads()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start a pool of ", threads, " threads"));
  }
  return pool;
}

// std::thread throws if the system has no thread left: the exception ends here.
bool ComputePool::StartThreads() {
  try {
    for (int thread = 1; thread < threads_; ++thread)
      others_.emplace_back([this, thread] { Serve(thread); });
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

ComputePool::~ComputePool() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    wake_.SignalAll();
  }
  for (std::thread& thread : others_) thread.join();
}

void ComputePool::Spread() {
  const int cpu = sched_getcpu();
  if (cpus_.empty() || cpu == owner_cpu_) return;
  const auto own = std::find(cpus_.begin(), cpus_.end(), cpu);
  if (own == cpus_.end()) return;
  owner_cpu_ = cpu;
  size_t next = own - cpus_.begin();
  for (std::thread& thread : others_) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus_[++next % cpus_.size()], &one);
    // A refusal is harmless: the system then places the thread.
    pthread_setaffinity_np(thread.native_handle(), sizeof(one), &one);
  }
}

void ComputePool::Drain(const Work& work, int64_t count, int thread) {
  const int64_t lists = Lists(count);
  for (int64_t i = 0; i < lists; ++i) {
    std::atomic<int64_t>& next = lists_[(thread + i) % lists].next;
    // An empty list is only read, so that its cache line stays shared.
    while (next.load(std::memory_order_relaxed) < count) {
      const int64_t index = next.fetch_add(lists, std::memory_order_relaxed);
      if (index < count) work(index, thread);
    }
  }
}

void ComputePool::ParallelFor(int64_t count, Work work) {
  if (count <= 0) return;
  if (count == 1 || threads_ == 1) {
    for (int64_t index = 0; index < count; ++index) work(index, 0);
    return;
  }
  Spread();
  {
    MutexLock lock(&mutex_);
    for (int64_t list = 0; list < Lists(count); ++list)
      lists_[list].next.store(list, std::memory_order_relaxed);
    work_ = &work;
    count_ = count;
    ++round_;
    wake_.SignalAll();
  }
  Drain(work, count, 0);
  {
    MutexLock lock(&mutex_);
    work_ = nullptr;
  }
  SpinUntil([this] { return joined_.load(std::memory_order_acquire) == 0; });
  MutexLock lock(&mutex_);
  while (joined_ > 0) done_.Wait(&mutex_);
}

void ComputePool::Serve(int thread) {
  uint64_t served = 0;
  for (;;) {
    const Work* work = nullptr;
    int64_t count = 0;
    if (served > 0) {
      SpinUntil([this, served] { return round_.load(std::memory_order_relaxed) != served; });
    }
    {
      MutexLock lock(&mutex_);
      while (round_ == served && !stopping_) wake_.Wait(&mutex_);
      if (stopping_) return;
      served = round_;
      if (work_ == nullptr) continue;
      work = work_;
      count = count_;
      ++joined_;
    }
    Drain(*work, count, thread);
    MutexLock lock(&mutex_);
    if (--joined_ == 0) done_.Signal();
  }
}

}  // namespace annulus
