#include "worker/executor/split_calls.h"

#include <algorithm>
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

}  // namespace annulus
