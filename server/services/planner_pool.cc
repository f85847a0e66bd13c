#include "server/services/planner_pool.h"

#include <algorithm>

namespace annulus {

PlannerPool::PlannerPool(int threads, PlanFunction plan) : plan_(std::move(plan)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(false); });
  threads_.emplace_back([this] { Run(/*quick_alone=*/true); });
}

PlannerPool::~PlannerPool() {
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

void PlannerPool::Post(Turn turn, PlanRequest request, Done done) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    waiting_.emplace(turn, std::make_pair(std::move(request), std::move(done)));
  }
  changed_.SignalAll();  // A thread may wake up that cannot take it.
}

void PlannerPool::Forget(int64_t plan) {
  std::vector<Work> forgotten;  // Destroyed without the lock.
  MutexLock lock(&mutex_);
  for (const bool dry_run : {false, true}) {
    const auto it = waiting_.find({dry_run, plan});
    if (it == waiting_.end()) continue;
    forgotten.push_back(std::move(it->second));
    waiting_.erase(it);
  }
}

PlannerPool::Waiting::iterator PlannerPool::Next(bool quick_alone) {
  return std::find_if(waiting_.begin(), waiting_.end(), [quick_alone](const auto& waiting) {
    return waiting.first.quick || !quick_alone;
  });
}

void PlannerPool::Run(bool quick_alone) {
  while (true) {
    Work next;
    {
      MutexLock lock(&mutex_);
      auto first = Next(quick_alone);
      for (; first == waiting_.end() && !stopping_; first = Next(quick_alone)) {
        changed_.Wait(&mutex_);
      }
      if (stopping_) return;
      next = std::move(first->second);
      waiting_.erase(first);
    }
    next.second(plan_(next.first));
  }
}

void PlannerPool::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    waiting_.clear();
  }
  changed_.SignalAll();
}

}  // namespace annulus
