#include "server/coordinator/segment_scheduler.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/schedule/passes/segment_steps.h"
#include "attention/spec/execution.h"
#include "proto/wire/convert.h"
#include "server/coordinator/answer_time.h"
#include "server/coordinator/job_transitions.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

using State = RunRecord::State;
constexpr int kPreparedPerGroup = 2;

bool Claimed(const RunRecord& run, const std::set<int64_t>& claimed) {
  for (const RunRank& rank : run.ranks) {
    if (claimed.count(rank.worker) != 0) return true;
  }
  return false;
}

bool TakeDeviceMemory(CoordinatorTables& tables, const RunRecord& run) {
  std::vector<MemoryLedger::Claim> claims;
  for (const RunRank& rank : run.ranks) {
    claims.push_back({rank.worker, {0, run.plan->cost.peak_bytes_per_rank}});
  }
  return tables.ledger.Reserve(run.number, claims);
}

void Prepare(CoordinatorTables& tables, RunRecord& run) {
  run.state = State::kPreparing;
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    control::v1::WorkerCommand command;
    *command.mutable_prepare()->mutable_shard() = run.Key(static_cast<int32_t>(rank));
    tables.Send(run.ranks[rank].worker, std::move(command));
  }
}

// Load of a group by its runs that are not over.
struct GroupLoad {
  int prepared = 0;
  int outstanding = 0;
};
std::map<int64_t, GroupLoad> LoadOfGroups(const CoordinatorTables& tables) {
  std::map<int64_t, GroupLoad> loads;
  for (const auto& [number, run] : tables.runs.all()) {
    if (run.solo()) continue;
    GroupLoad& load = loads[run.group];
    if (run.state >= State::kPreparing && run.state <= State::kRunning) ++load.prepared;
    if (run.state == State::kRunning || run.state == State::kHalting) {
      load.outstanding += run.issued - run.SegmentsDone();
    }
  }
  return loads;
}

// True if the run's shards are complete and its group may prepare it.
bool IsNext(const RunRecord& run, std::map<int64_t, GroupLoad>& loads) {
  return run.state == State::kReady && loads[run.group].prepared < kPreparedPerGroup;
}

using DigestsOfRank = std::map<int32_t, control::v1::PeerDigest>;

DigestsOfRank DigestsByPeer(const control::v1::Prepared& prepared) {
  DigestsOfRank digests;
  for (const control::v1::PeerDigest& digest : prepared.digests()) digests[digest.peer()] = digest;
  return digests;
}

absl::Duration WaitedFor(const CoordinatorTables& tables, const RunRecord& run) {
  return run.waited + std::max(absl::ZeroDuration(), tables.now - run.waits_since);
}

std::vector<int64_t> WorkersOf(const RunRecord& run) {
  std::vector<int64_t> workers;
  for (const RunRank& rank : run.ranks) workers.push_back(rank.worker);
  return workers;
}

// How late a worker of the run may come to its next segment because segments of other groups come
// first. Segments of its own group are on all of the run's workers, so they cause no delay.
absl::Duration AheadOf(const CoordinatorTables& tables, const RunRecord& run) {
  absl::Duration ahead = LongestOf(LaneTimes(tables), WorkersOf(run));
  for (const auto& [number, other] : tables.runs.all())
    if (other.group == run.group) ahead -= TimeOfIssued(other);
  return std::max(absl::ZeroDuration(), ahead);
}

void Issue(CoordinatorTables& tables, RunRecord& run) {
  const std::vector<Segment> cuts = SplitSegments(run.steps, run.plan->segments);
  const Segment& cut = cuts[run.issued];
  const absl::Duration longest_step = AheadOf(tables, run) + run.plan->longest_step;
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    control::v1::WorkerCommand command;
    control::v1::RunSegment& segment = *command.mutable_run_segment();
    *segment.mutable_shard() = run.Key(static_cast<int32_t>(rank));
    *segment.mutable_generation() = tables.GenerationOf(run.group);
    segment.set_segment(run.issued);
    segment.set_step_begin(cut.step_begin);
    segment.set_step_end(cut.step_end);
    segment.set_last(run.issued + 1 == run.segments);
    if (longest_step > absl::ZeroDuration())
      *segment.mutable_longest_step() = DurationToProto(longest_step);
    tables.Send(run.ranks[rank].worker, std::move(command));
  }
  run.turns.push_back(++tables.last_turn);
  run.waited = WaitedFor(tables, run);
  run.waits_since = absl::InfiniteFuture();
  tables.shares.Charge(
      run.principal, run.plan->cost.seconds / run.segments * static_cast<double>(run.ranks.size()));
  const bool first = run.issued++ == 0;
  if (!first) return;
  run.state = State::kRunning;
  tables.place_again = true;
  SetState(tables, *tables.jobs.Find(run.job), v1::Job::STATE_RUNNING);
}

// Waiting counts as in the queue, so that a stream of important runs starves none.
int64_t ImportanceOf(const CoordinatorTables& tables, const RunRecord& run) {
  absl::Duration rest;
  return run.priority + absl::IDivDuration(WaitedFor(tables, run), kPriorityStep, &rest);
}

