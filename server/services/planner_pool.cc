#include "server/services/planner_pool.h"

namespace annulus {

PlannerPool::PlannerPool(int threads, PlanFunction plan) : plan_(std::move(plan)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

PlannerPool::~PlannerPool() { Stop(); }

void PlannerPool::Post(Turn turn, PlanRequest request, Done done) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    waiting_.emplace(turn, std::make_pair(std::move(request), std::move(done)));
  }
  changed_.Signal();
}

void PlannerPool::Forget(int64_t plan) {
  std::vector<Work> forgotten;  // Let go without the lock.
  MutexLock lock(&mutex_);
  for (const bool dry_run : {false, true}) {
    const auto it = waiting_.find({dry_run, plan});
    if (it == waiting_.end()) continue;
    forgotten.push_back(std::move(it->second));
    waiting_.erase(it);
  }
}

void PlannerPool::Run() {
  while (true) {
    Work next;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      next = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
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
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace annulus
