#include "attention/schedule/passes/split_buffers.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "attention/schedule/model/row_set.h"
#include "attention/schedule/passes/finished_states.h"

namespace annulus {
namespace {

// The most pieces of one buffer; more would save little.
constexpr int64_t kMostPieces = 16;

bool SavesHalf(int64_t left, int64_t of) { return 2 * left <= of; }

struct Piece {
  int32_t buffer = 0;
  Interval rows;
};

// Turns the buffer's block into its first piece and adds the others behind all buffers.
std::vector<Piece> CutBuffer(int32_t buffer, const std::vector<Interval>& rows,
                             RankSchedule* schedule) {
  std::vector<Piece> pieces;
  for (const Interval& piece : rows) {
    if (!pieces.empty()) schedule->buffers.push_back(schedule->buffers[buffer]);
    const int32_t id = pieces.empty() ? buffer : static_cast<int32_t>(schedule->buffers.size()) - 1;
    schedule->buffers[id].row_begin = piece.begin;
    schedule->buffers[id].row_end = piece.end;
    pieces.push_back({id, piece});
  }
  return pieces;
}

void AddPieces(const std::vector<Piece>& pieces, std::vector<int32_t>* list) {
  for (size_t i = 1; i < pieces.size(); ++i) list->push_back(pieces[i].buffer);
}

// Cuts `rows` where sent rows begin and end, which are multiples of the plan's granule.
std::vector<Interval> CutAtSent(const RowSet& sent, Interval rows) {
  std::vector<Interval> pieces;
  int64_t at = rows.begin;
  const auto cut_at = [&](int64_t end) {
    if (at < end) pieces.push_back({at, end});
    at = end;
  };
  for (const Interval& one : sent) {
    cut_at(one.begin);
    cut_at(one.end);
  }
  cut_at(rows.end);
  return pieces;
}

// The sent rows of each input buffer of keys that is sent in part and otherwise used only by tasks
// of a forward pass.
std::map<int32_t, RowSet> PartlySent(const RankSchedule& schedule) {
  std::map<int32_t, std::vector<Interval>> sent;
  std::vector<bool> own(schedule.buffers.size(), false);
  for (const int32_t input : schedule.inputs)
    own[input] = schedule.buffers[input].kind == BlockKind::kKv;
  for (const Step& step : schedule.steps) {
    for (const Transfer& send : step.sends)
      sent[send.buffer].push_back({send.row_begin, send.row_end});
    for (const Task& task : step.tasks)
      if (task.out_kv >= 0) own[task.kv] = false;
    for (const Op& op : step.ops) own[op.source] = own[op.target] = false;
  }
  std::map<int32_t, RowSet> rows;
  for (auto& [buffer, intervals] : sent)
    if (own[buffer]) rows[buffer] = MakeRowSet(std::move(intervals));
  return rows;
}

// The task's rows from the first to the last that sees one of its keys.
Interval SeeingRows(const Task& task, const RankSchedule& schedule,
                    const ScheduleRequest& request) {
  const auto shard = [&](int32_t buffer) -> const Shard& {
    return request.plan->shards[schedule.buffers[buffer].shard];
  };
  const RowMap &q_map = shard(task.q).q_rows, &k_map = shard(task.kv).kv_rows;
  const Interval keys = k_map.Hull({task.k_begin, task.k_end});
  const auto sees = [&](Interval rows) {
    bool any = false;
    request.mask->ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t) {
      any = any || request.mask->SeesAny(head, q_map.Hull(rows), keys);
    });
    return any;
  };
  return TrimTo(sees, {task.q_begin, task.q_end});
}

