#include "worker/kernel/cuda/launch/split_launches.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/launch/launch_plan.h"
#include "worker/kernel/cuda/launch/table_image.h"
#include "worker/kernel/cuda/launch/tile_views.h"

namespace annulus::cuda {
namespace {

bool HasTables(const Task& task) { return task.coverage != Coverage::kFull; }

// Table bytes of every launch, of a sequence and of a task, independent of the rows in a launch:
// the sizes that TableImage produces.
int64_t CallBytes(const KernelJob& job, bool hopper) {
  // Every table begins at a multiple of 16 bytes, maps at a multiple of kMapBytes.
  const int64_t gaps = 16 * 16 + (hopper ? 16 + kMapBytes : 0);
  const bool slopes = !job.spec->modifiers.alibi_slopes.empty();
  return 4 * (slopes ? 2 : 1) * int64_t{job.mask->q_heads()} + gaps;
}
int64_t SequenceBytes(const KernelJob& job) {
  if (!KindOf(job).changes) return 0;
  const ChangeRule change = ChangeRuleOf(job);
  const int of_class = (change.alibi ? 1 : 0) + (change.bits ? 1 : 0);
  return static_cast<int64_t>(sizeof(SequenceAt)) + 4 * int64_t{of_class} * job.mask->classes();
}
int64_t TaskBytes(const KernelJob& job, const KernelTask& bound, bool hopper) {
  return static_cast<int64_t>(sizeof(ForwardTask)) + 4 * job.mask->classes() +
         (hopper ? kMapsOfTask * kMapBytes : 0) +
         static_cast<int64_t>((bound.q_rows->ranges().size() + bound.k_rows->ranges().size()) *
                              sizeof(RowRun));
}

class CallCutter {
 public:
  CallCutter(const KernelJob& job, absl::Span<const KernelTask> tasks, const VisibleRows& visible,
             const LaunchSplitRule& rule)
      : job_(job), tasks_(tasks), visible_(visible), rule_(rule) {}

  absl::StatusOr<std::vector<LaunchPieces>> Cut() {
    for (size_t t = 0; t < tasks_.size(); ++t) {
      absl::Status status = AddTask(static_cast<int32_t>(t));
      if (!status.ok()) return status;
    }
    Flush();
    return std::move(launches_);
  }

 private:
  // For rows [begin, end) of a task, besides TaskBytes.
  int64_t RowBytes(int32_t index, int64_t begin, int64_t end) {
    const Task& task = tasks_[index].task;
    const int group = job_.layout->group();
    const HeadRange heads = KvHeads(task, group);
    int64_t bytes = (heads.end - heads.begin) *
                    TilesOf(begin, end, group, SlotsOfTile(rule_.hopper)).length() *
                    static_cast<int64_t>(sizeof(ForwardItem) + sizeof(int32_t));
    if (rule_.hopper) bytes += RunBytes({index, begin, end}, heads.begin, group);
    if (of_sequence_ > 0) {
      ForEachSequence(*job_.mask, *tasks_[index].q_rows, {begin, end}, [&](int64_t sequence) {
        if (!sequences_.contains(sequence)) bytes += of_sequence_;
      });
    }
    if (!HasTables(task)) return bytes;
    job_.mask->ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t) {
      bytes += 4 * (end - begin + 1) +
               visible_.Spans(index, head, {begin, end}) * static_cast<int64_t>(sizeof(KeySpan32));
    });
    return bytes;
  }

  // An upper bound: rows that are added later split a run at most in two.
  int64_t RunBytes(const TaskPiece& piece, int32_t first_head, int group) {
    const Interval tiles = TilesOf(piece.q_begin, piece.q_end, group, kHopperSlots);
    int64_t bytes = 0;
    of_head_.assign(alike_.size(), 0);
    for (size_t i = 0; i < alike_.size(); ++i) {
      const int32_t head = first_head + static_cast<int32_t>(i);
      for (int64_t tile = tiles.begin; tile < tiles.end && alike_[i] == head; ++tile) {
        runs_.clear();
        AddRunsOf({job_, tasks_, visible_}, piece, head, tile, HopperTile(job_), &runs_);
        of_head_[i] +=
            static_cast<int64_t>(sizeof(int32_t) + 2 * runs_.size() * sizeof(KeyTileRun));
      }
      bytes += of_head_[alike_[i] - first_head];
    }
    return bytes;
  }

