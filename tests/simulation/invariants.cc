#include "tests/simulation/invariants.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

template <typename... Parts>
absl::Status Broken(int invariant, const Parts&... parts) {
  return absl::InternalError(absl::StrCat("invariant ", invariant, ": ", parts...));
}

bool Holds(const RunRecord& run, const RunRank& rank) { return !rank.gone && run.number != 0; }

}  // namespace

absl::Status Invariants::Check(const CoordinatorTables& tables) {
  if (tables.term < term_) return Broken(7, "the term went back");
  term_ = tables.term;
  RETURN_IF_ERROR(CheckLeases(tables));
  RETURN_IF_ERROR(CheckLedger(tables));
  RETURN_IF_ERROR(CheckJobs(tables));
  RETURN_IF_ERROR(CheckRuns(tables));
  RETURN_IF_ERROR(CheckStates(tables));
  return CheckGroups(tables);
}

absl::Status Invariants::CheckLeases(const CoordinatorTables& tables) const {
  std::set<std::string> slots;
  for (const auto& [number, worker] : tables.workers.all()) {
    if (tables.now >= worker.last_heard + tables.options.lease) {
      return Broken(7, "worker ", worker.slot(), " outlives its lease");
    }
    if (worker.connection == 0 && !worker.suspect) return Broken(7, "no stream and not suspect");
    if (!slots.insert(worker.slot()).second) return Broken(7, "two incarnations of one slot");
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckLedger(const CoordinatorTables& tables) const {
  std::map<int64_t, PoolBytes> held;
  for (const auto& [number, run] : tables.runs.all()) {
    const bool device = run.solo() ? true : run.state >= RunRecord::State::kPreparing;
    for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
      if (!Holds(run, run.ranks[rank])) continue;
      PoolBytes& of = held[run.ranks[rank].worker];
      of.staging += run.plan->bytes[rank].total();
      if (run.keep) of.kept += run.plan->bytes[rank].total();
      if (device && run.live() && !run.ranks[rank].output_ready) {
        of.device += run.plan->cost.peak_bytes_per_rank;
      }
    }
  }
  for (const auto& [number, worker] : tables.workers.all()) {
    const PoolBytes used = tables.ledger.used(number), limits = tables.ledger.limits(number);
    if (used.staging > limits.staging || used.device > limits.device || used.kept > limits.kept) {
      return Broken(10, "more is reserved on ", worker.slot(), " than it has");
    }
    if (used.staging != held[number].staging || used.device < held[number].device ||
        used.kept != held[number].kept) {
      return Broken(10, "the ledger of ", worker.slot(), " is not the sum of its runs");
    }
    if (used.staging < 0 || used.device < 0) return Broken(10, "negative bytes");
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckJobs(const CoordinatorTables& tables) {
  for (const auto& [number, job] : tables.jobs.all()) {
    auto ended = ended_.find(job.id);
    if (ended != ended_.end() && ended->second != job.state) {
      return Broken(11, job.id, " left its terminal state");
    }
    if (!job.terminal()) {
      if (tables.now >= job.deadline) return Broken(11, job.id, " outlives its deadline");
      const bool waits = tables.queue.Contains(number) || job.planning != 0;
      if (waits == (job.run != 0))
        return Broken(11, job.id, " is neither waiting nor placed, or both");
      if (job.owners.empty() && !job.detached()) return Broken(8, job.id, " outlives its calls");
      continue;
    }
    ended_[job.id] = job.state;
    if (job.run != 0 || tables.queue.Contains(number) || job.planning != 0 ||
        tables.replan.count(number) != 0 || !job.owners.empty() || !job.watchers.empty()) {
      return Broken(11, job.id, " has ended and still takes part");
    }
    if (job.error.ok() != (job.state == v1::Job::STATE_SUCCEEDED)) {
      return Broken(11, job.id, " ended without saying why");
    }
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckRuns(const CoordinatorTables& tables) const {
  for (const auto& [number, run] : tables.runs.all()) {
    const JobRecord* job = tables.jobs.Find(run.job);
    const bool current = job != nullptr && job->run == number;
    if (run.live() != current)
      return Broken(8, "run ", number, " lives without its job, or is not its");
    bool any = false;
    for (const RunRank& rank : run.ranks) {
      if (rank.gone) continue;
      any = true;
      if (tables.workers.Find(rank.worker) == nullptr) return Broken(8, "a rank on a lost worker");
      if (rank.segments_done > run.issued) return Broken(13, "a segment ran that was not issued");
      // Others on its workers wait for it.
      if (!tables.ledger.CouldHold(rank.worker, {0, run.plan->cost.peak_bytes_per_rank, 0})) {
        return Broken(10, "run ", number, " waits for more memory than a worker has");
      }
    }
    if (!any) return Broken(8, "run ", number, " is over and still there");
    if (!run.needs_group() || run.state == RunRecord::State::kHalting) continue;
    const GroupRecord* group = tables.groups.Find(run.group);
    if (group == nullptr || !group->live()) return Broken(8, "a run on a group that is gone");
    for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
      if (group->members[rank] != run.ranks[rank].worker)
        return Broken(13, "ranks are not the group's");
    }
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckStates(const CoordinatorTables& tables) const {
  std::map<int64_t, int32_t> users, borrowers;
  for (const auto& [number, job] : tables.jobs.all()) users[job.lender] += !job.terminal();
  for (const auto& [number, run] : tables.runs.all()) {
    ++borrowers[run.lender];
    const RunRecord* lender = tables.runs.Find(run.lender);
    if (run.lender != 0 && run.live() &&
        (lender == nullptr || lender->state != RunRecord::State::kKept)) {
      return Broken(15, "run ", number, " borrows from one that is gone");
    }
  }
  for (const auto& [number, job] : tables.jobs.all()) {
    const RunRecord* run = tables.runs.Find(job.kept.run);
    if (job.kept.users != users[number]) return Broken(15, job.id, " miscounts its users");
    if (run != nullptr && run->borrowers != borrowers[run->number]) {
      return Broken(15, job.id, " miscounts its borrowers");
    }
    if (job.kept.status != KeptStatus::kHeld) continue;
    if (tables.now >= job.kept.expires) return Broken(15, "the state of ", job.id, " has expired");
    if (run == nullptr || run->state != RunRecord::State::kKept || run->job != number ||
        std::any_of(run->ranks.begin(), run->ranks.end(), [](const auto& r) { return r.gone; })) {
      return Broken(15, "the state of ", job.id, " is not there");
    }
  }
  for (const auto& [number, run] : tables.runs.all()) {
    if (run.state != RunRecord::State::kKept) continue;
    const JobRecord* job = tables.jobs.Find(run.job);
    if (job == nullptr || job->kept.run != number || tables.keeping.count(run.job) == 0) {
      return Broken(15, "run ", number, " is kept for nobody");
    }
    if (job->kept.status != KeptStatus::kHeld && job->kept.users == 0 && run.borrowers == 0) {
      return Broken(15, "the state of ", job->id, " outlives its users");
    }
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckGroups(const CoordinatorTables& tables) {
  std::set<std::vector<int64_t>> live;
  std::set<int64_t> generations;
  for (const auto& [number, group] : tables.groups.all()) {
    const std::set<int64_t> distinct(group.members.begin(), group.members.end());
    if (distinct.size() != group.members.size()) return Broken(13, "a worker twice in a group");
    if (group.live() && !live.insert(group.members).second) {
      return Broken(6, "two live generations of one group");
    }
    for (int64_t member : group.live() ? distinct : group.awaited) {
      if (tables.workers.Find(member) == nullptr)
        return Broken(6, "a lost worker in group ", number);
    }
    // A report about one generation must never be attributed to another.
    if (number <= highest_generation_ && generations_.count(number) == 0) {
      return Broken(6, "generation ", number, " comes after ", highest_generation_);
    }
    generations.insert(number);
  }
  if (!generations.empty())
    highest_generation_ = std::max(highest_generation_, *generations.rbegin());
  generations_ = std::move(generations);
  return absl::OkStatus();
}

std::string Snapshot(const CoordinatorTables& tables) {
  std::string text = absl::StrCat("term ", tables.term, " queue ", tables.queue.size());
  for (const auto& [number, worker] : tables.workers.all()) {
    const PoolBytes used = tables.ledger.used(number);
    absl::StrAppend(&text, "\nworker ", number, " ", worker.leaving, " ", worker.log.last_id(), " ",
                    used.staging, " ", used.device);
  }
  for (const auto& [number, group] : tables.groups.all()) {
    absl::StrAppend(&text, "\ngroup ", number, " ", GroupStateName(group.state), " ",
                    group.awaited.size());
  }
  for (const auto& [number, job] : tables.jobs.all()) {
    absl::StrAppend(&text, "\njob ", job.id, " ", job.state, " ", job.attempt, " ", job.last_event);
  }
  for (const auto& [number, run] : tables.runs.all()) {
    absl::StrAppend(&text, "\nrun ", number, " ", RunStateName(run.state), " ", run.issued);
    for (const RunRank& rank : run.ranks) {
      absl::StrAppend(&text, " ", rank.complete, rank.prepared, rank.segments_done,
                      rank.output_ready, rank.drained, rank.gone);
    }
  }
  return text;
}

int64_t FailingRun(const CoordinatorTables& tables, const Event& event) {
  const auto* said = std::get_if<event::WorkerReported>(&event);
  if (said == nullptr || !said->event.has_shard_failed()) return 0;
  const control::v1::ShardKey& shard = said->event.shard_failed().shard();
  for (const auto& [number, run] : tables.runs.all()) {
    if (run.job_id != shard.job_id() || run.attempt != shard.attempt() || !run.live()) continue;
    for (const auto& [worker, record] : tables.workers.all()) {
      if (record.connection == said->connection && run.RankOf(worker) == shard.rank())
        return number;
    }
  }
  return 0;
}

const RunRecord* RunNumbered(const CoordinatorTables& tables, int64_t number) {
  const auto found = tables.runs.all().find(number);
  return found == tables.runs.all().end() ? nullptr : &found->second;
}

}  // namespace annulus
