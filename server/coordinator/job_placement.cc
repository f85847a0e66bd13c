#include "server/coordinator/job_placement.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/wire/convert.h"
#include "proto/wire/ticket.h"
#include "server/coordinator/job_transitions.h"
#include "server/coordinator/job_view.h"
#include "server/coordinator/segment_scheduler.h"
#include "server/coordinator/serving.h"

namespace annulus {
namespace {

// Where a job could go, and what is in its way.
struct Place {
  bool possible = false;         // With patience: such a place exists.
  int64_t group = 0;             // 0: solo.
  std::vector<int64_t> workers;  // Empty: no room now.
  std::vector<int64_t> wanted;   // Lacks only bytes here.
};

struct GroupLoad {
  const GroupRecord* group = nullptr;
  int32_t jobs_ahead = 0;
};

// What is placed already, counted once for each pass.
struct Pass {
  Core& core;
  const std::vector<std::vector<int64_t>> family;  // Of groups that there are or will be.
  std::set<int64_t> claimed;
  std::vector<GroupLoad> groups;  // That are wanted and live, small ones first.
  std::map<int64_t, int32_t> solo_on_worker;
  const std::map<int64_t, int64_t> awaited_devices;
};

// By a run of an earlier job.
bool DeviceIsAwaited(const Pass& pass, int64_t worker, const JobRecord& job) {
  const auto found = pass.awaited_devices.find(worker);
  return found != pass.awaited_devices.end() && found->second < job.number;
}

bool IsClaimed(const Pass& pass, const std::vector<int64_t>& workers) {
  return std::any_of(workers.begin(), workers.end(),
                     [&](int64_t worker) { return pass.claimed.count(worker) != 0; });
}

bool WillKeep(const JobRecord& job) { return job.kept.status == KeptStatus::kAwaited; }

// What placing takes; device memory at once where nobody is asked for it later.
PoolBytes BytesOf(const JobRecord& job, size_t rank, bool solo) {
  const int64_t staging = job.plan->bytes[rank].total();
  return {staging, solo ? job.plan->cost.peak_bytes_per_rank : 0, WillKeep(job) ? staging : 0};
}

bool HasRoom(const Core& core, const JobRecord& job, const std::vector<int64_t>& workers) {
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    const PoolBytes bytes = BytesOf(job, rank, job.plan->world_size() == 1);
    if (!core.ledger.HasRoom(workers[rank], bytes)) return false;
  }
  return true;
}

// With nothing else there. Plans fit the workers for which they were made; others may be smaller.
bool CouldHold(const Core& core, const JobRecord& job, const std::vector<int64_t>& workers) {
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    if (!core.ledger.CouldHold(workers[rank], BytesOf(job, rank, /*solo=*/true))) return false;
  }
  return true;
}

// For the end of states, which may be long in coming, and that of one may wait for a job behind
// this one: that keeps nobody else waiting.
bool WaitsForStates(const Core& core, const JobRecord& job, const std::vector<int64_t>& workers) {
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    const PoolBytes need = BytesOf(job, rank, false);
    if (!core.ledger.HasRoom(workers[rank], {0, 0, need.kept})) return true;
    const PoolBytes used = core.ledger.used(workers[rank]);
    const int64_t free = core.ledger.limits(workers[rank]).staging - used.staging;
    if (need.staging > free && need.staging <= free + used.kept) return true;
  }
  return false;
}

Place FindWorker(Pass& pass, const JobRecord& job) {
  Place place;
  if (!CheckAlike(pass.core, *job.submission).ok()) return place;
  int32_t least = 0;
  int64_t freest = -1;
  for (const auto& [number, worker] : pass.core.workers.all()) {
    if (!worker.eligible()) continue;
    const auto solo = pass.solo_on_worker.find(number);
    const int32_t load = solo == pass.solo_on_worker.end() ? 0 : solo->second;
    const bool takes_jobs = worker.ready() && load < pass.core.options.solo_jobs_per_worker;
    if (!takes_jobs && place.possible) continue;  // It would add nothing.
    if (!Serves(worker.info, *job.submission)) continue;
    const std::vector<int64_t> one = {number};
    if (!CouldHold(pass.core, job, one)) continue;
    place.possible = true;
    if (!takes_jobs || DeviceIsAwaited(pass, number, job)) continue;
    if (!IsClaimed(pass, one) && HasRoom(pass.core, job, one)) {
      if (place.workers.empty() || load < least) {
        place.workers = one;
        least = load;
      }
      continue;
    }
    const int64_t free =
        pass.core.ledger.limits(number).staging - pass.core.ledger.used(number).staging;
    if (free > freest) place.wanted = one;
    freest = std::max(freest, free);
  }
  return place;
}

