#include "attention/schedule/model/schedule_writer.h"

#include <algorithm>
#include <utility>

namespace annulus {
namespace {

Interval RowsOf(const Block& block) { return {block.row_begin, block.row_end}; }
Interval HeadsOf(const Block& block) { return {block.head_begin, block.head_end}; }

}  // namespace

ScheduleWriter::ScheduleWriter(const GroupView& group, int32_t steps) : group_(group) {
  schedule_.steps.resize(steps);
}

ScheduleWriter::ScheduleWriter(const GroupView& group, RankSchedule begun)
    : group_(group), schedule_(std::move(begun)) {}

int32_t ScheduleWriter::AddBuffer(const Block& block) {
  schedule_.buffers.push_back(block);
  return static_cast<int32_t>(schedule_.buffers.size()) - 1;
}

int32_t ScheduleWriter::AddInput(const Block& block) {
  schedule_.inputs.push_back(AddBuffer(block));
  return schedule_.inputs.back();
}

int32_t ScheduleWriter::AddOutput(const Block& block) {
  schedule_.outputs.push_back(AddBuffer(block));
  return schedule_.outputs.back();
}

int32_t ScheduleWriter::AddOwnQueries(int32_t shard, Interval rows, Interval heads) {
  Block block{group_.pass().queries,
              shard,
              rows.begin,
              rows.end,
              static_cast<int32_t>(heads.begin),
              static_cast<int32_t>(heads.end)};
  const int32_t q = AddInput(block);
  if (block.kind != BlockKind::kQGrad) return q;
  block.kind = BlockKind::kOut;
  Apply(0, Op::Kind::kDelta, AddInput(block), q);
  if (group_.request.spec->modifiers.sinks.empty()) return q;
  block.kind = BlockKind::kDSinkOut;
  Apply(0, Op::Kind::kSink, q, AddOutput(block));
  return q;
}

void ScheduleWriter::Send(int32_t step, int32_t buffer, Interval rows, int32_t peer) {
  schedule_.steps[step].sends.push_back({buffer, rows.begin, rows.end, peer});
}

void ScheduleWriter::Receive(int32_t step, int32_t buffer, Interval rows, int32_t peer) {
  schedule_.steps[step].receives.push_back({buffer, rows.begin, rows.end, peer});
}

void ScheduleWriter::SendHome(int32_t step, int32_t buffer, Interval rows, int32_t peer) {
  homeward_.push_back({step, {buffer, rows.begin, rows.end, peer}});
}

BlockKind ScheduleWriter::TravellerOf(BlockKind kind) const {
  const bool rounded = kind == BlockKind::kPartial && group_.request.execution.bf16_partials;
  return rounded ? BlockKind::kBf16Partial : kind;
}

int32_t ScheduleWriter::AddTraveller(int32_t step, int32_t state) {
  Block traveller = block(state);
  traveller.kind = TravellerOf(traveller.kind);
  if (traveller.kind == block(state).kind) return state;
  const int32_t buffer = AddBuffer(traveller);
  Apply(step, Op::Kind::kRound, state, buffer);
  return buffer;
}

void ScheduleWriter::ReceiveInto(int32_t step, int32_t target, Interval rows, int32_t peer) {
  Block arriving = block(target);
  const bool partial = arriving.kind == BlockKind::kPartial;
  arriving.kind = TravellerOf(arriving.kind);
  arriving.row_begin = rows.begin;
  arriving.row_end = rows.end;
  const int32_t buffer = AddBuffer(arriving);
  Receive(step, buffer, rows, peer);
  Apply(step, partial ? Op::Kind::kMerge : Op::Kind::kAdd, buffer, target);
}

RankSchedule ScheduleWriter::Take() {
  for (const auto& [step, send] : homeward_) schedule_.steps[step].sends.push_back(send);
  return std::move(schedule_);
}

void ScheduleWriter::Attend(int32_t step, const Work& work) {
  const Block &q = block(work.q), &kv = block(work.kv);
  const int32_t group = group_.request.spec->q_heads / group_.request.spec->kv_heads;
  const auto q_heads_of = [&](const Block& keys) {
    return Interval{int64_t{keys.head_begin} * group, int64_t{keys.head_end} * group};
  };
  Interval heads = Intersect(HeadsOf(q), q_heads_of(kv));
  if (work.out_q >= 0) heads = Intersect(heads, HeadsOf(block(work.out_q)));
  if (work.out_kv >= 0) heads = Intersect(heads, q_heads_of(block(work.out_kv)));
  if (heads.length() == 0) return;
  const Interval keys = Intersect(work.k_rows, RowsOf(kv));
  for (const Rectangle& rectangle : group_.rectangles.Of(q.shard, kv.shard, keys)) {
    const Interval rows = Intersect(rectangle.q, work.q_rows);
    const Interval shared = Intersect(heads, {rectangle.head_begin, rectangle.head_end});
    if (rows.length() == 0 || shared.length() == 0) continue;
    Task task;
    task.q = work.q;
    task.kv = work.kv;
    task.out_q = work.out_q;
    task.out_kv = work.out_kv;
    task.q_begin = rows.begin;
    task.q_end = rows.end;
    task.k_begin = rectangle.k.begin;
    task.k_end = rectangle.k.end;
    task.head_begin = static_cast<int32_t>(shared.begin);
    task.head_end = static_cast<int32_t>(shared.end);
    task.coverage = rectangle.coverage;
    schedule_.steps[step].tasks.push_back(task);
    last_task_step_ = std::max(last_task_step_, step);
  }
}

void ScheduleWriter::Apply(int32_t step, Op::Kind kind, int32_t source, int32_t target) {
  schedule_.steps[step].ops.push_back({kind, source, target});
}

}  // namespace annulus
