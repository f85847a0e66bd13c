#include "attention/segment.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/numeric/int128.h"
#include "attention/schedule/plan_memo.h"
#include "attention/visible_pairs.h"

namespace annulus {
namespace {

// Finer cuts than this cost more than they save.
constexpr int64_t kMaxParts = 4096;

// Rows × keys × heads; about half of a partly visible rectangle counts.
__int128 Weight(const Task& task) {
  const __int128 cells = static_cast<__int128>(task.q_end - task.q_begin) *
                         (task.k_end - task.k_begin) * (task.head_end - task.head_begin);
  return task.coverage == Coverage::kFull ? 2 * cells : cells;
}

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Of about `side` each, all alike: what is left over would be thin.
int64_t EvenSide(int64_t length, int64_t side) {
  const int64_t count = std::max<int64_t>(1, (length + side / 2) / side);
  return (length + count - 1) / count;
}

// A kernel prepares the keys of a task for its rows and loads and stores the state of these rows.
// So a part that met all of many keys with few rows would spend most of its time on keys: long
// tasks are cut both ways, into squares of about a part's `weight`, at keys where tiles of every
// kernel end. Rows see their keys in the same order as before. Left as they are: tasks that are
// visible in part, as squares of nothing would weigh as much as others; those that add to gradients
// of keys, whose rows are cut by granules; and a few rows, for which keys are not prepared.
void AddSquares(const Task& task, __int128 weight, std::vector<Task>* squares) {
  constexpr int64_t kTiles = 768;  // Keys: tiles have 16 to 256, and 96.
  constexpr int64_t kLeastSide = 4096, kFewRows = 128;
  const int64_t heads = std::max(1, task.head_end - task.head_begin);
  const double cells = static_cast<double>(weight / 2) / static_cast<double>(heads);
  const int64_t side = std::max(kLeastSide, static_cast<int64_t>(std::sqrt(cells)));
  if (task.coverage != Coverage::kFull || task.out_kv >= 0 ||
      task.q_end - task.q_begin <= kFewRows || task.k_end - task.k_begin <= 2 * side) {
    squares->push_back(task);
    return;
  }
  const int64_t rows = EvenSide(task.q_end - task.q_begin, side);
  const int64_t keys = RoundUp(EvenSide(task.k_end - task.k_begin, side), kTiles);
  for (int64_t q = task.q_begin; q < task.q_end; q += rows) {
    for (int64_t k = task.k_begin; k < task.k_end;) {
      Task square = task;
      square.q_begin = q;
      square.q_end = std::min(task.q_end, q + rows);
      square.k_begin = k;
      square.k_end = k = std::min(task.k_end, (k + keys) / kTiles * kTiles);
      squares->push_back(square);
    }
  }
}

std::vector<Task> CutIntoSquares(const std::vector<Task>& tasks, int64_t parts) {
  __int128 total = 0;
  for (const Task& task : tasks) total += Weight(task);
  std::vector<Task> squares;
  for (const Task& task : tasks) AddSquares(task, total / parts, &squares);
  return squares;
}

// Deals tasks in order over `parts` steps of equal weight, cutting a task by query rows where a
// part ends, so that an accumulator row sees its keys in the same order as before.
void DealTasks(const std::vector<Task>& tasks, int64_t granule, Step* parts, int64_t count) {
  __int128 total = 0, before = 0;
  for (const Task& task : tasks) total += Weight(task);
  for (const Task& task : tasks) {
    const __int128 weight = Weight(task);
    const int64_t rows = task.q_end - task.q_begin;
    int64_t first = 0;  // Row of the task.
    for (int64_t part = 0; part < count && first < rows; ++part) {
      const __int128 end = total * (part + 1) / count;  // Of the part.
      const __int128 share = (end - before) * rows / std::max<__int128>(weight, 1);
      int64_t last =
          part + 1 == count ? rows : static_cast<int64_t>(std::clamp<__int128>(share, first, rows));
      if (last < rows && task.out_kv >= 0) {  // Shared out by whole granules.
        last = std::max(first, (task.q_begin + last) / granule * granule - task.q_begin);
      }
      if (last <= first) continue;
      Task cut = task;
      cut.q_begin = task.q_begin + first;
      cut.q_end = task.q_begin + last;
      parts[part].tasks.push_back(cut);
      first = last;
    }
    before += weight;
  }
}

// Cuts each transfer into `count` row pieces. Both sides cut the same region, so pieces match.
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

// Of gradients: scores and dO·v, then one for queries and two for keys.
constexpr int64_t kProducts = 5;
int64_t ProductsOf(const RankSchedule& schedule, const Task& task) {
  if (schedule.buffers[task.q].kind != BlockKind::kQGrad) return kProducts;
  return 2 + (task.out_q >= 0 ? 1 : 0) + (task.out_kv >= 0 ? 2 : 0);
}

// Visible pairs × query heads, by the share of the products that the task makes.
int64_t PairsOfTask(const Task& task, int32_t q_shard, int32_t k_shard, int64_t products,
                    const ScheduleRequest& request, PlanMemo* memo) {
  const Interval q{task.q_begin, task.q_end}, k{task.k_begin, task.k_end};
  std::vector<int64_t>& known = memo->PairsOf(q_shard, q, k_shard, k);
  const std::vector<Shard>& shards = request.plan->shards;
  int64_t pairs = 0;
  request.mask->ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t count) {
    int64_t& of_class = known[request.mask->ClassOf(head)];
    if (of_class < 0) {
      of_class = EstimateVisiblePairs(
          *request.mask, {&shards[q_shard].q_rows, &shards[k_shard].kv_rows, q, k, head});
    }
    pairs += static_cast<int64_t>(absl::int128(of_class) * count * products / kProducts);
  });
  return pairs;
}

}  // namespace

