#ifndef ANNULUS_SERVER_SERVICES_PLANNER_POOL_H_
#define ANNULUS_SERVER_SERVICES_PLANNER_POOL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "server/coordinator/state/job_plan.h"

namespace annulus {

// Threads that plan what the coordinator loop does not: `threads`, and one for quick plans alone,
// so that no small job waits for plans that take seconds. Who posts bounds what waits. Thread-safe.
class PlannerPool {
 public:
  // Called by a thread of the pool.
  using Done = std::function<void(PlanResult)>;

  // When a plan is made: jobs' plans before dry runs, of each the older one first.
  struct Turn {
    bool dry_run = false;
    int64_t plan = 0;    // Its number, never used again.
    bool quick = false;  // Takes no time to speak of.
    friend bool operator<(const Turn& a, const Turn& b) {
      return std::make_pair(a.dry_run, a.plan) < std::make_pair(b.dry_run, b.plan);
    }
  };

  PlannerPool(int threads, PlanFunction plan);
  // Waits for the plans that are being made.
  ~PlannerPool();

  // `done` is not called when the pool stops, or forgets the plan, before its turn comes.
  void Post(Turn turn, PlanRequest request, Done done) EXCLUDES(mutex_);
  // The plan is not made if its turn has not come yet.
  void Forget(int64_t plan) EXCLUDES(mutex_);
  // Forgets what waits, and makes no other plan. Does not wait. Idempotent.
  void Stop() EXCLUDES(mutex_);

 private:
  using Work = std::pair<PlanRequest, Done>;
  using Waiting = std::map<Turn, Work>;
  void Run(bool quick_alone) EXCLUDES(mutex_);
  Waiting::iterator Next(bool quick_alone) REQUIRES(mutex_);

  const PlanFunction plan_;
  Mutex mutex_;
  CondVar changed_;
  Waiting waiting_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICES_PLANNER_POOL_H_
