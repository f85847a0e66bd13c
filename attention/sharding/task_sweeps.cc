#include "attention/sharding/task_sweeps.h"

#include <algorithm>

#include "attention/sharding/task_rows.h"

namespace annulus {
namespace {

// With more bounds of key runs than this, each row is evaluated: such shards are mostly striped,
// and nearly every row would be a cut.
constexpr size_t kMostBounds = 32;

}  // namespace

class TaskSweeps::Maker {
 public:
  Maker(const RowMap& k_map, Interval k, TaskSweeps* to) : k_map_(k_map), k_(k), to_(*to) {
    k_map.ForEachRun(k, [&](int64_t, int64_t global, int64_t count) {
      bounds_.push_back(global);
      bounds_.push_back(global + count);
    });
  }

  // Adds `count` local rows from `row` on, which see `sweeps` in packed rows.
  void Add(int64_t row, int64_t count, const MovingIntervals& sweeps) {
    if (bounds_.size() > kMostBounds) {
      for (int64_t i = 0; i < count; ++i) AddRow(row + i, LocalOf(sweeps, i));
      return;
    }
    // An end reaches a bound in one row and passes it in the next. Between such rows, local ends
    // move as steadily as packed ones.
    cuts_ = {0, count};
    for (const Sweep& sweep : sweeps) {
      if (sweep.begin_step != 0) CutAtBounds(sweep.keys.begin, count);
      if (sweep.end_step != 0) CutAtBounds(sweep.keys.end, count);
    }
    std::sort(cuts_.begin(), cuts_.end());
    for (size_t c = 0; c + 1 < cuts_.size(); ++c)
      if (cuts_[c] < cuts_[c + 1]) AddSteady(row, {cuts_[c], cuts_[c + 1]}, sweeps);
  }

  void End(int64_t row) { to_.stretches_.push_back({row, to_.sweeps_.size()}); }

 private:
  void CutAtBounds(int64_t end, int64_t count) {
    for (const int64_t bound : bounds_) {
      const int64_t at = bound - end;
      if (at > 0 && at < count) cuts_.push_back(at);
      if (at >= 0 && at + 1 < count) cuts_.push_back(at + 1);
    }
  }

  const Intervals& LocalOf(const MovingIntervals& sweeps, int64_t i) {
    ++to_.asked_;
    local_.clear();
    for (const Sweep& sweep : sweeps)
      AppendLocal(Intersect(k_map_.Local(sweep.At(i)), k_), 0, &local_);
    return local_;
  }

  // The first row may end a stretch, the second may begin one, and the third fixes its steps.
  void AddSteady(int64_t row, Interval of, const MovingIntervals& sweeps) {
    for (int64_t i = of.begin; i < std::min(of.begin + 3, of.end); ++i)
      AddRow(row + i, LocalOf(sweeps, i));
    rows_ += std::max<int64_t>(0, of.length() - 3);
  }

  void AddRow(int64_t row, const Intervals& keys) {
    if (rows_ > 0 && GoesOn(keys)) {
      ++rows_;
      return;
    }
    End(row);
    for (const Interval& interval : keys) to_.sweeps_.push_back({interval, 0, 0});
    rows_ = 1;
  }

  // True if the last stretch continues with a row that sees `keys`.
  bool GoesOn(const Intervals& keys) {
    const size_t first = to_.stretches_.back().first;
    if (to_.sweeps_.size() - first != keys.size()) return false;
    Sweep* const sweeps = to_.sweeps_.data() + first;
    if (rows_ > 1) {
      for (size_t i = 0; i < keys.size(); ++i)
        if (!(sweeps[i].At(rows_) == keys[i])) return false;
      return true;
    }
    const auto is_step = [](int64_t step) { return step == 0 || step == 1; };
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!is_step(keys[i].begin - sweeps[i].keys.begin) ||
          !is_step(keys[i].end - sweeps[i].keys.end))
        return false;
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      sweeps[i].begin_step = keys[i].begin - sweeps[i].keys.begin;
      sweeps[i].end_step = keys[i].end - sweeps[i].keys.end;
    }
    return true;
  }

  const RowMap& k_map_;
  const Interval k_;
  TaskSweeps& to_;
  int64_t rows_ = 0;  // Rows of the last stretch.
  std::vector<int64_t> bounds_, cuts_;
  Intervals local_;
};

TaskSweeps::TaskSweeps(const MaskMap& mask, const RowMap& q_map, const RowMap& k_map, Interval q,
                       Interval k, int32_t q_head) {
  Maker maker(k_map, k, this);
  q_map.ForEachRun(q, [&](int64_t local, int64_t global, int64_t count) {
    mask.ForEachSweep(q_head, {global, global + count},
                      [&](Interval part, const MovingIntervals& sweeps) {
                        maker.Add(local + part.begin - global, part.length(), sweeps);
                      });
  });
  maker.End(q.end);
}

size_t TaskSweeps::StretchOf(int64_t row) const {
  const auto after =
      std::upper_bound(stretches_.begin(), stretches_.end(), row,
                       [](int64_t at, const Stretch& stretch) { return at < stretch.row; });
  return static_cast<size_t>(after - stretches_.begin()) - 1;
}

}  // namespace annulus
