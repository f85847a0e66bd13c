#include "tests/attention/checker/rank_replay.h"

#include <algorithm>

#include "attention/schedule/model/accumulators.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "base/status_macros.h"
#include "tests/attention/checker/broken.h"

namespace annulus {
namespace {

bool Names(const std::vector<Transfer>& transfers, int32_t buffer) {
  return std::any_of(transfers.begin(), transfers.end(),
                     [&](const Transfer& transfer) { return transfer.buffer == buffer; });
}

}  // namespace

RankReplay::RankReplay(int32_t rank, const AttentionSpec& spec, const RankSchedule& schedule,
                       const ArenaPlan& placement)
    : rank_(rank),
      q_heads_(spec.q_heads),
      group_(spec.q_heads / spec.kv_heads),
      bias_of_all_heads_(BiasAndMaskInputs(spec).bias_heads == 1),
      schedule_(schedule),
      placement_(placement),
      states_(schedule.buffers.size()) {
  for (const int32_t input : schedule.inputs) {
    // Incomplete until its deltas are computed.
    if (schedule.buffers[input].kind == BlockKind::kQGrad) continue;
    states_[input].held.Add(PatchOf(schedule.buffers[input]));
  }
}

Patch RankReplay::PatchOfTransfer(const Transfer& transfer) const {
  Patch patch = PatchOf(schedule_.buffers[transfer.buffer]);
  patch.rows = {transfer.row_begin, transfer.row_end};
  return patch;
}

Patch RankReplay::InQueryHeads(int32_t buffer, Patch patch) const {
  const BlockKind kind = schedule_.buffers[buffer].kind;
  if (kind == BlockKind::kDBias && bias_of_all_heads_) patch.heads = {0, q_heads_};
  if (RowSpaceOf(kind) == RowSpace::kKey) {
    patch.heads = {patch.heads.begin * group_, patch.heads.end * group_};
  }
  return patch;
}

absl::Status RankReplay::Begin(int32_t k) {
  for (size_t i = 0; i < states_.size(); ++i) {
    const ArenaPlan::Slot& slot = placement_.slots[i];
    if (!slot.starts_as_identity || slot.born / 2 != k) continue;
    if (!IsAccumulator(schedule_.buffers[i].kind)) {
      return Broken(rank_, k, "what is not an accumulator starts as the identity");
    }
    states_[i].held.Add(PatchOf(schedule_.buffers[i]));
  }
  const Step& step = schedule_.steps[k];
  for (const Transfer& send : step.sends) {
    if (!Readable(send.buffer, PatchOfTransfer(send))) {
      return Broken(rank_, k, "a send of rows that are not there");
    }
  }
  for (const Task& task : step.tasks) RETURN_IF_ERROR(Run(k, task));
  return absl::OkStatus();
}

// Adds to `patch` of a task's accumulator.
absl::Status RankReplay::Write(int32_t k, int32_t buffer, const Patch& patch,
                               const Attended& seen) {
  if (Names(schedule_.steps[k].receives, buffer)) {
    return Broken(rank_, k, "a task touches a buffer that is being received");
  }
  if (Names(schedule_.steps[k].sends, buffer)) {
    return Broken(rank_, k, "a task writes a buffer that is being sent");
  }
  if (!Readable(buffer, patch)) return Broken(rank_, k, "a task adds to rows that hold nothing");
  states_[buffer].seen.push_back(seen);
  return absl::OkStatus();
}

absl::Status RankReplay::BeginRows(int32_t k, const Task& task) {
  const Patch patch{task.begins, {task.head_begin, task.head_end}};
  if (patch.cells() == 0) return absl::OkStatus();
  State& state = states_[task.out_q];
  if (state.held.Overlaps(patch)) return Broken(rank_, k, "a row begins where it has begun");
  state.held.Add(patch);
  return absl::OkStatus();
}

absl::Status RankReplay::EndRows(int32_t k, const Task& task) {
  const Patch patch{task.ends, {task.head_begin, task.head_end}};
  if (patch.cells() == 0) return absl::OkStatus();
  const Step& step = schedule_.steps[k];
  if (Names(step.sends, task.out) || Names(step.receives, task.out)) {
    return Broken(rank_, k, "a task ends rows of an output that is on its way");
  }
  State &state = states_[task.out_q], &out = states_[task.out];
  if (out.held.Overlaps(patch)) return Broken(rank_, k, "a task ends rows that are finished");
  out.held.Add(patch);
  const std::vector<Attended> seen = Restrict(state.seen, patch);
  out.seen.insert(out.seen.end(), seen.begin(), seen.end());
  state.ended.Add(patch);
  return absl::OkStatus();
}

// True if the bias and mask inputs of the task's queries are present and not in transit.
bool RankReplay::HoldsPairs(const Step& step, const Task& task, Patch queries) const {
  if (task.pairs < 0) return true;
  const Block& block = schedule_.buffers[task.pairs];
  if (schedule_.buffers[task.q].head_begin != block.head_begin ||
      schedule_.buffers[task.q].head_end != block.head_end) {
    queries.heads = {block.head_begin, block.head_end};
  }
  return states_[task.pairs].held.Contains(queries) && !Names(step.receives, task.pairs);
}

absl::Status RankReplay::Run(int32_t k, const Task& task) {
  const Step& step = schedule_.steps[k];
  if (Names(step.receives, task.q) || Names(step.receives, task.kv)) {
    return Broken(rank_, k, "a task touches a buffer that is being received");
  }
  const Interval heads{task.head_begin, task.head_end};
  const Interval kv_heads{task.head_begin / group_, (task.head_end - 1) / group_ + 1};
  const Patch queries = {{task.q_begin, task.q_end}, heads};
  const Patch keys = {{task.k_begin, task.k_end}, kv_heads};
  const Block &q = schedule_.buffers[task.q], &kv = schedule_.buffers[task.kv];
  if (!states_[task.q].held.Contains(queries) || !states_[task.kv].held.Contains(keys) ||
      !HoldsPairs(step, task, queries)) {
    return Broken(rank_, k, "a task reads rows that are not there");
  }
  if (task.out_q >= 0) {
    RETURN_IF_ERROR(BeginRows(k, task));
    RETURN_IF_ERROR(Write(k, task.out_q, queries, {queries, keys.rows, kv.shard}));
    RETURN_IF_ERROR(EndRows(k, task));
  }
  if (task.out_bias >= 0) {
    const Patch own = bias_of_all_heads_ ? Patch{queries.rows, {0, 1}} : queries;
    RETURN_IF_ERROR(Write(k, task.out_bias, own, {queries, keys.rows, kv.shard}));
  }
  if (task.out_kv >= 0) {
    RETURN_IF_ERROR(Write(k, task.out_kv, keys, {{keys.rows, heads}, queries.rows, q.shard}));
  }
  return absl::OkStatus();
}

std::vector<Attended> RankReplay::Give(const Transfer& send) const {
  return Restrict(states_[send.buffer].seen, InQueryHeads(send.buffer, PatchOfTransfer(send)));
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
  if (!Readable(op.source, patch)) return Broken(rank_, k, "an op reads rows that are not there");
  if (op.kind == Op::Kind::kMerge || op.kind == Op::Kind::kAdd) {
    if (!Readable(op.target, patch)) {
      return Broken(rank_, k, "an op merges into rows that hold nothing");
    }
  } else {
    if (target.held.Overlaps(patch)) return Broken(rank_, k, "an op overwrites rows in use");
    target.held.Add(patch);
  }
  const std::vector<Attended> seen = Restrict(source.seen, InQueryHeads(op.source, patch));
  target.seen.insert(target.seen.end(), seen.begin(), seen.end());
  return absl::OkStatus();
}

}  // namespace annulus
