#include "worker/kernel/cuda/seen_rows.h"

namespace annulus::cuda {
namespace {

// To wake threads takes as long as to ask for so many rows, about.
constexpr int64_t kRowsAlone = 2048;

// Whether rows come in many blocks, each of which is asked for.
bool IsStriped(const RowMap& rows) {
  int64_t blocks = 0;
  for (const RowRange& range : rows.ranges()) blocks += range.count;
  return blocks > rows.rows() / 64 + 16;
}

}  // namespace

SeenRows::SeenRows(const MaskMap& mask, absl::Span<const KernelTask> tasks, ComputePool& pool)
    : mask_(mask), entries_(tasks.size()) {
  struct Asked {
    size_t task;
    int32_t head;
    Interval q;
    TaskSweeps* to;
  };
  std::vector<Asked> asked;
  for (size_t t = 0; t < tasks.size(); ++t) {
    const Task& task = tasks[t].task;
    Entry& entry = entries_[t];
    entry.all = {task.k_begin, task.k_end};
    entry.q_begin = task.q_begin;
    if (task.coverage == Coverage::kFull) continue;
    entry.slot_of_class.resize(mask.classes());
    std::vector<int32_t> heads;
    mask.ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t) {
      entry.slot_of_class[mask.ClassOf(head)] = static_cast<int16_t>(heads.size());
      heads.push_back(head);
    });
    entry.pieces = (task.q_end - task.q_begin + kPieceRows - 1) / kPieceRows;
    entry.by_class.resize(heads.size() * entry.pieces);
    TaskSweeps* to = entry.by_class.data();
    for (const int32_t head : heads)
      for (int64_t q = task.q_begin; q < task.q_end; q += kPieceRows)
        asked.push_back({t, head, {q, std::min(q + kPieceRows, task.q_end)}, to++});
  }
  const auto ask = [&](const Asked& of) {
    const KernelTask& bound = tasks[of.task];
    *of.to = TaskSweeps(mask, *bound.q_rows, *bound.k_rows, of.q, entries_[of.task].all, of.head);
  };
  size_t next = 0;
  for (int64_t rows = 0; next < asked.size() && rows < kRowsAlone; ++next) {
    const Asked& of = asked[next];
    if (of.q.length() > kRowsAlone && IsStriped(*tasks[of.task].q_rows)) break;
    ask(of);
    rows += of.to->asked();
  }
  pool.ParallelFor(static_cast<int64_t>(asked.size() - next),
                   [&](int64_t index, int) { ask(asked[next + index]); });
}

int64_t SeenRows::Spans(int32_t task, int32_t q_head, Interval rows) const {
  int64_t spans = 0;
  ForEach(task, q_head, rows, [&](Interval part, absl::Span<const Sweep> sweeps, int64_t) {
    spans += part.length() * static_cast<int64_t>(sweeps.size());
  });
  return spans;
}

}  // namespace annulus::cuda
