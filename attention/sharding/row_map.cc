#include "attention/sharding/row_map.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace annulus {
namespace {

// The row after the range's last global row.
int64_t EndOf(const RowRange& range) {
  return range.begin + (range.count - 1) * range.stride + range.block;
}

}  // namespace

RowMap::RowMap(std::vector<RowRange> ranges) : ranges_(std::move(ranges)) {
  ranges_.erase(std::remove_if(ranges_.begin(), ranges_.end(),
                               [](const RowRange& range) { return range.count <= 0; }),
                ranges_.end());
  local_begin_.reserve(ranges_.size());
  for (size_t i = 0; i < ranges_.size(); ++i) {
    assert(ranges_[i].block > 0 && ranges_[i].stride >= ranges_[i].block);
    assert(i == 0 || EndOf(ranges_[i - 1]) <= ranges_[i].begin);
    local_begin_.push_back(rows_);
    rows_ += ranges_[i].count * ranges_[i].block;
  }
}

int64_t RowMap::Global(int64_t local) const {
  assert(local >= 0 && local < rows_);
  const auto after = std::upper_bound(local_begin_.begin(), local_begin_.end(), local);
  const size_t index = static_cast<size_t>(after - local_begin_.begin()) - 1;
  const RowRange& range = ranges_[index];
  const int64_t offset = local - local_begin_[index];
  return range.begin + offset / range.block * range.stride + offset % range.block;
}

int64_t RowMap::LowerBound(int64_t global) const {
  if (ranges_.size() == 1 && ranges_[0].count == 1)
    return std::clamp<int64_t>(global - ranges_[0].begin, 0, rows_);
  const auto found =
      std::partition_point(ranges_.begin(), ranges_.end(),
                           [&](const RowRange& range) { return EndOf(range) <= global; });
  if (found == ranges_.end()) return rows_;
  const int64_t before = local_begin_[static_cast<size_t>(found - ranges_.begin())];
  if (global <= found->begin) return before;
  const int64_t offset = global - found->begin;
  const int64_t within = std::min(offset % found->stride, found->block);
  return before + offset / found->stride * found->block + within;
}

void RowMap::ForEachRun(Interval local,
                        absl::FunctionRef<void(int64_t, int64_t, int64_t)> fn) const {
  const int64_t end = std::min(local.end, rows_);
  int64_t run_local = std::max<int64_t>(local.begin, 0);
  if (run_local >= end) return;
  int64_t run_global = Global(run_local), run_end = run_local;
  // The current run grows while the next block continues it.
  const auto upper = std::upper_bound(local_begin_.begin(), local_begin_.end(), run_local);
  for (size_t i = static_cast<size_t>(upper - local_begin_.begin()) - 1;
       i < ranges_.size() && run_end < end; ++i) {
    const RowRange& range = ranges_[i];
    for (int64_t block = (run_end - local_begin_[i]) / range.block;
         block < range.count && run_end < end; ++block) {
      const int64_t block_local = local_begin_[i] + block * range.block;
      const int64_t global = range.begin + block * range.stride + (run_end - block_local);
      if (global != run_global + (run_end - run_local)) {
        fn(run_local, run_global, run_end - run_local);
        run_local = run_end;
        run_global = global;
      }
      run_end = std::min(end, block_local + range.block);
    }
  }
  fn(run_local, run_global, run_end - run_local);
}

}  // namespace annulus
