#include "worker/executor/step_binding.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "attention/spec/interval.h"
#include "attention/validate/validate.h"

namespace annulus {
namespace {

// A multiple of the tile rows of every kernel and of kFoldTile.
constexpr int64_t kRowBlock = 768;

// The most intervals that all head classes of the task have in one row. 0 for a full task, for
// which kernels store nothing.
int64_t IntervalsOf(const Task& task, const MaskMap& mask, int64_t of_row) {
  if (task.coverage == Coverage::kFull) return 0;
  int64_t classes = 0;
  mask.ForEachClass(task.head_begin, task.head_end, [&](int32_t, int32_t) { ++classes; });
  return classes * of_row;
}

// Interval() if the intersection is empty.
Interval Among(Interval of_task, Interval rows) {
  const Interval both = Intersect(of_task, rows);
  return both.length() > 0 ? both : Interval();
}

KernelTask RowsOf(const KernelTask& whole, Interval rows) {
  KernelTask part = whole;
  part.task.q_begin = rows.begin;
  part.task.q_end = rows.end;
  part.task.begins = Among(whole.task.begins, rows);
  part.task.ends = Among(whole.task.ends, rows);
  return part;
}

class Cutter {
 public:
  explicit Cutter(int64_t max_intervals) : max_(max_intervals), room_(max_intervals) {}

  void Add(const KernelTask& whole, int64_t intervals_of_row) {
    const int64_t end = whole.task.q_end;
    for (int64_t first = whole.task.q_begin; first < end;) {
      int64_t until = intervals_of_row == 0 ? end : first + room_ / intervals_of_row;
      if (until < end) until = until / kRowBlock * kRowBlock;
      if (until <= first && room_ < max_) {
        EndCall();
        continue;
      }
      if (until <= first) until = (first / kRowBlock + 1) * kRowBlock;
      until = std::min(until, end);
      calls_.back().push_back(RowsOf(whole, {first, until}));
      room_ -= (until - first) * intervals_of_row;
      if (until < end) EndCall();
      first = until;
    }
  }
  std::vector<std::vector<KernelTask>> Take() && { return std::move(calls_); }

 private:
  void EndCall() {
    calls_.emplace_back();
    room_ = max_;
  }

  const int64_t max_;
  int64_t room_;  // Intervals that still fit into the last call.
  std::vector<std::vector<KernelTask>> calls_{1};
};

}  // namespace

std::vector<std::vector<KernelTask>> SplitCalls(const AttentionSpec& spec, const MaskMap& mask,
                                                std::vector<KernelTask> tasks,
                                                int64_t max_intervals) {
  const int64_t of_row = IntervalsOfRow(spec, Limits());
  int64_t total = 0;
  for (const KernelTask& bound : tasks) {
    const Task& task = bound.task;
    total += (task.q_end - task.q_begin) * IntervalsOf(task, mask, of_row);
  }
  std::vector<std::vector<KernelTask>> calls;
  if (total <= max_intervals) {
    calls.push_back(std::move(tasks));
    return calls;
  }
  Cutter cutter(max_intervals);
  for (const KernelTask& bound : tasks) cutter.Add(bound, IntervalsOf(bound.task, mask, of_row));
  return std::move(cutter).Take();
}

namespace {

KernelOp::Kind KernelKind(Op::Kind kind) {
  switch (kind) {
    case Op::Kind::kMerge:
      return KernelOp::Kind::kMerge;
    case Op::Kind::kAdd:
      return KernelOp::Kind::kAdd;
    case Op::Kind::kFinish:
      return KernelOp::Kind::kFinish;
    case Op::Kind::kDelta:
      return KernelOp::Kind::kDelta;
    case Op::Kind::kSink:
      return KernelOp::Kind::kSink;
    case Op::Kind::kRound:
      return KernelOp::Kind::kRound;
  }
  return KernelOp::Kind::kMerge;
}

// The first section that has an address.
std::byte* FirstOf(const SectionPlaces& places) {
  const auto first = std::find_if(places.begin(), places.end(),
                                  [](const SectionPlace& place) { return place.first != nullptr; });
  return first == places.end() ? nullptr : first->first;
}

// Reserves one number per buffer, unique in this process. 0 means "no content number".
uint64_t NewContents(size_t buffers) {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(buffers, std::memory_order_relaxed);
}

}  // namespace

StepBinder::StepBinder(const RankProgram* program, std::byte* arena)
    : program_(program),
      arena_(arena),
      first_content_(NewContents(program->schedule.buffers.size())),
      births_(program->schedule.steps.size()) {
  const std::vector<ArenaPlan::Slot>& slots = program->placement.slots;
  for (size_t buffer = 0; buffer < slots.size(); ++buffer) {
    if (!slots[buffer].starts_as_identity) continue;
    births_[slots[buffer].born / 2].push_back(static_cast<int32_t>(buffer));
  }
}

BoundStep StepBinder::Bind(int32_t step) const {
  const Step& from = program_->schedule.steps[step];
  BoundStep bound;
  for (const int32_t buffer : births_[step]) {
    bound.births.push_back({KernelOp::Kind::kIdentity, BlockView(), View(buffer)});
  }
  for (const Transfer& t : from.sends) bound.sends.push_back({t.peer, RowsOf(t), BytesOf(t)});
  for (const Transfer& t : from.receives) {
    bound.receives.push_back({t.peer, RowsOf(t), BytesOf(t)});
  }
  for (const Task& task : from.tasks) bound.tasks.push_back(BindTask(task));
  for (const Op& op : from.ops) {
    bound.ops.push_back({KernelKind(op.kind), View(op.source), View(op.target)});
  }
  return bound;
}

BlockView StepBinder::View(int32_t buffer) const {
  if (buffer < 0) return BlockView();
  BlockView view;
  view.block = program_->schedule.buffers[buffer];
  view.content = first_content_ + static_cast<uint64_t>(buffer);
  if (!program_->stays(buffer)) {
    view.data = arena_ + program_->placement.slots[buffer].offset;
  } else if (!places_.empty()) {
    view.apart = &places_[buffer];
    view.data = FirstOf(*view.apart);
  }
  return view;
}

std::byte* StepBinder::RowsOf(const Transfer& transfer) const {
  const BlockView view = View(transfer.buffer);
  const int32_t heads = view.block.head_end - view.block.head_begin;
  return view.data + (transfer.row_begin - view.block.row_begin) *
                         program_->layout.RowBytes(view.block.kind, heads);
}

int64_t StepBinder::BytesOf(const Transfer& transfer) const {
  const Block& block = program_->schedule.buffers[transfer.buffer];
  return (transfer.row_end - transfer.row_begin) *
         program_->layout.RowBytes(block.kind, block.head_end - block.head_begin);
}

KernelTask StepBinder::BindTask(const Task& task) const {
  KernelTask bound;
  bound.task = task;
  bound.q = View(task.q);
  bound.kv = View(task.kv);
  bound.out_q = View(task.out_q);
  bound.out_kv = View(task.out_kv);
  bound.pairs = View(task.pairs);
  bound.out_bias = View(task.out_bias);
  bound.out = View(task.out);
  bound.q_rows = &program_->plan.shards[bound.q.block.shard].q_rows;
  bound.k_rows = &program_->plan.shards[bound.kv.block.shard].kv_rows;
  return bound;
}

}  // namespace annulus