RankSchedule SplitSteps(const RankSchedule& schedule, const std::vector<int32_t>& parts_of_step,
                        int64_t granule) {
  RankSchedule split = schedule;
  split.steps.clear();
  for (size_t k = 0; k < schedule.steps.size(); ++k) {
    const Step& step = schedule.steps[k];
    const int64_t count = k < parts_of_step.size() ? std::max(parts_of_step[k], 1) : 1;
    if (count == 1) {
      split.steps.push_back(step);
      continue;
    }
    std::vector<Step> parts(count);
    DealTasks(CutIntoSquares(step.tasks, count), granule, parts.data(), count);
    DealTransfers(step.sends, &Step::sends, parts.data(), count);
    DealTransfers(step.receives, &Step::receives, parts.data(), count);
    parts.back().ops = step.ops;
    split.steps.insert(split.steps.end(), parts.begin(), parts.end());
  }
  return split;
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
  std::vector<int64_t> begins(ranks.size(), 0);  // Of the step.
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
  PlanMemo* const memo = request.memo != nullptr ? request.memo : &own;
  std::vector<int64_t> costs;
  for (const Step& step : schedule.steps) {
    int64_t cost = 0;
    for (const Task& task : step.tasks) {
      cost += PairsOfTask(task, schedule.buffers[task.q].shard, schedule.buffers[task.kv].shard,
                          ProductsOf(schedule, task), request, memo);
    }
    costs.push_back(cost);
  }
  return costs;
}

std::vector<Segment> CutSegments(int32_t steps, int32_t segments) {
  const int32_t count = std::clamp(segments, 1, std::max(steps, 1));
  std::vector<Segment> cut;
  for (int32_t i = 0; i < count; ++i) {
    cut.push_back({static_cast<int32_t>(int64_t{steps} * i / count),
                   static_cast<int32_t>(int64_t{steps} * (i + 1) / count)});
  }
  return cut;
}

}  // namespace annulus