// The least served principal first; of its runs the most important one; of equal ones the one whose
// last segment was issued the longest ago. So a long run delays another run by one segment at a
// time.
RunRecord* NextToIssue(CoordinatorTables& tables, int64_t group) {
  RunRecord* best = nullptr;
  std::tuple<double, int64_t, int64_t, int64_t> first;
  for (auto& [number, run] : tables.runs.all()) {
    if (run.group != group) continue;
    const bool can = run.state == State::kPrepared ||
                     (run.state == State::kRunning && run.issued < run.segments);
    if (!can) continue;
    const std::tuple key{tables.shares.Served(run.principal), -ImportanceOf(tables, run),
                         run.turns.empty() ? 0 : run.turns.back(), number};
    if (best == nullptr || key < first) {
      best = &run;
      first = key;
    }
  }
  return best;
}

// True if the run's next segment would delay a group that connects when its lanes are empty: it
// would end after the time that was predicted when the group was opened. Without this limit the
// group might never form.
bool DelaysAGroup(const CoordinatorTables& tables, const RunRecord& run) {
  const std::vector<int64_t> workers = WorkersOf(run);
  absl::Time until = absl::InfiniteFuture();
  for (const auto& entry : tables.groups.all()) {
    const GroupRecord& group = entry.second;
    if (!group.opened()) continue;
    const bool shares = std::any_of(workers.begin(), workers.end(),
                                    [&](int64_t worker) { return group.RankOf(worker) >= 0; });
    if (shares) until = std::min(until, group.idle_at);
  }
  if (until == absl::InfiniteFuture()) return false;
  return tables.now + LongestOf(LaneTimes(tables), workers) + TimeOfSegment(run) > until;
}

}  // namespace

void PrepareRuns(CoordinatorTables& tables) {
  std::map<int64_t, GroupLoad> loads = LoadOfGroups(tables);
  std::set<int64_t> claimed;
  for (auto& [number, run] : tables.runs.all()) {
    if (!IsNext(run, loads)) continue;
    if (!Claimed(run, claimed) && TakeDeviceMemory(tables, run)) {
      Prepare(tables, run);
      tables.place_again = true;  // For jobs that AwaitedDevices has kept waiting.
      ++loads[run.group].prepared;
      continue;
    }
    for (const RunRank& rank : run.ranks) claimed.insert(rank.worker);
  }
}

std::map<int64_t, int64_t> AwaitedDevices(const CoordinatorTables& tables) {
  std::map<int64_t, GroupLoad> loads = LoadOfGroups(tables);
  std::map<int64_t, int64_t> awaited;
  for (const auto& [number, run] : tables.runs.all()) {
    if (!IsNext(run, loads)) continue;
    for (const RunRank& rank : run.ranks) {
      int64_t& earliest = awaited.try_emplace(rank.worker, run.job).first->second;
      earliest = std::min(earliest, run.job);
    }
  }
  return awaited;
}

absl::Status CheckPrepared(const RunRecord& run) {
  std::vector<DigestsOfRank> digests;
  for (const RunRank& rank : run.ranks) {
    if (rank.preparation.steps() != run.ranks[0].preparation.steps()) {
      return ScheduleMismatchError("their numbers of steps differ");
    }
    if (rank.preparation.arena_bytes() > run.plan->cost.peak_bytes_per_rank) {
      return ScheduleMismatchError(absl::StrCat(
          "a rank needs ", rank.preparation.arena_bytes(), " bytes of device memory, but ",
          run.plan->cost.peak_bytes_per_rank, " were planned"));
    }
    digests.push_back(DigestsByPeer(rank.preparation));
  }
  const auto ranks = static_cast<int32_t>(digests.size());
  for (int32_t a = 0; a < ranks; ++a) {
    for (const auto& [b, of_a] : digests[a]) {
      if (b < 0 || b >= ranks || b == a)
        return ScheduleMismatchError("a peer is not a rank of the job");
      auto of_b = digests[b].find(a);
      if (of_b == digests[b].end() || of_a.sends() != of_b->second.receives() ||
          of_a.receives() != of_b->second.sends()) {
        return ScheduleMismatchError(
            absl::StrCat("ranks ", a, " and ", b, " expect different transfers"));
      }
    }
  }
  return absl::OkStatus();
}

void SetSegments(RunRecord& run) {
  run.steps = run.ranks[0].preparation.steps();
  run.segments = static_cast<int32_t>(SplitSegments(run.steps, run.plan->segments).size());
}

void IssueSegments(CoordinatorTables& tables) {
  std::map<int64_t, GroupLoad> loads = LoadOfGroups(tables);
  for (auto& [group, load] : loads) {
    const GroupRecord* record = tables.groups.Find(group);
    if (record == nullptr || record->state != GroupRecord::State::kReady) continue;
    for (; load.outstanding < tables.options.segments_outstanding; ++load.outstanding) {
      RunRecord* run = NextToIssue(tables, group);
      if (run == nullptr || DelaysAGroup(tables, *run)) break;
      Issue(tables, *run);
    }
  }
}

}  // namespace annulus
