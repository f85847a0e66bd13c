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

// A place for a job, and what prevents it.
struct Place {
  bool possible = false;         // A place exists now or later.
  int64_t group = 0;             // 0: solo.
  std::vector<int64_t> workers;  // Empty: no room now.
  std::vector<int64_t> wanted;   // Only bytes are missing on these.
};

struct GroupLoad {
  const GroupRecord* group = nullptr;
  int32_t jobs_ahead = 0;
};

// The jobs that are already placed, counted once for each pass.
struct Pass {
  CoordinatorTables& tables;
  const std::vector<std::vector<int64_t>> family;  // Present and future groups.
  std::set<int64_t> claimed;
  std::vector<GroupLoad> groups;  // Wanted and live, small ones first.
  std::map<int64_t, int32_t> solo_on_worker;
  const std::map<int64_t, int64_t> awaited_devices;
};

// True if a run of an earlier job waits for the worker's device memory.
bool DeviceIsAwaited(const Pass& pass, int64_t worker, const JobRecord& job) {
  const auto found = pass.awaited_devices.find(worker);
  return found != pass.awaited_devices.end() && found->second < job.number;
}

bool IsClaimed(const Pass& pass, const std::vector<int64_t>& workers) {
  return std::any_of(workers.begin(), workers.end(),
                     [&](int64_t worker) { return pass.claimed.count(worker) != 0; });
}

bool WillKeep(const JobRecord& job) { return job.kept.status == KeptStatus::kAwaited; }

// Memory that placing takes. A solo job takes device memory at once, as nothing asks for it later.
PoolBytes BytesOf(const JobRecord& job, size_t rank, bool solo) {
  const int64_t staging = job.plan->bytes[rank].total();
  return {staging, solo ? job.plan->cost.peak_bytes_per_rank : 0, WillKeep(job) ? staging : 0};
}

bool HasRoom(const CoordinatorTables& tables, const JobRecord& job,
             const std::vector<int64_t>& workers) {
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    const PoolBytes bytes = BytesOf(job, rank, job.plan->world_size() == 1);
    if (!tables.ledger.HasRoom(workers[rank], bytes)) return false;
  }
  return true;
}

// True if the workers could hold the job while nothing else is there. A plan fits the workers that
// it was made for; others may be smaller.
bool CouldHold(const CoordinatorTables& tables, const JobRecord& job,
               const std::vector<int64_t>& workers) {
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    if (!tables.ledger.CouldHold(workers[rank], BytesOf(job, rank, /*solo=*/true))) return false;
  }
  return true;
}

// True if the job waits for states to end. The wait may be long, and the end of a state may depend
// on a job behind this one. So such a job keeps no other job waiting.
bool WaitsForStates(const CoordinatorTables& tables, const JobRecord& job,
                    const std::vector<int64_t>& workers) {
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    const PoolBytes need = BytesOf(job, rank, false);
    if (!tables.ledger.HasRoom(workers[rank], {0, 0, need.kept})) return true;
    const PoolBytes used = tables.ledger.used(workers[rank]);
    const int64_t free = tables.ledger.limits(workers[rank]).staging - used.staging;
    if (need.staging > free && need.staging <= free + used.kept) return true;
  }
  return false;
}

Place FindWorker(Pass& pass, const JobRecord& job) {
  Place place;
  if (!CheckAlike(pass.tables, *job.submission).ok()) return place;
  int32_t least = 0;
  int64_t freest = -1;
  for (const auto& [number, worker] : pass.tables.workers.all()) {
    if (!worker.eligible()) continue;
    const auto solo = pass.solo_on_worker.find(number);
    const int32_t load = solo == pass.solo_on_worker.end() ? 0 : solo->second;
    const bool takes_jobs = worker.ready() && load < pass.tables.options.solo_jobs_per_worker;
    if (!takes_jobs && place.possible) continue;  // Adds nothing.
    if (!Serves(worker.info, *job.submission)) continue;
    const std::vector<int64_t> one = {number};
    if (!CouldHold(pass.tables, job, one)) continue;
    place.possible = true;
    if (!takes_jobs || DeviceIsAwaited(pass, number, job)) continue;
    if (!IsClaimed(pass, one) && HasRoom(pass.tables, job, one)) {
      if (place.workers.empty() || load < least) {
        place.workers = one;
        least = load;
      }
      continue;
    }
    const int64_t free =
        pass.tables.ledger.limits(number).staging - pass.tables.ledger.used(number).staging;
    if (free > freest) place.wanted = one;
    freest = std::max(freest, free);
  }
  return place;
}