// Pieces of at least `least` rows; no task of the state crosses a cut.
std::vector<Interval> PiecesOfTasks(const RankSchedule& schedule, int32_t state, int64_t least) {
  const Interval rows{schedule.buffers[state].row_begin, schedule.buffers[state].row_end};
  std::vector<Interval> met;
  for (const Step& step : schedule.steps)
    for (const Task& task : step.tasks)
      if (task.out_q == state) met.push_back({task.q_begin, task.q_end});
  std::sort(met.begin(), met.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> pieces = {{rows.begin, rows.begin}};
  int64_t end = rows.begin;
  for (const Interval& task : met) {
    if (task.begin >= end && end - pieces.back().begin >= least && rows.end - end >= least) {
      pieces.back().end = end;
      pieces.push_back({end, end});
    }
    end = std::max(end, task.end);
  }
  pieces.back().end = rows.end;
  return pieces;
}

template <typename Fn>
void ForEachMet(const std::vector<Interval>& pieces, Interval rows, Fn fn) {
  auto piece = std::partition_point(pieces.begin(), pieces.end(),
                                    [&](const Interval& one) { return one.end <= rows.begin; });
  for (; piece != pieces.end() && piece->begin < rows.end; ++piece) fn(piece - pieces.begin());
}

// The first and last step with tasks of each piece, both included. A piece without tasks lives in
// step `finish` only.
std::vector<Interval> LivesOf(const RankSchedule& schedule, int32_t state,
                              const std::vector<Interval>& pieces, int32_t finish) {
  std::vector<Interval> lives(pieces.size(), {-1, finish});
  for (size_t k = 0; k < schedule.steps.size(); ++k) {
    const auto step = static_cast<int64_t>(k);
    for (const Task& task : schedule.steps[k].tasks) {
      if (task.out_q != state) continue;
      ForEachMet(pieces, {task.q_begin, task.q_end}, [&](int64_t i) {
        lives[i] = {lives[i].begin < 0 ? step : lives[i].begin, step};
      });
    }
  }
  for (Interval& life : lives)
    if (life.begin < 0) life.begin = finish;
  return lives;
}

int64_t MostRowsAlive(const std::vector<Interval>& pieces, const std::vector<Interval>& lives) {
  std::map<int64_t, int64_t> change;
  for (size_t i = 0; i < pieces.size(); ++i) {
    change[lives[i].begin] += pieces[i].length();
    change[lives[i].end + 1] -= pieces[i].length();
  }
  int64_t alive = 0, most = 0;
  for (const auto& [step, rows] : change) most = std::max(most, alive += rows);
  return most;
}

// Replaces the tasks of each cut buffer by tasks of its pieces.
using PiecesOf = std::map<int32_t, std::vector<Piece>>;
template <typename Fn>
void CutTasks(const PiecesOf& cut, int32_t Task::*buffer, Fn cut_to, RankSchedule* schedule) {
  for (Step& step : schedule->steps) {
    std::vector<Task> tasks;
    for (const Task& task : step.tasks) {
      const auto pieces = cut.find(task.*buffer);
      if (pieces == cut.end()) {
        tasks.push_back(task);
        continue;
      }
      for (const Piece& piece : pieces->second) {
        Task part = task;
        part.*buffer = piece.buffer;
        if (cut_to(piece.rows, &part)) tasks.push_back(part);
      }
    }
    step.tasks = std::move(tasks);
  }
}

bool CutRows(Interval rows, int64_t* begin, int64_t* end) {
  *begin = std::max(*begin, rows.begin);
  *end = std::min(*end, rows.end);
  return *begin < *end;
}

}  // namespace

RankSchedule SplitSentKeys(const RankSchedule& schedule, const ScheduleRequest& request,
                           int64_t least_rows) {
  RankSchedule result = schedule;
  PiecesOf cut;
  for (const auto& [buffer, sent] : PartlySent(schedule)) {
    const Block& block = schedule.buffers[buffer];
    const Interval rows{block.row_begin, block.row_end};
    const std::vector<Interval> pieces = CutAtSent(sent, rows);
    const bool few = static_cast<int64_t>(pieces.size()) <= kMostPieces;
    const int64_t rest = rows.length() - RowsOf(sent);
    if (!few || rest < least_rows || !SavesHalf(RowsOf(sent), rows.length())) continue;
    cut[buffer] = CutBuffer(buffer, pieces, &result);
    AddPieces(cut[buffer], &result.inputs);
  }
  if (cut.empty()) return result;
  const auto keys = [&](Interval rows, Task* task) {
    if (!CutRows(rows, &task->k_begin, &task->k_end)) return false;
    const Interval seeing = SeeingRows(*task, result, request);
    return CutRows(seeing, &task->q_begin, &task->q_end);
  };
  CutTasks(cut, &Task::kv, keys, &result);
  for (Step& step : result.steps) {
    for (Transfer& send : step.sends) {
      const auto pieces = cut.find(send.buffer);
      if (pieces == cut.end()) continue;
      for (const Piece& piece : pieces->second)
        if (piece.rows.begin <= send.row_begin && send.row_end <= piece.rows.end)
          send.buffer = piece.buffer;
    }
  }
  return result;
}

RankSchedule SplitStates(const RankSchedule& schedule, int64_t least_rows) {
  RankSchedule result = schedule;
  PiecesOf cut;
  std::vector<std::pair<int64_t, Op>> finishes;
  for (const FinishedState& one : FinishedStates(schedule)) {
    const Block& block = schedule.buffers[one.state];
    const int64_t rows = block.row_end - block.row_begin;
    const std::vector<Interval> pieces =
        PiecesOfTasks(schedule, one.state, std::max(least_rows, rows / kMostPieces));
    const std::vector<Interval> lives = LivesOf(schedule, one.state, pieces, one.step);
    if (!SavesHalf(MostRowsAlive(pieces, lives), rows)) continue;
    cut[one.state] = CutBuffer(one.state, pieces, &result);
    const std::vector<Piece> outs = CutBuffer(one.out, pieces, &result);
    AddPieces(outs, &result.outputs);
    std::vector<Op>& ops = result.steps[one.step].ops;
    ops.erase(std::remove_if(ops.begin(), ops.end(),
                             [&](const Op& op) { return op.source == one.state; }),
              ops.end());
    for (size_t i = 0; i < pieces.size(); ++i) {
      finishes.push_back(
          {lives[i].end, {Op::Kind::kFinish, cut[one.state][i].buffer, outs[i].buffer}});
    }
  }
  if (cut.empty()) return result;
  for (const auto& [step, op] : finishes) result.steps[step].ops.push_back(op);
  CutTasks(
      cut, &Task::out_q,
      [](Interval rows, Task* task) { return CutRows(rows, &task->q_begin, &task->q_end); },
      &result);
  return result;
}

}  // namespace annulus