bool TakesJobs(const Core& core, const GroupRecord& group) {
  if (group.state != GroupRecord::State::kReady) return false;
  return std::all_of(group.members.begin(), group.members.end(),
                     [&](int64_t member) { return core.workers.Find(member)->ready(); });
}

// The first of `members`, as many as it has ranks; none where they cannot run it.
std::vector<int64_t> RanksOf(const Core& core, const std::vector<int64_t>& members,
                             const JobRecord& job) {
  const auto size = static_cast<size_t>(job.plan->world_size());
  if (!FirstServe(core, members, size, *job.submission)) return {};
  std::vector<int64_t> ranks(members.begin(), members.begin() + job.plan->world_size());
  if (!CouldHold(core, job, ranks)) ranks.clear();
  return ranks;
}

// No try to form it has failed since one was formed. While others fail a job looks elsewhere; where
// one does not, it is there all the same.
bool MayForm(const Core& core, const std::vector<int64_t>& members) {
  return core.groups.FormationError(members).ok();
}

Place FindGroup(Pass& pass, const JobRecord& job) {
  Place place;
  if (!CheckAlike(pass.core, *job.submission).ok()) return place;
  size_t smallest = 0;
  int32_t least = 0;
  for (const auto& [group, load] : pass.groups) {
    if (place.possible && group->members.size() > smallest) break;
    const bool full = load >= pass.core.options.jobs_ahead_per_group;
    if (full && place.possible) continue;  // It would add nothing.
    if (!MayForm(pass.core, group->members)) continue;
    const std::vector<int64_t> ranks = RanksOf(pass.core, group->members, job);
    if (ranks.empty()) continue;
    place.possible = true;
    smallest = group->members.size();
    if (full || !TakesJobs(pass.core, *group)) continue;
    if (IsClaimed(pass, ranks) || !HasRoom(pass.core, job, ranks)) {
      if (place.wanted.empty()) place.wanted = ranks;
    } else if (place.workers.empty() || load < least) {
      place.group = group->number;
      place.workers = ranks;
      least = load;
    }
  }
  // The family is being formed or formed again.
  if (!place.possible) {
    place.possible = std::any_of(pass.family.begin(), pass.family.end(), [&](const auto& members) {
      return MayForm(pass.core, members) && !RanksOf(pass.core, members, job).empty();
    });
  }
  return place;
}

bool BeginsWith(const std::vector<int64_t>& members, const std::vector<int64_t>& ranks) {
  return members.size() >= ranks.size() && std::equal(ranks.begin(), ranks.end(), members.begin());
}

bool WillBeGroup(const Pass& pass, const std::vector<int64_t>& ranks) {
  return std::any_of(pass.family.begin(), pass.family.end(), [&](const auto& members) {
    return BeginsWith(members, ranks) && MayForm(pass.core, members);
  });
}

void TakeOrWant(const Pass& pass, const JobRecord& job, std::vector<int64_t> ranks, Place* place) {
  const bool room = !IsClaimed(pass, ranks) && HasRoom(pass.core, job, ranks);
  (room ? place->workers : place->wanted) = std::move(ranks);
}

// Only the workers that hold the state, each as the rank whose rows it has.
Place FindLender(Pass& pass, const JobRecord& job) {
  const Core& core = pass.core;
  Place place;
  const RunRecord* lender = core.runs.Find(core.jobs.Find(job.lender)->kept.run);
  if (lender == nullptr) return place;
  std::vector<int64_t> ranks;
  for (const RunRank& rank : lender->ranks) ranks.push_back(rank.worker);
  if (ranks.size() == 1) {
    const WorkerRecord* worker = core.workers.Find(ranks[0]);
    place.possible = worker != nullptr && worker->eligible();
    const bool taken = pass.solo_on_worker[ranks[0]] >= core.options.solo_jobs_per_worker;
    if (place.possible && worker->ready() && !taken) TakeOrWant(pass, job, ranks, &place);
    return place;
  }
  place.possible = WillBeGroup(pass, ranks);
  // Of those that would do the oldest, as ever.
  for (const auto& [group, load] : pass.groups) {
    if (!BeginsWith(group->members, ranks) || !TakesJobs(core, *group)) continue;
    if (load >= core.options.jobs_ahead_per_group) continue;
    if (place.group == 0 || group->number < place.group) place.group = group->number;
  }
  if (place.group != 0) TakeOrWant(pass, job, ranks, &place);
  return place;
}