bool TakesJobs(const CoordinatorTables& tables, const GroupRecord& group) {
  if (group.state != GroupRecord::State::kReady) return false;
  return std::all_of(group.members.begin(), group.members.end(),
                     [&](int64_t member) { return tables.workers.Find(member)->ready(); });
}

// The first of `members`, as many as the job has ranks; empty if they cannot run it.
std::vector<int64_t> RanksOf(const CoordinatorTables& tables, const std::vector<int64_t>& members,
                             const JobRecord& job) {
  const auto size = static_cast<size_t>(job.plan->world_size());
  if (!FirstServe(tables, members, size, *job.submission)) return {};
  std::vector<int64_t> ranks(members.begin(), members.begin() + job.plan->world_size());
  if (!CouldHold(tables, job, ranks)) ranks.clear();
  return ranks;
}

// True if no formation of these members has failed since they were last formed. While formation
// fails, a job uses other members.
bool MayForm(const CoordinatorTables& tables, const std::vector<int64_t>& members) {
  return tables.groups.FormationError(members).ok();
}

Place FindGroup(Pass& pass, const JobRecord& job) {
  Place place;
  if (!CheckAlike(pass.tables, *job.submission).ok()) return place;
  size_t smallest = 0;
  int32_t least = 0;
  for (const auto& [group, load] : pass.groups) {
    if (place.possible && group->members.size() > smallest) break;
    const bool full = load >= pass.tables.options.jobs_ahead_per_group;
    if (full && place.possible) continue;  // Adds nothing.
    if (!MayForm(pass.tables, group->members)) continue;
    const std::vector<int64_t> ranks = RanksOf(pass.tables, group->members, job);
    if (ranks.empty()) continue;
    place.possible = true;
    smallest = group->members.size();
    if (full || !TakesJobs(pass.tables, *group)) continue;
    if (IsClaimed(pass, ranks) || !HasRoom(pass.tables, job, ranks)) {
      if (place.wanted.empty()) place.wanted = ranks;
    } else if (place.workers.empty() || load < least) {
      place.group = group->number;
      place.workers = ranks;
      least = load;
    }
  }
  // A group of the family is being formed, now or again.
  if (!place.possible) {
    place.possible = std::any_of(pass.family.begin(), pass.family.end(), [&](const auto& members) {
      return MayForm(pass.tables, members) && !RanksOf(pass.tables, members, job).empty();
    });
  }
  return place;
}

bool BeginsWith(const std::vector<int64_t>& members, const std::vector<int64_t>& ranks) {
  return members.size() >= ranks.size() && std::equal(ranks.begin(), ranks.end(), members.begin());
}

bool WillBeGroup(const Pass& pass, const std::vector<int64_t>& ranks) {
  return std::any_of(pass.family.begin(), pass.family.end(), [&](const auto& members) {
    return BeginsWith(members, ranks) && MayForm(pass.tables, members);
  });
}

void TakeOrWant(const Pass& pass, const JobRecord& job, std::vector<int64_t> ranks, Place* place) {
  const bool room = !IsClaimed(pass, ranks) && HasRoom(pass.tables, job, ranks);
  (room ? place->workers : place->wanted) = std::move(ranks);
}

