#include "server/coordinator/run_completion.h"

#include <algorithm>
#include <vector>

#include "server/coordinator/answer_time.h"

namespace annulus {
namespace {

TimerKey TimerOf(int64_t run) { return {TimerKey::Kind::kRun, run}; }

void AwaitAnswers(CoordinatorTables& tables, const RunRecord& run) {
  std::vector<int64_t> workers;
  for (const RunRank& rank : run.ranks) workers.push_back(rank.worker);
  tables.timers.Set(TimerOf(run.number), tables.now + AnswerTime(tables, workers));
}

void EraseIfGone(CoordinatorTables& tables, int64_t number) {
  const RunRecord& run = *tables.runs.Find(number);
  if (!std::all_of(run.ranks.begin(), run.ranks.end(), [](const RunRank& r) { return r.gone; }))
    return;
  if (RunRecord* lender = tables.runs.Find(run.lender); lender != nullptr) {
    --lender->borrowers;
    tables.kept_again = true;
  }
  tables.timers.Cancel(TimerOf(number));
  tables.runs.Erase(number);
  tables.family_dirty = true;  // A group or a worker may have waited for its last run.
}

void DropRun(CoordinatorTables& tables, RunRecord& run) {
  run.state = RunRecord::State::kDropping;
  AwaitAnswers(tables, run);
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    if (run.ranks[rank].gone) continue;
    control::v1::WorkerCommand command;
    *command.mutable_drop()->mutable_shard() = run.Key(static_cast<int32_t>(rank));
    tables.Send(run.ranks[rank].worker, std::move(command));
  }
  tables.place_again = tables.advance_again = true;
  EraseIfGone(tables, run.number);
}

}  // namespace

void HaltRun(CoordinatorTables& tables, int64_t number, Group group) {
  RunRecord* run = tables.runs.Find(number);
  if (run == nullptr || run->state == RunRecord::State::kDropping) return;
  if (group == Group::kAlive && run->SegmentsDone() < run->issued) {
    if (run->state == RunRecord::State::kHalting) return;
    run->state = RunRecord::State::kHalting;
    AwaitAnswers(tables, *run);
    tables.place_again = tables.advance_again = true;
    return;
  }
  DropRun(tables, *run);
}

void ContinueHalting(CoordinatorTables& tables, int64_t number) {
  RunRecord* run = tables.runs.Find(number);
  if (run != nullptr && run->state == RunRecord::State::kHalting)
    HaltRun(tables, number, Group::kAlive);
}

void RankFreed(CoordinatorTables& tables, RunRecord& run, int32_t rank) {
  run.ranks[rank].gone = true;
  tables.ledger.Release(run.number, run.ranks[rank].worker);
  tables.place_again = tables.advance_again = true;
}

void RankGone(CoordinatorTables& tables, int64_t number, int32_t rank) {
  RunRecord* run = tables.runs.Find(number);
  if (run == nullptr || run->ranks[rank].gone) return;
  RankFreed(tables, *run, rank);
  EraseIfGone(tables, number);
}

void OnRunTimer(CoordinatorTables& tables, int64_t number) {
  RunRecord* run = tables.runs.Find(number);
  if (run == nullptr || run->live()) return;
  if (run->state == RunRecord::State::kHalting) {
    tables.doomed_groups.emplace_back(
        run->group, absl::DeadlineExceededError("segments of an ended job did not end in time"));
    return;
  }
  for (const RunRank& rank : run->ranks) {
    if (!rank.gone)
      tables.doomed_workers.emplace_back(rank.worker, "it did not answer Drop in time");
  }
}

}  // namespace annulus
