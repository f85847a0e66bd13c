#include "attention/planning/cost_model.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "attention/schedule/arena/arena_plan.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/model/plan_memo.h"
#include "attention/schedule/passes/task_pairs.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

int64_t BytesOf(const RankSchedule& schedule, const Transfer& transfer, const BlockLayout& layout) {
  const Block& block = schedule.buffers[transfer.buffer];
  return (transfer.row_end - transfer.row_begin) *
         layout.RowBytes(block.kind, block.head_end - block.head_begin);
}

int64_t TransferBytes(const RankSchedule& schedule, const std::vector<Transfer>& transfers,
                      const BlockLayout& layout) {
  int64_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += BytesOf(schedule, transfer, layout);
  return bytes;
}

// Integers, so sums are the same on every machine.
struct TaskWork {
  int64_t pairs = 0, rows = 0, keys = 0;

  void Add(const TaskWork& other) {
    pairs += other.pairs;
    rows += other.rows;
    keys += other.keys;
  }
};

double TaskSeconds(const TaskWork& work, const Rates& rates) {
  return SecondsOf({static_cast<double>(work.pairs), static_cast<double>(work.rows),
                    static_cast<double>(work.keys)},
                   rates.kernel());
}

struct RankCost {
  double seconds = 0;
  int64_t bytes_sent = 0;
  TaskWork work;
};

double SecondsOfStep(const TaskWork& work, int64_t sent, int64_t received, const Rates& rates) {
  const double tasks = TaskSeconds(work, rates);
  const double wire = static_cast<double>(std::max(sent, received)) / rates.link_bytes_per_second;
  const double fixed = sent + received > 0 ? rates.step_seconds : 0;
  return std::max(tasks, wire) + rates.overlap_loss * std::min(tasks, wire) + fixed;
}

// The work of each step of a rank.
std::vector<TaskWork> WorkOfSteps(const RankSchedule& schedule, const ScheduleRequest& request) {
  PlanMemo own(request);
  const TaskPairs pairs(schedule, request, request.memo != nullptr ? request.memo : &own);
  std::vector<TaskWork> steps;
  for (const Step& step : schedule.steps) {
    TaskWork& work = steps.emplace_back();
    for (const Task& task : step.tasks) {
      const int64_t rows = (task.q_end - task.q_begin) * (task.head_end - task.head_begin);
      work.Add({pairs.Of(task), rows, pairs.Keys(task)});
    }
  }
  return steps;
}

RankCost CostOfRank(const RankSchedule& schedule, const ScheduleRequest& request,
                    const BlockLayout& layout, const Rates& rates) {
  const std::vector<TaskWork> works = WorkOfSteps(schedule, request);
  RankCost cost;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    const int64_t sent = TransferBytes(schedule, step.sends, layout);
    const int64_t received = TransferBytes(schedule, step.receives, layout);
    cost.seconds += SecondsOfStep(works[i], sent, received, rates);
    cost.bytes_sent += sent;
    cost.work.Add(works[i]);
  }
  return cost;
}

// Adds the links from a rank to its peers.
void AddLinks(const RankSchedule& schedule, int32_t rank, const BlockLayout& layout,
              std::vector<Link>* links) {
  std::map<int32_t, int64_t> bytes;
  for (const Step& step : schedule.steps) {
    for (const Transfer& send : step.sends) bytes[send.peer] += BytesOf(schedule, send, layout);
  }
  for (const auto& [peer, count] : bytes) {
    if (count > 0) links->push_back({rank, peer, count});
  }
}

double Balance(const std::vector<int64_t>& work) {
  const int64_t total = std::accumulate(work.begin(), work.end(), int64_t{0});
  if (total == 0) return 1;
  const double mean = static_cast<double>(total) / static_cast<double>(work.size());
  return static_cast<double>(*std::max_element(work.begin(), work.end())) / mean;
}

}  // namespace

KernelWork Cost::WorkOf(int32_t rank) const {
  return {static_cast<double>(visible_pairs[rank]), static_cast<double>(task_rows[rank]),
          static_cast<double>(task_keys[rank])};
}

std::vector<double> StepSeconds(const RankSchedule& schedule, const ScheduleRequest& request,
                                const Rates& rates) {
  const BlockLayout layout(*request.spec);
  const std::vector<TaskWork> works = WorkOfSteps(schedule, request);
  std::vector<double> seconds;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    seconds.push_back(SecondsOfStep(works[i], TransferBytes(schedule, step.sends, layout),
                                    TransferBytes(schedule, step.receives, layout), rates));
  }
  return seconds;
}

absl::StatusOr<Cost> PredictCost(const ScheduleRequest& request, const Rates& rates) {
  ASSIGN_OR_RETURN(const std::vector<RankSchedule> ranks, MakeGroupSchedules(request));
  const BlockLayout layout(*request.spec);
  Cost cost;
  for (const RankSchedule& schedule : ranks) {
    const RankCost rank = CostOfRank(schedule, request, layout, rates);
    cost.seconds = std::max(cost.seconds, rank.seconds);
    AddLinks(schedule, static_cast<int32_t>(cost.bytes_sent.size()), layout, &cost.links);
    cost.bytes_sent.push_back(rank.bytes_sent);
    cost.visible_pairs.push_back(rank.work.pairs);
    cost.task_rows.push_back(rank.work.rows);
    cost.task_keys.push_back(rank.work.keys);
    cost.peak_bytes_per_rank =
        std::max(cost.peak_bytes_per_rank, PlanArena(schedule, layout).arena_bytes);
  }
  cost.peak_bytes_per_rank +=
      VerdictBytes(*request.spec, request.execution, static_cast<int32_t>(ranks.size()));
  if (ranks.size() > 1) cost.job_seconds = rates.job_seconds;
  cost.seconds += cost.job_seconds;
  cost.expected_seconds = cost.seconds;
  cost.balance = Balance(cost.visible_pairs);
  return cost;
}

}  // namespace annulus