// Only the workers that hold the state are possible, each as the rank whose rows it has.
Place FindLender(Pass& pass, const JobRecord& job) {
  const CoordinatorTables& tables = pass.tables;
  Place place;
  const RunRecord* lender = tables.runs.Find(tables.jobs.Find(job.lender)->kept.run);
  if (lender == nullptr) return place;
  std::vector<int64_t> ranks;
  for (const RunRank& rank : lender->ranks) ranks.push_back(rank.worker);
  if (ranks.size() == 1) {
    const WorkerRecord* worker = tables.workers.Find(ranks[0]);
    place.possible = worker != nullptr && worker->eligible();
    const bool taken = pass.solo_on_worker[ranks[0]] >= tables.options.solo_jobs_per_worker;
    if (place.possible && worker->ready() && !taken) TakeOrWant(pass, job, ranks, &place);
    return place;
  }
  place.possible = WillBeGroup(pass, ranks);
  // The oldest of the suitable groups, as elsewhere.
  for (const auto& [group, load] : pass.groups) {
    if (!BeginsWith(group->members, ranks) || !TakesJobs(tables, *group)) continue;
    if (load >= tables.options.jobs_ahead_per_group) continue;
    if (place.group == 0 || group->number < place.group) place.group = group->number;
  }
  if (place.group != 0) TakeOrWant(pass, job, ranks, &place);
  return place;
}

void NoteWhetherPossible(CoordinatorTables& tables, JobRecord& job, bool possible) {
  if (possible) {
    if (job.unplaceable_since == absl::InfiniteFuture()) return;
    job.unplaceable_since = absl::InfiniteFuture();
  } else {
    if (job.lender == 0 && job.planned_epoch != tables.membership_epoch) {
      tables.replan.insert(job.number);
    }
    if (job.unplaceable_since != absl::InfiniteFuture()) return;
    job.unplaceable_since = tables.now;
  }
  ArmJobTimer(tables, job);
}

std::string TicketFor(const CoordinatorTables& tables, const JobRecord& job, const RunRecord& run,
                      int32_t rank) {
  const WorkerRecord& worker = *tables.workers.Find(run.ranks[rank].worker);
  return SignTicket(worker.info.ticket_key(),
                    {job.id, run.attempt, rank, worker.info.incarnation(), job.principal,
                     run.plan->bytes[rank].input, tables.TimeOfDay(job.deadline)});
}

void SendReserve(CoordinatorTables& tables, const JobRecord& job, const RunRecord& run,
                 int32_t rank) {
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
  if (run.lender != 0) *reserve.mutable_lender() = tables.runs.Find(run.lender)->Key(rank);
  *reserve.mutable_upload_time() = DurationToProto(run.upload_deadline - tables.now);
  if (job.detached()) {
    // The coordinator's own timer ends the job. This time applies if the coordinator is gone.
    *reserve.mutable_download_time() =
        DurationToProto(ResultTtl(tables, job) + tables.options.answer_timeout);
  }
  tables.Send(run.ranks[rank].worker, std::move(command), job.submission->spec_bytes);
}

void TellClient(CoordinatorTables& tables, JobRecord& job, const RunRecord& run) {
  job.placement = PlanView(*run.plan);
  job.placement.set_attempt(run.attempt);
  *job.placement.mutable_upload_deadline() = TimeToProto(tables.TimeOfDay(run.upload_deadline));
  for (v1::ShardPlan& shard : *job.placement.mutable_shards()) {
    const int64_t worker = run.ranks[shard.rank()].worker;
    shard.set_endpoint(tables.workers.Find(worker)->info.data_endpoint());
  }
  job.has_placement = true;
  v1::JobEvent placed;
  *placed.mutable_placed() = job.placement;
  for (v1::ShardPlan& shard : *placed.mutable_placed()->mutable_shards()) {
    shard.set_ticket(TicketFor(tables, job, run, shard.rank()));
  }
  Notify(tables, job, std::move(placed));
  SetState(tables, job, v1::Job::STATE_UPLOADING);
  if (run.attempt == 1) return;
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    if (run.plan->bytes[rank].input == 0) continue;
    v1::JobEvent event;
    event.mutable_shard_needed()->set_attempt(run.attempt);
    event.mutable_shard_needed()->set_rank(static_cast<int32_t>(rank));
    *event.mutable_shard_needed()->mutable_cause() = ErrorToProto(job.lost_cause);
    Notify(tables, job, std::move(event));
  }
}

absl::Time UploadDeadline(const CoordinatorTables& tables, const JobRecord& job) {
  int64_t largest = 0;
  for (const ShardBytes& bytes : job.plan->bytes) largest = std::max(largest, bytes.input);
  const absl::Duration floor =
      absl::Seconds(static_cast<double>(largest) / tables.options.upload_floor_bytes_per_second);
  return std::min(job.deadline, tables.now + tables.options.upload_grace + floor);
}