void NoteWhetherPossible(Core& core, JobRecord& job, bool possible) {
  if (possible) {
    if (job.unplaceable_since == absl::InfiniteFuture()) return;
    job.unplaceable_since = absl::InfiniteFuture();
  } else {
    if (job.lender == 0 && job.planned_epoch != core.membership_epoch) {
      core.replan.insert(job.number);
    }
    if (job.unplaceable_since != absl::InfiniteFuture()) return;
    job.unplaceable_since = core.now;
  }
  ArmJobTimer(core, job);
}

std::string TicketFor(const Core& core, const JobRecord& job, const RunRecord& run, int32_t rank) {
  const WorkerRecord& worker = *core.workers.Find(run.ranks[rank].worker);
  return SignTicket(worker.info.ticket_key(),
                    {job.id, run.attempt, rank, worker.info.incarnation(), job.principal,
                     run.plan->bytes[rank].input, core.TimeOfDay(job.deadline)});
}

void SendReserve(Core& core, const JobRecord& job, const RunRecord& run, int32_t rank) {
  control::v1::WorkerCommand command;
  control::v1::Reserve& reserve = *command.mutable_reserve();
  *reserve.mutable_shard() = run.Key(rank);
  *reserve.mutable_execution() = ExecutionToProto(run.plan->execution);
  reserve.set_granule(run.plan->granule);
  for (int32_t parts : run.plan->parts_of_step) reserve.add_parts_of_step(parts);
  reserve.set_principal(job.principal);
  reserve.set_staging_bytes(run.plan->bytes[rank].total());
  reserve.set_solo(run.solo());
  reserve.set_keep(run.keep);
  if (run.lender != 0) *reserve.mutable_lender() = core.runs.Find(run.lender)->Key(rank);
  *reserve.mutable_upload_time() = DurationToProto(run.upload_deadline - core.now);
  if (job.detached()) {
    // The coordinator's own clock ends the job; this is for when it cannot.
    *reserve.mutable_download_time() =
        DurationToProto(ResultTtl(core, job) + core.options.answer_timeout);
  }
  core.Send(run.ranks[rank].worker, std::move(command), job.submission->spec_bytes);
}

void TellClient(Core& core, JobRecord& job, const RunRecord& run) {
  job.placement = PlanView(*run.plan);
  job.placement.set_attempt(run.attempt);
  *job.placement.mutable_upload_deadline() = TimeToProto(core.TimeOfDay(run.upload_deadline));
  for (v1::ShardPlan& shard : *job.placement.mutable_shards()) {
    const int64_t worker = run.ranks[shard.rank()].worker;
    shard.set_endpoint(core.workers.Find(worker)->info.data_endpoint());
  }
  job.has_placement = true;
  v1::JobEvent placed;
  *placed.mutable_placed() = job.placement;
  for (v1::ShardPlan& shard : *placed.mutable_placed()->mutable_shards()) {
    shard.set_ticket(TicketFor(core, job, run, shard.rank()));
  }
  Notify(core, job, std::move(placed));
  SetState(core, job, v1::Job::STATE_UPLOADING);
  if (run.attempt == 1) return;
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    if (run.plan->bytes[rank].input == 0) continue;
    v1::JobEvent event;
    event.mutable_shard_needed()->set_attempt(run.attempt);
    event.mutable_shard_needed()->set_rank(static_cast<int32_t>(rank));
    *event.mutable_shard_needed()->mutable_cause() = ErrorToProto(job.lost_cause);
    Notify(core, job, std::move(event));
  }
}

