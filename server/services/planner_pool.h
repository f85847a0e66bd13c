#ifndef ANNULUS_SERVER_SERVICES_PLANNER_POOL_H_
#define ANNULUS_SERVER_SERVICES_PLANNER_POOL_H_

#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "server/coordinator/job_plan.h"

namespace annulus {

// Threads that plan large jobs, so that the brain need not. Thread-safe.
class PlannerPool {
 public:
  // Called by a thread of the pool.
  using Done = std::function<void(PlanResult)>;

  PlannerPool(int threads, size_t max_waiting, PlanFunction plan);
  ~PlannerPool();

  // False when `max_waiting` requests wait already, or the pool has stopped.
  bool Post(PlanRequest request, Done done) EXCLUDES(mutex_);
  // Forgets what waits and ends the threads. Idempotent.
  void Stop() EXCLUDES(mutex_);

 private:
  void Run() EXCLUDES(mutex_);

  const size_t max_waiting_;
  const PlanFunction plan_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::pair<PlanRequest, Done>> waiting_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICES_PLANNER_POOL_H_
