#include "attention/check/rank_replay.h"

#include <algorithm>

#include "attention/check/broken.h"
#include "attention/status_macros.h"

namespace annulus {
namespace {

bool Names(const std::vector<Transfer>& transfers, int32_t buffer) {
  return std::any_of(transfers.begin(), transfers.end(),
                     [&](const Transfer& transfer) { return transfer.buffer == buffer; });
}

}  // namespace

RankReplay::RankReplay(int32_t rank, const RankSchedule& schedule, const Placement& placement)
    : rank_(rank), schedule_(schedule), placement_(placement), states_(schedule.buffers.size()) {
  for (const int32_t input : schedule.inputs) {
    states_[input].held.Add(PatchOf(schedule.buffers[input]));
  }
}

Patch RankReplay::PatchOfTransfer(const Transfer& transfer) const {
  Patch patch = PatchOf(schedule_.buffers[transfer.buffer]);
  patch.rows = {transfer.row_begin, transfer.row_end};
  return patch;
}

absl::Status RankReplay::Begin(int32_t k) {
  for (size_t i = 0; i < states_.size(); ++i) {
    const Placement::Slot& slot = placement_.slots[i];
    if (!slot.starts_as_identity || slot.born / 2 != k) continue;
    if (schedule_.buffers[i].kind != BlockKind::kPartial) {
      return Broken(rank_, k, "what is not an accumulator starts as the identity");
    }
    states_[i].held.Add(PatchOf(schedule_.buffers[i]));
  }
  const Step& step = schedule_.steps[k];
  for (const Transfer& send : step.sends) {
    if (!states_[send.buffer].held.Contains(PatchOfTransfer(send))) {
      return Broken(rank_, k, "a send of rows that are not there");
    }
  }
  for (const Task& task : step.tasks) RETURN_IF_ERROR(Run(k, task));
  return absl::OkStatus();
}

absl::Status RankReplay::Run(int32_t k, const Task& task) {
  const Step& step = schedule_.steps[k];
  if (Names(step.receives, task.q) || Names(step.receives, task.kv) ||
      Names(step.receives, task.out_q)) {
    return Broken(rank_, k, "a task touches a buffer that is being received");
  }
  if (Names(step.sends, task.out_q)) {
    return Broken(rank_, k, "a task writes a buffer that is being sent");
  }
  const Patch queries = {{task.q_begin, task.q_end}, {task.head_begin, task.head_end}};
  const Block& kv = schedule_.buffers[task.kv];
  const Patch keys = {{task.k_begin, task.k_end}, {kv.head_begin, kv.head_end}};
  if (!states_[task.q].held.Contains(queries) || !states_[task.kv].held.Contains(keys)) {
    return Broken(rank_, k, "a task reads rows that are not there");
  }
  if (!states_[task.out_q].held.Contains(queries)) {
    return Broken(rank_, k, "a task adds to rows that hold nothing");
  }
  states_[task.out_q].seen.push_back({queries, keys.rows, kv.shard});
  return absl::OkStatus();
}

std::vector<Attended> RankReplay::Give(const Transfer& send) const {
  return Restrict(states_[send.buffer].seen, PatchOfTransfer(send));
}

absl::Status RankReplay::Take(int32_t k, const Transfer& receive,
                              const std::vector<Attended>& seen) {
  State& state = states_[receive.buffer];
  const Patch patch = PatchOfTransfer(receive);
  if (state.held.Overlaps(patch)) return Broken(rank_, k, "a receive overwrites rows in use");
  state.held.Add(patch);
  state.seen.insert(state.seen.end(), seen.begin(), seen.end());
  return absl::OkStatus();
}

absl::Status RankReplay::End(int32_t k) {
  for (const Op& op : schedule_.steps[k].ops) RETURN_IF_ERROR(Apply(k, op));
  return absl::OkStatus();
}

absl::Status RankReplay::Apply(int32_t k, const Op& op) {
  const State& source = states_[op.source];
  State& target = states_[op.target];
  const Patch patch =
      Intersect(PatchOf(schedule_.buffers[op.source]), PatchOf(schedule_.buffers[op.target]));
  if (!source.held.Contains(patch)) return Broken(rank_, k, "an op reads rows that are not there");
  if (op.kind == Op::Kind::kMerge) {
    if (!target.held.Contains(patch)) {
      return Broken(rank_, k, "an op merges into rows that hold nothing");
    }
  } else {
    if (target.held.Overlaps(patch)) return Broken(rank_, k, "an op overwrites rows in use");
    target.held.Add(patch);
  }
  const std::vector<Attended> seen = Restrict(source.seen, patch);
  target.seen.insert(target.seen.end(), seen.begin(), seen.end());
  return absl::OkStatus();
}

}  // namespace annulus