absl::Time UploadDeadline(const Core& core, const JobRecord& job) {
  int64_t largest = 0;
  for (const ShardBytes& bytes : job.plan->bytes) largest = std::max(largest, bytes.input);
  const absl::Duration floor =
      absl::Seconds(static_cast<double>(largest) / core.options.upload_floor_bytes_per_second);
  return std::min(job.deadline, core.now + core.options.upload_grace + floor);
}

RunRecord& AddRun(Core& core, JobRecord& job, const Place& place) {
  RunRecord& run = core.runs.Add(job.id, ++job.attempt);
  run.job = job.number;
  run.principal = job.principal;
  run.priority = job.submission->execution.priority;
  run.group = place.group;
  run.plan = job.plan;
  run.keep = WillKeep(job);
  if (job.lender != 0) {
    run.lender = core.jobs.Find(job.lender)->kept.run;
    ++core.runs.Find(run.lender)->borrowers;
  }
  run.upload_deadline = UploadDeadline(core, job);
  std::vector<Ledger::Claim> claims;
  for (size_t rank = 0; rank < place.workers.size(); ++rank) {
    RunRank of;
    of.worker = place.workers[rank];
    run.ranks.push_back(std::move(of));
    claims.push_back({place.workers[rank], BytesOf(job, rank, place.group == 0)});
  }
  core.ledger.Reserve(run.number, claims);
  job.run = run.number;
  job.placed = core.now;
  job.unplaceable_since = absl::InfiniteFuture();
  return run;
}

void PlaceRun(Pass& pass, JobRecord& job, const Place& place) {
  Core& core = pass.core;
  const RunRecord& run = AddRun(core, job, place);
  if (run.solo()) ++pass.solo_on_worker[place.workers[0]];
  for (GroupLoad& each : pass.groups) {
    if (each.group->number == run.group) ++each.jobs_ahead;
  }
  // Before the client's word: a shard that finds its Reserve is copied into staging at once, and on
  // a busy machine this thread may lose its CPU to the client that it has just woken.
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    SendReserve(core, job, run, static_cast<int32_t>(rank));
  }
  TellClient(core, job, run);
  core.Emit(action::Log{LogLevel::kInfo, job.id, absl::StrCat("attempt ", job.attempt, " placed: "),
                        job.plan});
  ArmJobTimer(core, job);
}

bool TryPlace(Pass& pass, JobRecord& job) {
  if (job.planning != 0) return false;
  if (pass.core.replan.count(job.number) != 0) {
    NoteWhetherPossible(pass.core, job, pass.core.workers.ready_count() > 0);
    return false;
  }
  const bool solo = job.plan->world_size() == 1;
  const Place place = job.lender != 0 ? FindLender(pass, job)
                      : solo          ? FindWorker(pass, job)
                                      : FindGroup(pass, job);
  NoteWhetherPossible(pass.core, job, place.possible);
  job.waits_for_states = place.workers.empty() && WaitsForStates(pass.core, job, place.wanted);
  if (!place.workers.empty()) {
    PlaceRun(pass, job, place);
    return true;
  }
  if (!job.waits_for_states) {
    pass.claimed.insert(place.wanted.begin(), place.wanted.end());
  }
  return false;
}

Pass StartPass(Core& core) {
  Pass pass{core, core.Family(), {}, {}, {}, AwaitedDevices(core)};
  std::map<int64_t, int32_t> ahead_of_group;
  for (const auto& [number, run] : core.runs.all()) {
    if (run.solo()) {
      if (run.state <= RunRecord::State::kRunning) ++pass.solo_on_worker[run.ranks[0].worker];
    } else if (run.ahead()) {
      ++ahead_of_group[run.group];
    }
  }
  for (const auto& [number, group] : core.groups.all()) {
    if (group.wanted && group.live()) pass.groups.push_back({&group, ahead_of_group[number]});
  }
  std::stable_sort(pass.groups.begin(), pass.groups.end(), [](const auto& a, const auto& b) {
    return a.group->members.size() < b.group->members.size();
  });
  return pass;
}

}  // namespace

void PlaceJobs(Core& core) {
  if (!std::exchange(core.place_again, false) || core.queue.size() == 0) return;
  Pass pass = StartPass(core);
  core.queue.Serve([&](int64_t number) {
    if (core.runs.all().size() >= core.options.max_active_jobs) return false;
    return TryPlace(pass, *core.jobs.Find(number));
  });
}

}  // namespace annulus