  // The approximate work of rows [begin, end) of a task.
  double WorkOf(int32_t index, int64_t begin, int64_t end) const {
    const Task& task = tasks_[index].task;
    const int64_t keys = VisibleKeys({job_, tasks_, visible_}, index, {begin, end});
    return static_cast<double>((end - begin) * (task.head_end - task.head_begin)) *
           static_cast<double>(keys) * cost_.Of(tasks_[index]);
  }

  absl::Status AddTask(int32_t index) {
    const Task& task = tasks_[index].task;
    const int64_t own = TaskBytes(job_, tasks_[index], rule_.hopper) + rule_.more_of_task;
    if (rule_.hopper) alike_ = AlikeHeads(job_, task);
    int64_t begin = task.q_begin;
    bool open = false;  // True if the last piece of the launch is this task's, and ends at `begin`.
    for (int64_t step = SlotsOfTile(rule_.hopper); begin < task.q_end;) {
      const int64_t end = std::min(task.q_end, (begin / step + 1) * step);
      const int64_t bytes = (open ? 0 : own) + RowBytes(index, begin, end);
      if (used_ + bytes > rule_.max_bytes) {
        if (!pieces_.empty()) {
          Flush();
          open = false;
        } else if (step > 1 && !rule_.whole_chunks) {
          step = 1;
        } else {
          return MakeError(absl::StatusCode::kResourceExhausted,
                           absl::StrCat("the mask of ", end - begin, " query rows takes ", bytes,
                                        " bytes, more than a kernel call has for tables"),
                           {"OUT_OF_MEMORY", {}, {}, {}});
        }
        continue;
      }
      const double work = WorkOf(index, begin, end);
      if (work_ + work > rule_.max_work && !pieces_.empty()) {
        Flush();
        open = false;
        continue;
      }
      used_ += bytes;
      work_ += work;
      AddRows({index, begin, end}, open);
      open = true;
      begin = end;
    }
    return absl::OkStatus();
  }

  // `open`: the rows extend the last piece.
  void AddRows(const TaskPiece& rows, bool open) {
    if (open)
      pieces_.back().q_end = rows.q_end;
    else
      pieces_.push_back(rows);
    if (of_sequence_ == 0) return;
    ForEachSequence(*job_.mask, *tasks_[rows.task].q_rows, {rows.q_begin, rows.q_end},
                    [&](int64_t sequence) { sequences_.insert(sequence); });
  }

  void Flush() {
    if (!pieces_.empty()) launches_.push_back(std::move(pieces_));
    pieces_.clear();
    sequences_.clear();
    used_ = CallBytes(job_, rule_.hopper);
    work_ = 0;
  }

  const KernelJob& job_;
  const absl::Span<const KernelTask> tasks_;
  const VisibleRows& visible_;
  const LaunchSplitRule rule_;
  const PairCost cost_{job_};
  const int64_t of_sequence_ = SequenceBytes(job_);
  // Sequences of the launch's rows, if its tables have sequences.
  absl::flat_hash_set<int64_t> sequences_;
  int64_t used_ = CallBytes(job_, rule_.hopper);
  double work_ = 0;
  std::vector<int32_t> alike_;  // Heads of the task that is being added.
  std::vector<int64_t> of_head_;
  std::vector<KeyTileRun> runs_;
  LaunchPieces pieces_;
  std::vector<LaunchPieces> launches_;
};

}  // namespace

absl::StatusOr<std::vector<LaunchPieces>> SplitLaunches(const KernelJob& job,
                                                        absl::Span<const KernelTask> tasks,
                                                        const VisibleRows& visible,
                                                        const LaunchSplitRule& rule) {
  return CallCutter(job, tasks, visible, rule).Cut();
}

void ForEachSequence(const MaskMap& mask, const RowMap& q_rows, Interval rows,
                     absl::FunctionRef<void(int64_t)> fn) {
  for (int64_t row = rows.begin; row < rows.end;) {
    const int64_t sequence = mask.SequenceOfQuery(q_rows.Global(row));
    fn(sequence);
    row = q_rows.LowerBound(mask.QueryBegin(sequence + 1));
  }
}

}  // namespace annulus::cuda
