#include "worker/kernel/cuda/launch/visible_rows.h"

namespace annulus::cuda {
namespace {

// Below this number of rows, to wake threads takes longer than to query the mask.
constexpr int64_t kRowsAlone = 2048;

// True if rows come in many blocks, each of which needs a query.
bool IsStriped(const RowMap& rows) {
  int64_t blocks = 0;
  for (const RowRange& range : rows.ranges()) blocks += range.count;
  return blocks > rows.rows() / 64 + 16;
}

}  // namespace

VisibleRows::VisibleRows(const MaskMap& mask, absl::Span<const KernelTask> tasks, ComputePool& pool)
    : pieces_(mask) {
  const auto asked = pieces_.Cut(tasks);
  const auto ask = [&](const Pieces::Asked& of) {
    const KernelTask& bound = tasks[of.task];
    *of.rows =
        TaskSweeps(mask, *bound.q_rows, *bound.k_rows, of.q, pieces_.KeysOf(of.task), of.head);
  };
  size_t next = 0;
  for (int64_t rows = 0; next < asked.size() && rows < kRowsAlone; ++next) {
    const Pieces::Asked& of = asked[next];
    if (of.q.length() > kRowsAlone && IsStriped(*tasks[of.task].q_rows)) break;
    ask(of);
    rows += of.rows->asked();
  }
  pool.ParallelFor(static_cast<int64_t>(asked.size() - next),
                   [&](int64_t index, int) { ask(asked[next + index]); });
}

int64_t VisibleRows::Spans(int32_t task, int32_t q_head, Interval rows) const {
  int64_t spans = 0;
  ForEach(task, q_head, rows, [&](Interval part, absl::Span<const Sweep> sweeps, int64_t) {
    spans += part.length() * static_cast<int64_t>(sweeps.size());
  });
  return spans;
}

}  // namespace annulus::cuda
