#include "server/services/planner_pool.h"

namespace annulus {

PlannerPool::PlannerPool(int threads, size_t max_waiting, PlanFunction plan)
    : max_waiting_(max_waiting), plan_(std::move(plan)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

PlannerPool::~PlannerPool() { Stop(); }

bool PlannerPool::Post(PlanRequest request, Done done) {
  {
    MutexLock lock(&mutex_);
    if (stopping_ || waiting_.size() >= max_waiting_) return false;
    waiting_.emplace_back(std::move(request), std::move(done));
  }
  changed_.Signal();
  return true;
}

void PlannerPool::Run() {
  while (true) {
    std::pair<PlanRequest, Done> next;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
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
