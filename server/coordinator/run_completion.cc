#include "server/coordinator/run_completion.h"

#include <algorithm>
#include <vector>

#include "server/coordinator/answer_time.h"

namespace annulus {
namespace {

TimerKey TimerOf(int64_t run) { return {TimerKey::Kind::kRun, run}; }

void AwaitAnswers(Core& core, const RunRecord& run) {
  std::vector<int64_t> workers;
  for (const RunRank& rank : run.ranks) workers.push_back(rank.worker);
  core.timers.Set(TimerOf(run.number), core.now + AnswerTime(core, workers));
}

void EraseIfGone(Core& core, int64_t number) {
  const RunRecord& run = *core.runs.Find(number);
  if (!std::all_of(run.ranks.begin(), run.ranks.end(), [](const RunRank& r) { return r.gone; }))
    return;
  if (RunRecord* lender = core.runs.Find(run.lender); lender != nullptr) {
    --lender->borrowers;
    core.kept_again = true;
  }
  core.timers.Cancel(TimerOf(number));
  core.runs.Erase(number);
  core.family_dirty = true;  // A group or a worker that waited for its last run may go.
}

void DropRun(Core& core, RunRecord& run) {
  run.state = RunRecord::State::kDropping;
  AwaitAnswers(core, run);
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    if (run.ranks[rank].gone) continue;
    control::v1::WorkerCommand command;
    *command.mutable_drop()->mutable_shard() = run.Key(static_cast<int32_t>(rank));
    core.Send(run.ranks[rank].worker, std::move(command));
  }
  core.place_again = core.advance_again = true;
  EraseIfGone(core, run.number);
}

}  // namespace

void HaltRun(Core& core, int64_t number, Group group) {
  RunRecord* run = core.runs.Find(number);
  if (run == nullptr || run->state == RunRecord::State::kDropping) return;
  if (group == Group::kAlive && run->SegmentsDone() < run->issued) {
    if (run->state == RunRecord::State::kHalting) return;
    run->state = RunRecord::State::kHalting;
    AwaitAnswers(core, *run);
    core.place_again = core.advance_again = true;
    return;
  }
  DropRun(core, *run);
}

void ContinueHalting(Core& core, int64_t number) {
  RunRecord* run = core.runs.Find(number);
  if (run != nullptr && run->state == RunRecord::State::kHalting)
    HaltRun(core, number, Group::kAlive);
}

void RankFreed(Core& core, RunRecord& run, int32_t rank) {
  run.ranks[rank].gone = true;
  core.ledger.Release(run.number, run.ranks[rank].worker);
  core.place_again = core.advance_again = true;
}

void RankGone(Core& core, int64_t number, int32_t rank) {
  RunRecord* run = core.runs.Find(number);
  if (run == nullptr || run->ranks[rank].gone) return;
  RankFreed(core, *run, rank);
  EraseIfGone(core, number);
}

void OnRunTimer(Core& core, int64_t number) {
  RunRecord* run = core.runs.Find(number);
  if (run == nullptr || run->live()) return;
  if (run->state == RunRecord::State::kHalting) {
    core.doomed_groups.emplace_back(
        run->group, absl::DeadlineExceededError("segments of an ended job did not end in time"));
    return;
  }
  for (const RunRank& rank : run->ranks) {
    if (!rank.gone) core.doomed_workers.emplace_back(rank.worker, "it did not answer Drop in time");
  }
}

}  // namespace annulus