RunRecord& AddRun(CoordinatorTables& tables, JobRecord& job, const Place& place) {
  RunRecord& run = tables.runs.Add(job.id, ++job.attempt);
  run.job = job.number;
  run.principal = job.principal;
  run.priority = job.submission->execution.priority;
  run.group = place.group;
  run.plan = job.plan;
  run.keep = WillKeep(job);
  if (job.lender != 0) {
    run.lender = tables.jobs.Find(job.lender)->kept.run;
    ++tables.runs.Find(run.lender)->borrowers;
  }
  run.upload_deadline = UploadDeadline(tables, job);
  std::vector<MemoryLedger::Claim> claims;
  for (size_t rank = 0; rank < place.workers.size(); ++rank) {
    RunRank of;
    of.worker = place.workers[rank];
    run.ranks.push_back(std::move(of));
    claims.push_back({place.workers[rank], BytesOf(job, rank, place.group == 0)});
  }
  tables.ledger.Reserve(run.number, claims);
  job.run = run.number;
  job.placed = tables.now;
  job.unplaceable_since = absl::InfiniteFuture();
  return run;
}

void PlaceRun(Pass& pass, JobRecord& job, const Place& place) {
  CoordinatorTables& tables = pass.tables;
  const RunRecord& run = AddRun(tables, job, place);
  if (run.solo()) ++pass.solo_on_worker[place.workers[0]];
  for (GroupLoad& each : pass.groups) {
    if (each.group->number == run.group) ++each.jobs_ahead;
  }
  // Must precede the message to the client. A shard that finds its Reserve is copied into staging
  // at once, and on a busy machine this thread may lose its CPU to the client that it has just
  // woken.
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    SendReserve(tables, job, run, static_cast<int32_t>(rank));
  }
  TellClient(tables, job, run);
  tables.Emit(action::Log{LogLevel::kInfo, job.id,
                          absl::StrCat("attempt ", job.attempt, " placed: "), job.plan});
  ArmJobTimer(tables, job);
}

bool TryPlace(Pass& pass, JobRecord& job) {
  if (job.planning != 0) return false;
  if (pass.tables.replan.count(job.number) != 0) {
    NoteWhetherPossible(pass.tables, job, pass.tables.workers.ready_count() > 0);
    return false;
  }
  const bool solo = job.plan->world_size() == 1;
  const Place place = job.lender != 0 ? FindLender(pass, job)
                      : solo          ? FindWorker(pass, job)
                                      : FindGroup(pass, job);
  NoteWhetherPossible(pass.tables, job, place.possible);
  job.waits_for_states = place.workers.empty() && WaitsForStates(pass.tables, job, place.wanted);
  if (!place.workers.empty()) {
    PlaceRun(pass, job, place);
    return true;
  }
  if (!job.waits_for_states) {
    pass.claimed.insert(place.wanted.begin(), place.wanted.end());
  }
  return false;
}

Pass StartPass(CoordinatorTables& tables) {
  Pass pass{tables, tables.Family(), {}, {}, {}, AwaitedDevices(tables)};
  std::map<int64_t, int32_t> ahead_of_group;
  for (const auto& [number, run] : tables.runs.all()) {
    if (run.solo()) {
      if (run.state <= RunRecord::State::kRunning) ++pass.solo_on_worker[run.ranks[0].worker];
    } else if (run.ahead()) {
      ++ahead_of_group[run.group];
    }
  }
  for (const auto& [number, group] : tables.groups.all()) {
    if (group.wanted && group.live()) pass.groups.push_back({&group, ahead_of_group[number]});
  }
  std::stable_sort(pass.groups.begin(), pass.groups.end(), [](const auto& a, const auto& b) {
    return a.group->members.size() < b.group->members.size();
  });
  return pass;
}

}  // namespace

void PlaceJobs(CoordinatorTables& tables) {
  if (!std::exchange(tables.place_again, false) || tables.queue.size() == 0) return;
  Pass pass = StartPass(tables);
  tables.queue.Serve([&](int64_t number) {
    if (tables.runs.all().size() >= tables.options.max_active_jobs) return false;
    return TryPlace(pass, *tables.jobs.Find(number));
  });
}

}  // namespace annulus
