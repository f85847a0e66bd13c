#include "attention/row_ends.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "attention/interval.h"

namespace annulus {
namespace {

// Where a task stands.
struct TaskAt {
  size_t step = 0, index = 0;
};

// All that has to do with a running state.
struct Uses {
  std::vector<TaskAt> tasks;  // In order.
  std::optional<TaskAt> finish;
  bool others = false;
};

std::vector<Uses> UsesOf(const RankSchedule& schedule) {
  std::vector<Uses> uses(schedule.buffers.size());
  for (size_t k = 0; k < schedule.steps.size(); ++k) {
    const Step& step = schedule.steps[k];
    for (const Transfer& transfer : step.sends) uses[transfer.buffer].others = true;
    for (const Transfer& transfer : step.receives) uses[transfer.buffer].others = true;
    for (size_t t = 0; t < step.tasks.size(); ++t) {
      const int32_t state = step.tasks[t].out_q;
      if (state < 0) continue;
      uses[state].tasks.push_back({k, t});
      uses[state].others |= uses[state].finish.has_value();
    }
    for (size_t o = 0; o < step.ops.size(); ++o) {
      const Op& op = step.ops[o];
      Uses& source = uses[op.source];
      source.others |= op.kind != Op::Kind::kFinish || source.finish.has_value();
      source.finish = TaskAt{k, o};
      uses[op.target].others |= schedule.buffers[op.target].kind == BlockKind::kPartial;
    }
  }
  return uses;
}

// Rows of one range of heads that are still to be met.
class Unmet {
 public:
  explicit Unmet(Interval rows) : rows_{rows} {}

  // Those of `rows` that have not been met; nothing where they are several runs.
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

// Whether the tasks' heads are the same or have none in common, and are together those of `block`.
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

// What each of the tasks meets first of its rows, in the order given; nothing where that cannot be
// said, or not all rows of the block are met.
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

bool SameRowsAndHeads(const Block& a, Block b) {
  b.kind = a.kind;
  return a == b;
}

// Nothing where the state's rows cannot begin and end in tasks.
struct RowEnds {
  std::vector<Interval> begins, ends;  // Of its tasks.
};
std::optional<RowEnds> EndsOf(const RankSchedule& schedule, const Block& block, const Uses& uses) {
  std::vector<const Task*> tasks;
  for (const TaskAt& at : uses.tasks) tasks.push_back(&schedule.steps[at.step].tasks[at.index]);
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
  const std::vector<Uses> uses = UsesOf(schedule);
  std::vector<std::vector<bool>> done(schedule.steps.size());
  for (size_t k = 0; k < done.size(); ++k) done[k].resize(schedule.steps[k].ops.size(), false);
  for (size_t buffer = 0; buffer < uses.size(); ++buffer) {
    const Block& block = schedule.buffers[buffer];
    const Uses& of = uses[buffer];
    if (block.kind != BlockKind::kPartial || of.others || !of.finish || of.tasks.empty()) continue;
    const int32_t out = schedule.steps[of.finish->step].ops[of.finish->index].target;
    if (!may_end[out] || !SameRowsAndHeads(block, schedule.buffers[out])) continue;
    const std::optional<RowEnds> ends = EndsOf(schedule, block, of);
    if (!ends) continue;
    for (size_t t = 0; t < of.tasks.size(); ++t) {
      Task& task = ended.steps[of.tasks[t].step].tasks[of.tasks[t].index];
      task.begins = ends->begins[t];
      task.ends = ends->ends[t];
      task.out = task.ends.length() > 0 ? out : -1;
    }
    done[of.finish->step][of.finish->index] = true;
  }
  for (size_t k = 0; k < done.size(); ++k) {
    std::vector<Op> left;
    for (size_t o = 0; o < done[k].size(); ++o)
      if (!done[k][o]) left.push_back(schedule.steps[k].ops[o]);
    ended.steps[k].ops = std::move(left);
  }
  return ended;
}

}  // namespace annulus
