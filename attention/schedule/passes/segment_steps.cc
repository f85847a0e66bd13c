#include "attention/schedule/passes/segment_steps.h"

#include <algorithm>
#include <utility>

#include "attention/schedule/model/plan_memo.h"
#include "attention/schedule/passes/split_buffers.h"
#include "attention/schedule/passes/split_tasks.h"
#include "attention/schedule/passes/task_pairs.h"

namespace annulus {
namespace {

// Finer cuts cost more than they save.
constexpr int64_t kMaxParts = 4096;
constexpr int64_t kLeastRows = 4096;  // The fewest rows of a piece of a buffer.

// Cuts each transfer into `count` pieces of rows. Both ends cut the same region, so the pieces
// match.
void DealTransfers(const std::vector<Transfer>& transfers, std::vector<Transfer> Step::*list,
                   Step* parts, int64_t count) {
  for (const Transfer& transfer : transfers) {
    const int64_t rows = transfer.row_end - transfer.row_begin;
    for (int64_t part = 0; part < count; ++part) {
      Transfer cut = transfer;
      cut.row_begin = transfer.row_begin + rows * part / count;
      cut.row_end = transfer.row_begin + rows * (part + 1) / count;
      if (cut.row_begin < cut.row_end) (parts[part].*list).push_back(cut);
    }
  }
}

// Transfers run beside all tasks of their step. In a deterministic job, though, a rank may be idle
// until keys arrive from a rank that is busy. So transfers run beside the first tasks there.
int64_t PartsOfTransfers(const AttentionSpec& spec, int64_t parts) {
  return spec.deterministic ? (parts + 7) / 8 : parts;
}

}  // namespace

RankSchedule SplitSteps(const RankSchedule& schedule, const ScheduleRequest& request,
                        const std::vector<int32_t>& parts_of_step) {
  const RankSchedule whole = SplitSentKeys(schedule, request, kLeastRows);
  RankSchedule split = whole;
  split.steps.clear();
  for (size_t k = 0; k < whole.steps.size(); ++k) {
    const Step& step = whole.steps[k];
    const int64_t count = k < parts_of_step.size() ? std::max(parts_of_step[k], 1) : 1;
    if (count == 1) {
      split.steps.push_back(step);
      continue;
    }
    std::vector<Step> parts(count);
    std::vector<std::vector<Task>> dealt = SplitTasks(step.tasks, count, whole, request);
    for (int64_t part = 0; part < count; ++part) parts[part].tasks = std::move(dealt[part]);
    const int64_t moving = PartsOfTransfers(*request.spec, count);
    DealTransfers(step.sends, &Step::sends, parts.data(), moving);
    DealTransfers(step.receives, &Step::receives, parts.data(), moving);
    parts.back().ops = step.ops;
    split.steps.insert(split.steps.end(), parts.begin(), parts.end());
  }
  return SplitStates(split, kLeastRows);
}

std::vector<int32_t> StepParts(const std::vector<std::vector<int64_t>>& costs,
                               int64_t max_step_cost) {
  std::vector<int64_t> largest;
  for (const std::vector<int64_t>& rank : costs) {
    largest.resize(std::max(largest.size(), rank.size()));
    for (size_t k = 0; k < rank.size(); ++k) largest[k] = std::max(largest[k], rank[k]);
  }
  std::vector<int32_t> parts;
  for (const int64_t cost : largest) {
    const int64_t wanted =
        max_step_cost > 0 ? cost / max_step_cost + (cost % max_step_cost != 0 ? 1 : 0) : 1;
    parts.push_back(static_cast<int32_t>(std::clamp<int64_t>(wanted, 1, kMaxParts)));
  }
  return parts;
}

int64_t LongestStep(const std::vector<RankSchedule>& ranks,
                    const std::vector<std::vector<int64_t>>& costs) {
  int64_t longest = 0;
  std::vector<int64_t> begins(ranks.size(), 0);  // The begin of the step, by rank.
  for (size_t k = 0; !ranks.empty() && k < ranks[0].steps.size(); ++k) {
    std::vector<int64_t> ends(ranks.size(), 0);
    for (size_t r = 0; r < ranks.size(); ++r) {
      const Step& step = ranks[r].steps[k];
      int64_t met = begins[r];
      for (const Transfer& send : step.sends) met = std::max(met, begins[send.peer]);
      for (const Transfer& receive : step.receives) met = std::max(met, begins[receive.peer]);
      ends[r] = met + costs[r][k];
      longest = std::max(longest, ends[r] - begins[r]);
    }
    begins = std::move(ends);
  }
  return longest;
}

std::vector<int64_t> StepCosts(const RankSchedule& schedule, const ScheduleRequest& request) {
  PlanMemo own(request);
  const TaskPairs pairs(schedule, request, request.memo != nullptr ? request.memo : &own);
  std::vector<int64_t> costs;
  for (const Step& step : schedule.steps) {
    int64_t cost = 0;
    for (const Task& task : step.tasks) cost += pairs.Of(task);
    costs.push_back(cost);
  }
  return costs;
}

std::vector<Segment> SplitSegments(int32_t steps, int32_t segments) {
  const int32_t count = std::clamp(segments, 1, std::max(steps, 1));
  std::vector<Segment> cut;
  for (int32_t i = 0; i < count; ++i) {
    cut.push_back({static_cast<int32_t>(int64_t{steps} * i / count),
                   static_cast<int32_t>(int64_t{steps} * (i + 1) / count)});
  }
  return cut;
}

}  // namespace annulus
