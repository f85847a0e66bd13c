#include "server/coordinator/kept_state_transitions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/coordinator/job_transitions.h"
#include "server/coordinator/job_view.h"
#include "server/coordinator/kept_state.h"
#include "server/coordinator/run_completion.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

bool AnyLeaves(const Core& core, const RunRecord& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(), [&](const RunRank& rank) {
    const WorkerRecord* worker = core.workers.Find(rank.worker);
    return worker != nullptr && worker->leaving;
  });
}

// Jobs that have a run learn it from their run's loss.
void EndWaitingUsers(Core& core, const JobRecord& lender) {
  std::vector<int64_t> waiting;
  for (const auto& [number, job] : core.jobs.all()) {
    if (job.lender == lender.number && !job.terminal() && job.run == 0) waiting.push_back(number);
  }
  for (int64_t number : waiting) {
    EndJob(core, *core.jobs.Find(number), v1::Job::STATE_FAILED, LossError(core, lender));
  }
}

// True when there is nothing left to do for the job's state.
bool DropIfUnused(Core& core, JobRecord& job) {
  // Of a job that has not ended its end decides.
  if (!job.terminal()) return false;
  if (job.kept.status == KeptStatus::kHeld) return false;
  if (job.kept.run == 0) return true;
  const RunRecord* run = core.runs.Find(job.kept.run);
  if (job.kept.users > 0 || (run != nullptr && run->borrowers > 0)) return false;
  core.Log(LogLevel::kInfo, job.id, "its state is no longer kept");
  HaltRun(core, std::exchange(job.kept.run, 0), Group::kAlive);
  core.jobs.Unhold(job, core.now);
  return true;
}

}  // namespace

void OnReleaseState(Core& core, const event::ReleaseState& event) {
  JobRecord* job = core.jobs.Find(event.principal, event.job_id);
  if (job == nullptr) {
    core.Emit(action::Answer{event.call, JobNotFoundError(event.job_id)});
  } else if (job->kept.status == KeptStatus::kNone) {
    core.Emit(action::Answer{event.call, NoStateToReleaseError(event.job_id)});
  } else {
    EndState(core, *job, KeptStatus::kReleased);
    core.Emit(action::Answer{event.call, JobView(*job, JobDetail::kListed)});
  }
}

void OnKeptTimer(Core& core, int64_t number) {
  JobRecord* job = core.jobs.Find(number);
  if (job == nullptr || job->kept.status != KeptStatus::kHeld) return;
  if (core.now >= job->kept.expires) EndState(core, *job, KeptStatus::kExpired);
}

void LoseKeptRun(Core& core, const RunRecord& run) {
  JobRecord* job = core.jobs.Find(run.job);
  // Who uses a state that was released or has expired needs it all the same.
  EndState(core, *job, KeptStatus::kLost);
  job->kept.status = KeptStatus::kLost;
  core.kept_again = true;
}

void SettleKept(Core& core) {
  while (std::exchange(core.kept_again, false)) {
    const std::vector<int64_t> keeping(core.keeping.begin(), core.keeping.end());
    for (int64_t number : keeping) {
      JobRecord& job = *core.jobs.Find(number);
      const RunRecord* run = core.runs.Find(job.kept.run);
      const bool leaves = core.draining || (run != nullptr && AnyLeaves(core, *run));
      if (job.kept.status == KeptStatus::kHeld && leaves) {
        EndState(core, job, KeptStatus::kLost);
      }
      if (job.kept.status == KeptStatus::kLost && job.kept.users > 0) EndWaitingUsers(core, job);
      if (DropIfUnused(core, job)) core.keeping.erase(number);
    }
  }
}

}  // namespace annulus
