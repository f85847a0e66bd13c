#include "server/coordinator/kept_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "attention/spec/parallel_degrees.h"
#include "base/status_macros.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

TimerKey TimerOf(const JobRecord& job) { return {TimerKey::Kind::kKept, job.number}; }

// One rank has all rows whatever the layout.
absl::StatusOr<Execution> Pin(const Execution& asked, const Execution& kept) {
  Execution pinned = asked;
  if (asked.world_size != 0 && asked.world_size != kept.world_size) {
    return StateMismatchError("execution.world_size",
                              absl::StrCat("the state is kept on ", kept.world_size, " ranks"));
  }
  pinned.world_size = kept.world_size;
  if (kept.world_size == 1) return pinned;
  if (asked.layout != Layout::kAuto && asked.layout != kept.layout) {
    return StateMismatchError("execution.layout", absl::StrCat("the state is kept in the layout ",
                                                               LayoutName(kept.layout)));
  }
  if (asked.stripe != 0 && asked.stripe != std::max(1, kept.stripe)) {
    return StateMismatchError("execution.stripe", absl::StrCat("the state is kept in stripes of ",
                                                               std::max(1, kept.stripe)));
  }
  pinned.layout = kept.layout;
  pinned.stripe = kept.stripe;
  RETURN_IF_ERROR(CheckDegrees(pinned));
  return pinned;
}

bool WorkersStay(const CoordinatorTables& tables, const RunRecord& run) {
  return std::all_of(run.ranks.begin(), run.ranks.end(), [&](const RunRank& rank) {
    const WorkerRecord* worker = tables.workers.Find(rank.worker);
    return !rank.gone && worker != nullptr && !worker->leaving;
  });
}

}  // namespace

int64_t KeptLimit(const CoordinatorTables& tables, int64_t staging_bytes) {
  return static_cast<int64_t>(tables.options.kept_share * static_cast<double>(staging_bytes));
}

