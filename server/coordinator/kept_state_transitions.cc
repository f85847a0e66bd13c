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

bool AnyLeaves(const CoordinatorTables& tables, const RunRecord& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(), [&](const RunRank& rank) {
    const WorkerRecord* worker = tables.workers.Find(rank.worker);
    return worker != nullptr && worker->leaving;
  });
}

// Jobs with a run get the loss through their run.
void EndWaitingUsers(CoordinatorTables& tables, const JobRecord& lender) {
  std::vector<int64_t> waiting;
  for (const auto& [number, job] : tables.jobs.all()) {
    if (job.lender == lender.number && !job.terminal() && job.run == 0) waiting.push_back(number);
  }
  for (int64_t number : waiting) {
    EndJob(tables, *tables.jobs.Find(number), v1::Job::STATE_FAILED, LossError(tables, lender));
  }
}

// True if nothing is left to do for the job's state.
bool DropIfUnused(CoordinatorTables& tables, JobRecord& job) {
  // The end of the job decides about the state of a running job.
  if (!job.terminal()) return false;
  if (job.kept.status == KeptStatus::kHeld) return false;
  if (job.kept.run == 0) return true;
  const RunRecord* run = tables.runs.Find(job.kept.run);
  if (job.kept.users > 0 || (run != nullptr && run->borrowers > 0)) return false;
  tables.Log(LogLevel::kInfo, job.id, "its state is no longer kept");
  HaltRun(tables, std::exchange(job.kept.run, 0), Group::kAlive);
  tables.jobs.Unhold(job, tables.now);
  return true;
}

}  // namespace

void OnReleaseState(CoordinatorTables& tables, const event::ReleaseState& event) {
  JobRecord* job = tables.jobs.Find(event.principal, event.job_id);
  if (job == nullptr) {
    tables.Emit(action::Answer{event.call, JobNotFoundError(event.job_id)});
  } else if (job->kept.status == KeptStatus::kNone) {
    tables.Emit(action::Answer{event.call, NoStateToReleaseError(event.job_id)});
  } else {
    EndState(tables, *job, KeptStatus::kReleased);
    tables.Emit(action::Answer{event.call, JobView(*job, JobDetail::kListed)});
  }
}

void OnKeptTimer(CoordinatorTables& tables, int64_t number) {
  JobRecord* job = tables.jobs.Find(number);
  if (job == nullptr || job->kept.status != KeptStatus::kHeld) return;
  if (tables.now >= job->kept.expires) EndState(tables, *job, KeptStatus::kExpired);
}

void LoseKeptRun(CoordinatorTables& tables, const RunRecord& run) {
  JobRecord* job = tables.jobs.Find(run.job);
  // Jobs that use a released or expired state still need it.
  EndState(tables, *job, KeptStatus::kLost);
  job->kept.status = KeptStatus::kLost;
  tables.kept_again = true;
}

void SettleKept(CoordinatorTables& tables) {
  while (std::exchange(tables.kept_again, false)) {
    const std::vector<int64_t> keeping(tables.keeping.begin(), tables.keeping.end());
    for (int64_t number : keeping) {
      JobRecord& job = *tables.jobs.Find(number);
      const RunRecord* run = tables.runs.Find(job.kept.run);
      const bool leaves = tables.draining || (run != nullptr && AnyLeaves(tables, *run));
      if (job.kept.status == KeptStatus::kHeld && leaves) {
        EndState(tables, job, KeptStatus::kLost);
      }
      if (job.kept.status == KeptStatus::kLost && job.kept.users > 0) EndWaitingUsers(tables, job);
      if (DropIfUnused(tables, job)) tables.keeping.erase(number);
    }
  }
}

}  // namespace annulus
