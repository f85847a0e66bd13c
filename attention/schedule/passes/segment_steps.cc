#include "attention/schedule/passes/segment_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/schedule/model/plan_memo.h"
#include "attention/schedule/passes/split_buffers.h"
#include "attention/schedule/passes/task_pairs.h"

namespace annulus {
namespace {

// Keys are cut at multiples of kTiles, a common multiple of every kernel's key tile (16 to 256, and
// 96). Rows are cut at multiples of kRowTile.
constexpr int64_t kTiles = 768;
constexpr int64_t kRowTile = 96;
constexpr int64_t kLeastSide = 4096;

struct Piece {
  Task task;
  int64_t pairs = 0;
};

// Cuts [begin, end) into equal pieces of about `side`. Otherwise a thin piece might remain.
std::vector<Interval> EvenPieces(int64_t begin, int64_t end, int64_t side) {
  const int64_t count = std::max<int64_t>(1, (end - begin + side / 2) / side);
  std::vector<Interval> pieces;
  for (int64_t i = 1, at = begin; i <= count; ++i) {
    const int64_t until = i == count ? end : (begin + (end - begin) * i / count) / kTiles * kTiles;
    pieces.push_back({at, until});
    at = until;
  }
  return pieces;
}

class Squares {
 public:
  Squares(const TaskPairs& pairs, const MaskMap& mask) : pairs_(pairs), mask_(mask) {}

  // A kernel prepares the keys of a task for its rows, and loads and stores the state of these
  // rows. A part with many keys and few rows would spend most of its time on keys. So long tasks
  // are cut both ways, into squares with about a part's pairs.
  void Add(const Task& task, int64_t pairs, int64_t pairs_of_part, std::vector<Piece>* out) const {
    const int64_t heads = std::max(1, task.head_end - task.head_begin);
    const int64_t side = std::max(
        kLeastSide, static_cast<int64_t>(std::sqrt(static_cast<double>(pairs_of_part / heads))));
    if (!IsLong(task, heads, side)) return out->push_back({task, pairs});
    for (const Interval& rows : EvenPieces(task.q_begin, task.q_end, side)) {
      for (const Interval& keys : EvenPieces(task.k_begin, task.k_end, side)) {
        Task square = task;
        square.q_begin = rows.begin;
        square.q_end = rows.end;
        square.k_begin = keys.begin;
        square.k_end = keys.end;
        square.coverage = CoverageOf(square);
        if (square.coverage != Coverage::kEmpty) out->push_back({square, pairs_.Of(square)});
      }
    }
  }

 private:
  // Some tasks are left as they are:
  // - tasks that add to gradients of keys: their rows are cut by granules
  // - tasks of few rows: kernels do not prepare keys for them
  // - rows that see few keys, as in a window: their parts have few keys anyway
  // - heads with many masks: each mask would be evaluated for each square
  bool IsLong(const Task& task, int64_t heads, int64_t side) const {
    constexpr int32_t kMostClasses = 8;
    constexpr int64_t kFewRows = 128;
    const int64_t rows = task.q_end - task.q_begin;
    if (task.out_kv >= 0 || rows <= kFewRows || task.k_end - task.k_begin <= 2 * side) return false;
    return task.coverage == Coverage::kFull ||
           (mask_.classes() <= kMostClasses && pairs_.Visible(task) / heads / rows > 2 * side);
  }

  Coverage CoverageOf(const Task& task) const {
    if (task.coverage == Coverage::kFull) return Coverage::kFull;
    const Interval q = pairs_.q_rows(task).Hull({task.q_begin, task.q_end});
    const Interval k = pairs_.k_rows(task).Hull({task.k_begin, task.k_end});
    bool any = false, all = true;
    mask_.ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t) {
      const Coverage coverage = mask_.Classify(head, q, k);
      any = any || coverage != Coverage::kEmpty;
      all = all && coverage == Coverage::kFull;
    });
    return all ? Coverage::kFull : any ? Coverage::kPartial : Coverage::kEmpty;
  }

  const TaskPairs& pairs_;
  const MaskMap& mask_;
};

std::vector<Piece> PiecesOf(const std::vector<Task>& tasks, int64_t parts, const TaskPairs& pairs,
                            const MaskMap& mask) {
  std::vector<Piece> whole, pieces;
  int64_t total = 0;
  for (const Task& task : tasks) {
    whole.push_back({task, pairs.Of(task)});
    total += whole.back().pairs;
  }
  const Squares squares(pairs, mask);
  for (const Piece& piece : whole) squares.Add(piece.task, piece.pairs, total / parts, &pieces);
  return pieces;
}

// The row of the task at which a part with room for `room` more of its pairs ends. Rows before
// `first` are already dealt.
int64_t EndRow(const Piece& piece, int64_t room, int64_t first, const TaskPairs& pairs,
               int64_t granule) {
  const Task& task = piece.task;
  const int64_t rows = task.q_end - task.q_begin;
  int64_t end =
      task.q_begin + std::clamp<int64_t>(pairs.RowsWith(task, room, piece.pairs), 0, rows);
  if (task.out_kv >= 0) {
    end = end / granule * granule;
  } else if (end - first >= kLeastSide) {
    end = end / kRowTile * kRowTile;
  }
  return std::max(first, end);
}

}  // namespace

std::vector<std::vector<Task>> SplitTasks(const std::vector<Task>& tasks, int64_t parts,
                                          const RankSchedule& schedule,
                                          const ScheduleRequest& request) {
  const TaskPairs pairs(schedule, request);
  const std::vector<Piece> pieces = PiecesOf(tasks, parts, pairs, *request.mask);
  __int128 total = 0, before = 0;
  for (const Piece& piece : pieces) total += piece.pairs;
  std::vector<std::vector<Task>> dealt(parts);
  int64_t part = 0;
  for (const Piece& piece : pieces) {
    for (int64_t first = piece.task.q_begin; first < piece.task.q_end;) {
      const __int128 room = total * (part + 1) / parts - before;
      const bool fits = part + 1 == parts || room >= piece.pairs;
      Task cut = piece.task;
      cut.q_begin = first;
      cut.q_end = first =
          fits ? piece.task.q_end
               : EndRow(piece, static_cast<int64_t>(room), first, pairs, request.plan->granule);
      if (cut.q_begin < cut.q_end) dealt[part].push_back(cut);
      if (!fits) ++part;
    }
    before += piece.pairs;
  }
  return dealt;
}

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
