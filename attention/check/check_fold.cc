#include "attention/check/check_fold.h"

#include <map>
#include <vector>

#include "attention/check/broken.h"
#include "attention/status_macros.h"

namespace annulus {
namespace {

bool IsState(const RankSchedule& schedule, int32_t buffer) {
  return schedule.buffers[buffer].kind == BlockKind::kPartial;
}

absl::Status CheckNothingMerges(int32_t rank, int32_t k, const RankSchedule& schedule) {
  const Step& step = schedule.steps[k];
  for (const std::vector<Transfer>* transfers : {&step.sends, &step.receives}) {
    for (const Transfer& transfer : *transfers) {
      if (IsState(schedule, transfer.buffer)) {
        return Broken(rank, k, "a partial of a deterministic job is sent");
      }
    }
  }
  for (const Op& op : step.ops) {
    if (IsState(schedule, op.target)) {
      return Broken(rank, k, "a partial of a deterministic job is merged");
    }
  }
  return absl::OkStatus();
}

// Where a task's keys begin and end in the job.
absl::StatusOr<Interval> WholeTiles(const ScheduleRequest& request, int32_t rank, int32_t k,
                                    const RowMap& keys, const Task& task) {
  const int64_t tile = request.plan->granule;
  const int64_t begin = keys.Global(task.k_begin), end = keys.Global(task.k_end - 1) + 1;
  if (end - begin != task.k_end - task.k_begin || (begin - task.k_begin) % tile != 0) {
    return Broken(rank, k, "keys of a deterministic task do not lie side by side, tile on tile");
  }
  const MaskMap& mask = *request.mask;
  for (const int64_t cut : {begin, end}) {
    const bool ends_all = cut == request.spec->kv_rows();
    if (cut % tile == 0 || ends_all || mask.KeyBegin(mask.SequenceOfKey(cut)) == cut) continue;
    return Broken(rank, k, "a deterministic task cuts a tile of keys");
  }
  return Interval{begin, end};
}

bool Meet(const Task& a, const Task& b) {
  return a.q_begin < b.q_end && b.q_begin < a.q_end && a.head_begin < b.head_end &&
         b.head_begin < a.head_end;
}

}  // namespace

absl::Status CheckFold(const ScheduleRequest& request, int32_t rank, const RankSchedule& schedule) {
  if (!request.spec->deterministic) return absl::OkStatus();
  struct Taken {
    const Task* task;
    int64_t end;
  };
  std::map<int32_t, std::vector<Taken>> taken;  // By accumulator.
  for (int32_t k = 0; k < static_cast<int32_t>(schedule.steps.size()); ++k) {
    RETURN_IF_ERROR(CheckNothingMerges(rank, k, schedule));
    for (const Task& task : schedule.steps[k].tasks) {
      const Shard& shard = request.plan->shards[schedule.buffers[task.kv].shard];
      ASSIGN_OR_RETURN(const Interval keys, WholeTiles(request, rank, k, shard.kv_rows, task));
      for (const Taken& before : taken[task.out_q]) {
        if (before.end > keys.begin && Meet(*before.task, task)) {
          return Broken(rank, k, "a deterministic accumulator meets its keys out of order");
        }
      }
      taken[task.out_q].push_back({&task, keys.end});
    }
  }
  return absl::OkStatus();
}

}  // namespace annulus