absl::Status StateError(const JobRecord& lender) {
  switch (lender.kept.status) {
    case KeptStatus::kReleased:
      return StateReleasedError(lender.id);
    case KeptStatus::kExpired:
      return StateExpiredError(lender.id);
    case KeptStatus::kLost:
      return StateLostError(lender.id);
    case KeptStatus::kNone:
    case KeptStatus::kAwaited:
    case KeptStatus::kHeld:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status LossError(const CoordinatorTables& tables, const JobRecord& lender) {
  return tables.draining ? DrainingError(tables.options.retry_after) : StateLostError(lender.id);
}

absl::StatusOr<UsedState> FindState(CoordinatorTables& tables, absl::string_view principal,
                                    const Submission& submission) {
  if (!submission.spec.uses_state()) return UsedState{nullptr, submission.execution};
  const std::string& name = submission.spec.gradients.state;
  JobRecord* lender = tables.jobs.Find(principal, name);
  if (lender == nullptr || lender->kept.status == KeptStatus::kNone) {
    return StateNotFoundError(name);
  }
  if (lender->kept.status == KeptStatus::kAwaited) {
    return StateNotReadyError(name, tables.options.retry_after);
  }
  RETURN_IF_ERROR(StateError(*lender));
  if (lender->submission->state_fingerprint != submission.state_fingerprint) {
    return StateMismatchError("spec",
                              "differs from the spec of the forward job that keeps the state");
  }
  ASSIGN_OR_RETURN(Execution pinned, Pin(submission.execution, lender->plan->execution));
  return UsedState{lender, std::move(pinned)};
}

absl::StatusOr<UsedState> StateOf(CoordinatorTables& tables, const JobRecord& job) {
  if (job.lender == 0) return UsedState{nullptr, job.submission->execution};
  JobRecord* lender = tables.jobs.Find(job.lender);
  ASSIGN_OR_RETURN(Execution pinned, Pin(job.submission->execution, lender->plan->execution));
  return UsedState{lender, std::move(pinned)};
}

absl::Status CheckMayKeep(const CoordinatorTables& tables, absl::string_view principal,
                          const Submission& submission) {
  if (!submission.spec.keeps_state()) return absl::OkStatus();
  if (tables.keeping.size() >= tables.options.max_kept_states) {
    return TooManyStatesError(tables.options.max_kept_states, tables.options.retry_after);
  }
  // The requests of these jobs stay as long as the states. They leave at least as much memory to
  // others. Waiting jobs leave half of the queue to others, as a job that ends a state must get in.
  // Jobs may wait long for states to end, so a principal has few of them.
  const int64_t limit = tables.options.max_request_bytes / 2;
  int64_t bytes = submission.bytes;
  size_t waiting = 0, own_for_states = 0;
  for (int64_t number : tables.keeping) {
    const JobRecord& job = *tables.jobs.Find(number);
    bytes += job.submission->bytes;
    if (job.terminal() || job.run != 0) continue;
    ++waiting;
    if (job.waits_for_states && job.principal == principal) ++own_for_states;
  }
  const size_t half = std::max<size_t>(1, tables.options.max_queued_jobs / 2);
  if (waiting >= half) return KeepersQueueFullError(half, tables.options.retry_after);
  if (own_for_states >= tables.options.max_waiting_keepers) {
    return KeepersQueueFullError(tables.options.max_waiting_keepers, tables.options.retry_after);
  }
  if (bytes <= limit) return absl::OkStatus();
  return RequestBytesFullError(limit, tables.options.retry_after);
}

absl::Status CheckPlanOnState(const CoordinatorTables& tables, const JobPlan& plan,
                              const JobRecord& lender) {
  const std::vector<Shard>& ours = plan.shards.shards;
  const std::vector<Shard>& kept = lender.plan->shards.shards;
  const bool same = std::equal(
      ours.begin(), ours.end(), kept.begin(), kept.end(), [](const Shard& a, const Shard& b) {
        return a.owner == b.owner && a.q_rows.ranges() == b.q_rows.ranges() &&
               a.kv_rows.ranges() == b.kv_rows.ranges();
      });
  if (!same) return OtherShardsError();
  const RunRecord* run = tables.runs.Find(lender.kept.run);
  for (size_t rank = 0; run != nullptr && rank < run->ranks.size(); ++rank) {
    const PoolBytes need{plan.bytes[rank].total() + lender.plan->bytes[rank].total(),
                         plan.cost.peak_bytes_per_rank, 0};
    if (!tables.ledger.CouldHold(run->ranks[rank].worker, need))
      return StateCapacityError(lender.id);
  }
  return absl::OkStatus();
}

void TakeState(CoordinatorTables& tables, JobRecord& job, JobRecord* lender) {
  if (job.submission->spec.keeps_state()) {
    job.kept.status = KeptStatus::kAwaited;
    tables.keeping.insert(job.number);
  }
  if (lender == nullptr) return;
  job.lender = lender->number;
  ++lender->kept.users;
}

bool SettleState(CoordinatorTables& tables, JobRecord& job, v1::Job::State state) {
  const bool succeeded = state == v1::Job::STATE_SUCCEEDED;
  tables.kept_again |= job.lender != 0 || job.kept.status != KeptStatus::kNone;
  if (job.lender != 0) {
    JobRecord* lender = tables.jobs.Find(job.lender);
    --lender->kept.users;
    if (succeeded && job.submission->spec.gradients.release_state) {
      EndState(tables, *lender, KeptStatus::kReleased);
    }
  }
  if (job.kept.status != KeptStatus::kAwaited) return false;
  RunRecord* run = tables.runs.Find(job.run);
  const bool stays = succeeded && run != nullptr && !tables.draining && WorkersStay(tables, *run);
  if (!stays) {
    job.kept.status = succeeded ? KeptStatus::kLost : KeptStatus::kNone;
    return false;
  }
  const absl::Duration keep = *job.submission->spec.forward.keep_state;
  job.kept.status = KeptStatus::kHeld;
  job.kept.run = run->number;
  job.kept.expires = tables.now + keep;
  job.kept.expire_time = tables.TimeOfDay(job.kept.expires);
  tables.timers.Set(TimerOf(job), job.kept.expires);
  run->state = RunRecord::State::kKept;
  return true;
}

void EndState(CoordinatorTables& tables, JobRecord& job, KeptStatus why) {
  if (job.kept.status != KeptStatus::kHeld && job.kept.status != KeptStatus::kAwaited) return;
  job.kept.status = why;
  tables.timers.Cancel(TimerOf(job));
  tables.kept_again = true;
}

}  // namespace annulus
