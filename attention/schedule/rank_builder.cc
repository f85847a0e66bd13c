#include "attention/schedule/rank_builder.h"

#include <algorithm>
#include <utility>

namespace annulus {

RankBuilder::RankBuilder(const ScheduleRequest& request, const std::vector<int32_t>& shards,
                         int32_t steps)
    : request_(request) {
  schedule_.steps.resize(steps);
  for (const int32_t shard : shards) {
    const int64_t rows = request.plan->shards[shard].kv_rows.rows();
    if (request.plan->shards[shard].q_rows.rows() > 0) AddQueries(shard);
    if (rows == 0) continue;
    const int32_t buffer = AddKeys(shard, {0, rows});
    schedule_.inputs.push_back(buffer);
    own_keys_.push_back({shard, buffer, rows});
  }
}

int32_t RankBuilder::AddBuffer(const Block& block) {
  schedule_.buffers.push_back(block);
  return static_cast<int32_t>(schedule_.buffers.size()) - 1;
}

void RankBuilder::AddQueries(int32_t shard) {
  const RowMap& rows = request_.plan->shards[shard].q_rows;
  const int32_t heads = request_.spec->q_heads;
  const auto add = [&](BlockKind kind) {
    return AddBuffer({kind, shard, 0, rows.rows(), 0, heads});
  };
  const int32_t q = add(BlockKind::kQ), partial = add(BlockKind::kPartial),
                out = add(BlockKind::kOut);
  schedule_.inputs.push_back(q);
  schedule_.outputs.push_back(out);
  queries_.push_back({q, partial, out, QueryPieces(*request_.mask, rows)});
}

int32_t RankBuilder::AddKeys(int32_t shard, Interval rows) {
  return AddBuffer({BlockKind::kKv, shard, rows.begin, rows.end, 0, request_.spec->kv_heads});
}

int32_t RankBuilder::OwnKeys(int32_t shard) const {
  const auto found = std::find_if(own_keys_.begin(), own_keys_.end(),
                                  [&](const OwnedKeys& own) { return own.shard == shard; });
  return found == own_keys_.end() ? -1 : found->buffer;
}

void RankBuilder::Attend(int32_t step, int32_t kv_buffer, Interval rows) {
  const RowMap& k_rows = request_.plan->shards[schedule_.buffers[kv_buffer].shard].kv_rows;
  for (const Queries& own : queries_) {
    for (const Rectangle& rectangle : own.pieces.Against(k_rows, rows)) {
      Task task;
      task.q = own.q;
      task.kv = kv_buffer;
      task.out_q = own.partial;
      task.q_begin = rectangle.q.begin;
      task.q_end = rectangle.q.end;
      task.k_begin = rectangle.k.begin;
      task.k_end = rectangle.k.end;
      task.head_begin = rectangle.head_begin;
      task.head_end = rectangle.head_end;
      task.coverage = rectangle.coverage;
      schedule_.steps[step].tasks.push_back(task);
      last_task_step_ = std::max(last_task_step_, step);
    }
  }
}

void RankBuilder::AttendOwn(int32_t step) {
  for (const OwnedKeys& own : own_keys_) Attend(step, own.buffer, {0, own.rows});
}

void RankBuilder::Send(int32_t step, int32_t buffer, Interval rows, int32_t peer) {
  schedule_.steps[step].sends.push_back({buffer, rows.begin, rows.end, peer});
}

void RankBuilder::Receive(int32_t step, int32_t buffer, Interval rows, int32_t peer) {
  schedule_.steps[step].receives.push_back({buffer, rows.begin, rows.end, peer});
}

RankSchedule RankBuilder::Build() {
  for (const Queries& own : queries_) {
    schedule_.steps[last_task_step_].ops.push_back({Op::Kind::kFinish, own.partial, own.out});
  }
  return std::move(schedule_);
}

}  // namespace annulus
