#include "attention/schedule/passes/row_ends.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "attention/schedule/passes/finished_states.h"
#include "attention/spec/interval.h"

namespace annulus {
namespace {

// The position of a task.
struct TaskAt {
  size_t step = 0, index = 0;
};

// The tasks that add to each buffer, in order.
std::vector<std::vector<TaskAt>> TasksByState(const RankSchedule& schedule) {
  std::vector<std::vector<TaskAt>> tasks(schedule.buffers.size());
  for (size_t k = 0; k < schedule.steps.size(); ++k) {
    const std::vector<Task>& of_step = schedule.steps[k].tasks;
    for (size_t t = 0; t < of_step.size(); ++t)
      if (of_step[t].out_q >= 0) tasks[of_step[t].out_q].push_back({k, t});
  }
  return tasks;
}

// Rows of one range of heads that no task has met yet.
class Unmet {
 public:
  explicit Unmet(Interval rows) : rows_{rows} {}

  // Removes and returns the rows of `rows` that were not met before; nullopt if they form several
  // runs.
  std::optional<Interval> Meet(Interval rows) {
    std::optional<Interval> met = Interval{rows.begin, rows.begin};
    std::vector<Interval> left;
    for (const Interval& run : rows_) {
      const Interval common = Intersect(run, rows);
      if (common.length() == 0) {
        left.push_back(run);
        continue;
      }
      if (met && met->length() > 0) met.reset();
      if (met) met = common;
      if (run.begin < common.begin) left.push_back({run.begin, common.begin});
      if (common.end < run.end) left.push_back({common.end, run.end});
    }
    rows_ = std::move(left);
    return met;
  }
  bool empty() const { return rows_.empty(); }

 private:
  std::vector<Interval> rows_;
};

using Heads = std::pair<int32_t, int32_t>;

// True if the tasks' ranges of heads are equal or disjoint and together are those of `block`.
bool HeadsPart(const std::vector<const Task*>& tasks, const Block& block) {
  std::map<Heads, int> ranges;
  for (const Task* task : tasks) ++ranges[{task->head_begin, task->head_end}];
  int32_t next = block.head_begin;
  for (const auto& [heads, count] : ranges) {
    if (heads.first != next) return false;
    next = heads.second;
  }
  return next == block.head_end;
}

// The rows that each task is the first to meet, in the order given. Returns nullopt if they form
// several runs, or if some rows of the block are never met.
template <typename Iterator>
std::optional<std::vector<Interval>> MetFirst(Iterator begin, Iterator end, const Block& block) {
  std::map<Heads, Unmet> unmet;
  std::vector<Interval> first;
  for (Iterator at = begin; at != end; ++at) {
    const Task& task = **at;
    const auto [rows, added] = unmet.try_emplace({task.head_begin, task.head_end},
                                                 Interval{block.row_begin, block.row_end});
    const std::optional<Interval> met = rows->second.Meet({task.q_begin, task.q_end});
    if (!met) return std::nullopt;
    first.push_back(met->length() > 0 ? *met : Interval());
  }
  for (const auto& [heads, rows] : unmet)
    if (!rows.empty()) return std::nullopt;
  return first;
}

// nullopt if the state's rows cannot begin and end in tasks.
struct RowEnds {
  std::vector<Interval> begins, ends;  // By task of the state.
};
std::optional<RowEnds> EndsOf(const RankSchedule& schedule, const Block& block,
                              const std::vector<TaskAt>& places) {
  std::vector<const Task*> tasks;
  for (const TaskAt& at : places) tasks.push_back(&schedule.steps[at.step].tasks[at.index]);
  if (!HeadsPart(tasks, block)) return std::nullopt;
  std::optional<std::vector<Interval>> begins = MetFirst(tasks.begin(), tasks.end(), block);
  std::optional<std::vector<Interval>> ends = MetFirst(tasks.rbegin(), tasks.rend(), block);
  if (!begins || !ends) return std::nullopt;
  std::reverse(ends->begin(), ends->end());
  return RowEnds{*std::move(begins), *std::move(ends)};
}

}  // namespace

RankSchedule WithRowEnds(const RankSchedule& schedule, const std::vector<bool>& may_end) {
  RankSchedule ended = schedule;
  const std::vector<std::vector<TaskAt>> by_state = TasksByState(schedule);
  std::vector<bool> ends_in_tasks(schedule.buffers.size(), false);
  for (const FinishedState& one : FinishedStates(schedule)) {
    const std::vector<TaskAt>& tasks = by_state[one.state];
    if (tasks.empty() || !may_end[one.out]) continue;
    const std::optional<RowEnds> ends = EndsOf(schedule, schedule.buffers[one.state], tasks);
    if (!ends) continue;
    for (size_t t = 0; t < tasks.size(); ++t) {
      Task& task = ended.steps[tasks[t].step].tasks[tasks[t].index];
      task.begins = ends->begins[t];
      task.ends = ends->ends[t];
      task.out = task.ends.length() > 0 ? one.out : -1;
    }
    ends_in_tasks[one.state] = true;
  }
  const auto is_done = [&](const Op& op) { return ends_in_tasks[op.source]; };
  for (Step& step : ended.steps)
    step.ops.erase(std::remove_if(step.ops.begin(), step.ops.end(), is_done), step.ops.end());
  return ended;
}

}  // namespace annulus
