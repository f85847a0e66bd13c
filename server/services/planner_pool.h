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

// Threads that make the plans that the coordinator loop does not make itself: `threads`, and one
// more for quick plans only, so that no small job waits for plans that take seconds. The caller
// bounds the number of waiting plans. Thread-safe.
class PlannerPool {
 public:
  // Called by a thread of the pool.
  using Done = std::function<void(PlanResult)>;

  // Order of plans: jobs' plans before dry runs, older ones first.
  struct Turn {
    bool dry_run = false;
    int64_t plan = 0;    // Number of the plan; never reused.
    bool quick = false;  // Takes almost no time.
    friend bool operator<(const Turn& a, const Turn& b) {
      return std::make_pair(a.dry_run, a.plan) < std::make_pair(b.dry_run, b.plan);
    }
  };

  PlannerPool(int threads, PlanFunction plan);
  // Waits for the plans that are being made.
  ~PlannerPool();

  // `done` is not called if the pool stops, or forgets the plan, before its turn.
  void Post(Turn turn, PlanRequest request, Done done) EXCLUDES(mutex_);
  // The plan is not made if its turn has not come yet.
  void Forget(int64_t plan) EXCLUDES(mutex_);
  // Forgets waiting plans and starts no other plan. Does not wait. Idempotent.
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
