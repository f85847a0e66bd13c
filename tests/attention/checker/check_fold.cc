#include "tests/attention/checker/check_fold.h"

#include <map>
#include <vector>

#include "attention/schedule/model/accumulators.h"
#include "base/status_macros.h"
#include "tests/attention/checker/broken.h"

namespace annulus {
namespace {

bool IsState(const RankSchedule& schedule, int32_t buffer) {
  const BlockKind kind = schedule.buffers[buffer].kind;
  return IsAccumulator(kind) || kind == BlockKind::kBf16Partial;
}

// A bias gradient that is sent home is no sum if nothing is added to it there.
bool GetsMore(const RankSchedule& schedule, int32_t buffer) {
  for (const Step& step : schedule.steps) {
    for (const Task& task : step.tasks) {
      if (task.out_bias == buffer) return true;
    }
  }
  return false;
}

absl::Status CheckNothingMerges(int32_t rank, int32_t k, const RankSchedule& schedule) {
  const Step& step = schedule.steps[k];
  for (const std::vector<Transfer>* transfers : {&step.sends, &step.receives}) {
    for (const Transfer& transfer : *transfers) {
      const bool d_bias = schedule.buffers[transfer.buffer].kind == BlockKind::kDBias;
      const bool received = transfers == &step.receives;
      if (d_bias ? received && GetsMore(schedule, transfer.buffer)
                 : IsState(schedule, transfer.buffer)) {
        return Broken(rank, k, "sums of a deterministic job are sent");
      }
    }
  }
  for (const Op& op : step.ops) {
    if (IsState(schedule, op.target)) {
      return Broken(rank, k, "sums of a deterministic job are added up");
    }
  }
  return absl::OkStatus();
}

// The interval of the job in which a task's keys are.
absl::StatusOr<Interval> WholeTiles(const ScheduleRequest& request, int32_t rank, int32_t k,
                                    const RowMap& keys, const Task& task) {
  const int64_t tile = request.plan->granule;
  const auto [begin, end] = keys.Hull({task.k_begin, task.k_end});
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

bool Overlap(Interval a, Interval b) { return Intersect(a, b).length() > 0; }
Interval HeadsOf(const Task& task) { return {task.head_begin, task.head_end}; }
Interval QueriesOf(const Task& task) { return {task.q_begin, task.q_end}; }
Interval KeysOf(const Task& task) { return {task.k_begin, task.k_end}; }

// A task, and the position of its keys or queries in the job.
struct Taken {
  const Task* task;
  Interval rows;
};
using TakenBy = std::map<int32_t, std::vector<Taken>>;  // Key: accumulator.

class FoldCheck {
 public:
  FoldCheck(const ScheduleRequest& request, int32_t rank, const RankSchedule& schedule)
      : request_(request),
        group_(request.spec->q_heads / request.spec->kv_heads),
        tile_(request.plan->granule),
        rank_(rank),
        schedule_(schedule) {}

  absl::Status Take(int32_t k, const Task& task) {
    const Shard& shard = request_.plan->shards[schedule_.buffers[task.kv].shard];
    ASSIGN_OR_RETURN(const Interval keys, WholeTiles(request_, rank_, k, shard.kv_rows, task));
    if (task.out_q >= 0) RETURN_IF_ERROR(TakeKeys(k, task, keys));
    return task.out_kv >= 0 ? TakeQueries(k, task) : absl::OkStatus();
  }

 private:
  absl::Status TakeKeys(int32_t k, const Task& task, Interval keys) {
    for (const Taken& before : of_queries_[task.out_q]) {
      if (before.rows.end > keys.begin && Overlap(QueriesOf(*before.task), QueriesOf(task)) &&
          Overlap(HeadsOf(*before.task), HeadsOf(task))) {
        return Broken(rank_, k, "a deterministic accumulator meets its keys out of order");
      }
    }
    of_queries_[task.out_q].push_back({&task, keys});
    return absl::OkStatus();
  }

  absl::Status TakeQueries(int32_t k, const Task& task) {
    const RowMap& rows = request_.plan->shards[schedule_.buffers[task.q].shard].q_rows;
    const auto [begin, end] = rows.Hull({task.q_begin, task.q_end});
    if (end - begin != task.q_end - task.q_begin || (begin - task.q_begin) % tile_ != 0) {
      return Broken(rank_, k, "queries of a deterministic task do not lie side by side");
    }
    const Taken now{&task, {begin, end}};
    for (const Taken& before : of_keys_[task.out_kv]) {
      if (!Overlap(KeysOf(*before.task), KeysOf(task)) ||
          !Overlap(KvHeadsOf(*before.task), KvHeadsOf(task)) || InOrder(before, now)) {
        continue;
      }
      return Broken(rank_, k, "a deterministic accumulator meets its queries out of order");
    }
    of_keys_[task.out_kv].push_back(now);
    return absl::OkStatus();
  }

  Interval KvHeadsOf(const Task& task) const {
    return {task.head_begin / group_, (task.head_end - 1) / group_ + 1};
  }

  bool InOrder(const Taken& before, const Taken& now) const {
    const int64_t last = (before.rows.end - 1) / tile_, first = now.rows.begin / tile_;
    if (last < first) return true;
    if (!Overlap(HeadsOf(*before.task), HeadsOf(*now.task))) {
      const bool one_tile = before.rows.begin / tile_ == (now.rows.end - 1) / tile_;
      return one_tile && before.task->head_begin < now.task->head_begin;
    }
    // A key sees queries of only one of the two sequences.
    return before.rows.end <= now.rows.begin &&
           request_.mask->SequenceOfQuery(before.rows.end - 1) !=
               request_.mask->SequenceOfQuery(now.rows.begin);
  }

  const ScheduleRequest& request_;
  const int32_t group_;
  const int64_t tile_;
  const int32_t rank_;
  const RankSchedule& schedule_;
  TakenBy of_queries_, of_keys_;
};

}  // namespace

absl::Status CheckFold(const ScheduleRequest& request, int32_t rank, const RankSchedule& schedule) {
  if (!request.spec->deterministic) return absl::OkStatus();
  FoldCheck check(request, rank, schedule);
  for (int32_t k = 0; k < static_cast<int32_t>(schedule.steps.size()); ++k) {
    RETURN_IF_ERROR(CheckNothingMerges(rank, k, schedule));
    for (const Task& task : schedule.steps[k].tasks) RETURN_IF_ERROR(check.Take(k, task));
  }
  return absl::OkStatus();
}

}  // namespace annulus
