#include "attention/schedule/needs.h"

#include <algorithm>
#include <utility>

namespace annulus {
namespace {

int64_t RoundUp(int64_t rows, int64_t granule) { return (rows + granule - 1) / granule * granule; }

void AddVisible(const MaskMap& mask, int32_t q_head, Interval packed, std::vector<Interval>* out) {
  const std::vector<Interval> keys = mask.VisibleToAny(q_head, packed);
  out->insert(out->end(), keys.begin(), keys.end());
}

// Blocks [first, last] of a range. When the keys of the two end blocks already hold all that the
// rows in between (other ranks' included) could add, the blocks inside need no look. Causal masks
// end at once; narrow windows go down to single blocks, where the result has as many intervals.
void AddBlocks(const MaskMap& mask, int32_t q_head, const RowRange& range, Interval blocks,
               std::vector<Interval>* out) {
  const auto rows_of = [&](int64_t block) {
    const int64_t begin = range.begin + block * range.stride;
    return Interval{begin, begin + range.block};
  };
  const Interval first = rows_of(blocks.begin), last = rows_of(blocks.end - 1);
  std::vector<Interval> ends;
  AddVisible(mask, q_head, first, &ends);
  AddVisible(mask, q_head, last, &ends);
  const RowSet found = MakeRowSet(std::move(ends));
  out->insert(out->end(), found.begin(), found.end());
  if (blocks.length() <= 2) return;
  const std::vector<Interval> hull = mask.VisibleToAny(q_head, {first.begin, last.end});
  if (std::equal(hull.begin(), hull.end(), found.begin(), found.end())) return;
  const int64_t middle = (blocks.begin + blocks.end) / 2;
  AddBlocks(mask, q_head, range, {blocks.begin, middle}, out);
  AddBlocks(mask, q_head, range, {middle, blocks.end}, out);
}

// Rows [rows.begin, rows.end) of `range`, counted from its first: whole blocks in the middle, cut
// ones at the ends.
void AddRange(const MaskMap& mask, int32_t q_head, const RowRange& range, Interval rows,
              std::vector<Interval>* out) {
  int64_t first = rows.begin / range.block, last = rows.end / range.block;
  const int64_t head = rows.begin % range.block, tail = rows.end % range.block;
  const auto start = [&](int64_t block) { return range.begin + block * range.stride; };
  if (first == last)
    return AddVisible(mask, q_head, {start(first) + head, start(first) + tail}, out);
  if (head != 0) {
    AddVisible(mask, q_head, {start(first) + head, start(first) + range.block}, out);
    ++first;
  }
  if (tail != 0) AddVisible(mask, q_head, {start(last), start(last) + tail}, out);
  if (first < last) AddBlocks(mask, q_head, range, {first, last}, out);
}

}  // namespace

RowSet VisibleKeys(const MaskMap& mask, int32_t q_head, const RowMap& map, Interval q_rows) {
  std::vector<Interval> keys;
  int64_t origin = 0;
  for (const RowRange& range : map.ranges()) {
    const int64_t rows = range.block * range.count;
    const Interval inside = Intersect({q_rows.begin - origin, q_rows.end - origin}, {0, rows});
    if (inside.length() > 0) AddRange(mask, q_head, range, inside, &keys);
    origin += rows;
  }
  return MakeRowSet(std::move(keys));
}

Needs::Needs(const ScheduleRequest& request)
    : plan_(*request.plan), visible_(plan_.world_size), shards_of_(plan_.world_size) {
  const std::vector<int32_t>& classes = request.mask->class_begin();
  for (int32_t s = 0; s < static_cast<int32_t>(plan_.shards.size()); ++s) {
    const Shard& shard = plan_.shards[s];
    shards_of_[shard.owner].push_back(s);
    for (size_t c = 0; c + 1 < classes.size(); ++c) {
      const RowSet keys =
          VisibleKeys(*request.mask, classes[c], shard.q_rows, {0, shard.q_rows.rows()});
      visible_[shard.owner] = Union(visible_[shard.owner], keys);
    }
    any_ = any_ || !visible_[shard.owner].empty();
  }
  coarse_ = std::any_of(visible_.begin(), visible_.end(), [](const RowSet& keys) {
    return static_cast<int64_t>(keys.size()) > kMaxIntervals;
  });
}

RowSet Needs::Local(int32_t shard, const RowSet& keys) const {
  const RowMap& map = plan_.shards[shard].kv_rows;
  const int64_t granule =
      coarse_ ? RoundUp(map.rows() / kMaxIntervals + 1, plan_.granule) : plan_.granule;
  std::vector<Interval> local;
  if (map.rows() == 0) return {};
  for (const Interval& interval : keys) {
    Interval rows = map.Local(interval);
    if (rows.length() == 0) continue;
    rows.begin -= rows.begin % granule;
    rows.end = std::min(map.rows(), RoundUp(rows.end, granule));
    local.push_back(rows);
  }
  return MakeRowSet(std::move(local));
}

}  // namespace annulus
