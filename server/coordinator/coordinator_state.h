#ifndef ANNULUS_SERVER_COORDINATOR_COORDINATOR_STATE_H_
#define ANNULUS_SERVER_COORDINATOR_COORDINATOR_STATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "server/coordinator/state/coordinator_options.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/job_plan.h"

namespace annulus {

struct CoordinatorTables;

// The coordinator: a deterministic state machine. Membership, groups, admission, queue, jobs and
// retries are decided here and nowhere else. It has no threads, no clock and no gRPC: whoever
// drives it hands in what happened and when, and does what it says, in order. Equal events, times
// and random numbers give equal actions.
//
// Not thread-safe: one owner thread.
class CoordinatorState {
 public:
  // `random` gives job ids and must be unpredictable in production. `plan` is called inside Handle
  // for small requests (MakeJobPlan, or a stand-in).
  CoordinatorState(CoordinatorOptions options, std::function<uint64_t()> random, PlanFunction plan,
                   absl::Time now);
  ~CoordinatorState();

  // How far the time of day is ahead of the clock that gives `now`; 0 at first. Only what leaves
  // the coordinator knows it: tickets, and times in answers.
  void SetTimeOfDay(absl::Duration ahead);

  // What follows from the event and from the time that has passed. Time does not go back: an
  // earlier `now` counts as the latest one.
  std::vector<Action> Handle(Event event, absl::Time now);

  // Handle(Tick) is wanted by then; InfiniteFuture when time alone changes nothing.
  absl::Time NextWakeup() const;

  // For tests, which look and do not touch.
  const CoordinatorTables& tables() const { return *core_; }

 private:
  std::unique_ptr<CoordinatorTables> core_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_COORDINATOR_STATE_H_
