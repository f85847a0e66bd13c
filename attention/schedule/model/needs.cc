#include "attention/schedule/model/needs.h"

#include <algorithm>
#include <utility>

namespace annulus {
namespace {

int64_t RoundUp(int64_t rows, int64_t granule) { return (rows + granule - 1) / granule * granule; }

void AddVisible(const MaskMap& mask, int32_t q_head, Interval packed, std::vector<Interval>* out) {
  const std::vector<Interval> keys = mask.VisibleToAny(q_head, packed);
  out->insert(out->end(), keys.begin(), keys.end());
}

// Adds the keys of blocks [first, last] of a range. If the keys of the two end blocks already hold
// all keys of the rows in between (other ranks' rows included), the inner blocks need no look-up.
// Causal masks stop at once. Narrow windows go down to single blocks, but then the result has as
// many intervals.
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

// Adds the keys of rows [rows.begin, rows.end) of `range`, counted from its first row: whole blocks
// in the middle, partial blocks at the ends.
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

// Rows of one sequence, from the first to the last that sees one of `keys`.
Interval SeeingInSequence(const MaskMap& mask, int32_t q_head, int64_t sequence, Interval keys) {
  const auto sees = [&](Interval rows) { return mask.SeesAny(q_head, rows, keys); };
  return TrimTo(sees, {mask.QueryBegin(sequence), mask.QueryBegin(sequence + 1)});
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

RowSet SeeingQueries(const MaskMap& mask, int32_t q_head, const RowMap& map, Interval k_rows) {
  std::vector<Interval> queries;
  int64_t origin = 0;
  for (const RowRange& range : map.ranges()) {
    const int64_t rows = range.block * range.count;
    const Interval inside = Intersect(k_rows, {origin, origin + rows});
    origin += rows;
    if (inside.length() == 0) continue;
    const Interval keys = map.Hull(inside);
    const int64_t first = mask.SequenceOfKey(keys.begin), last = mask.SequenceOfKey(keys.end - 1);
    queries.push_back(SeeingInSequence(mask, q_head, first, keys));
    if (first == last) continue;
    queries.push_back(SeeingInSequence(mask, q_head, last, keys));
    // The sequences in between have all their keys here.
    queries.push_back({mask.QueryBegin(first + 1), mask.QueryBegin(last)});
  }
  return MakeRowSet(std::move(queries));
}

Needs::Needs(const ScheduleRequest& request, RowSpace travels)
    : plan_(*request.plan),
      travels_(travels),
      wanted_(plan_.world_size),
      shards_of_(plan_.world_size),
      local_(plan_.world_size * plan_.shards.size()) {
  for (int32_t s = 0; s < static_cast<int32_t>(plan_.shards.size()); ++s) {
    const Shard& shard = plan_.shards[s];
    shards_of_[shard.owner].push_back(s);
    AddWanted(request, shard.owner, shard);
    any_ = any_ || !wanted_[shard.owner].empty();
  }
  coarse_ = std::any_of(wanted_.begin(), wanted_.end(), [](const RowSet& rows) {
    return static_cast<int64_t>(rows.size()) > kMaxIntervals;
  });
}

void Needs::AddWanted(const ScheduleRequest& request, int32_t rank, const Shard& shard) {
  for (int32_t c = 0; c < request.mask->classes(); ++c) {
    const int32_t head = request.mask->HeadOfClass(c);
    const RowSet rows =
        travels_ == RowSpace::kKey
            ? VisibleKeys(*request.mask, head, shard.q_rows, {0, shard.q_rows.rows()})
            : SeeingQueries(*request.mask, head, shard.kv_rows, {0, shard.kv_rows.rows()});
    wanted_[rank] = Union(wanted_[rank], rows);
  }
}

const RowSet& Needs::Of(int32_t rank, int32_t shard) const {
  std::optional<RowSet>& local = local_[rank * plan_.shards.size() + shard];
  if (!local.has_value()) local = Local(shard, wanted_[rank]);
  return *local;
}

RowSet Needs::OfAny(absl::Span<const int32_t> ranks, int32_t shard) const {
  if (ranks.size() == 1) return Of(ranks[0], shard);
  std::vector<Interval> rows;
  for (const int32_t rank : ranks) {
    const RowSet& own = Of(rank, shard);
    rows.insert(rows.end(), own.begin(), own.end());
  }
  return MakeRowSet(std::move(rows));
}

RowSet Needs::Local(int32_t shard, const RowSet& wanted) const {
  const RowMap& map = plan_.shards[shard].rows(travels_);
  const int64_t granule =
      coarse_ ? RoundUp(map.rows() / kMaxIntervals + 1, plan_.granule) : plan_.granule;
  std::vector<Interval> local;
  if (map.rows() == 0) return {};
  for (const Interval& interval : wanted) {
    Interval rows = map.Local(interval);
    if (rows.length() == 0) continue;
    rows.begin -= rows.begin % granule;
    rows.end = std::min(map.rows(), RoundUp(rows.end, granule));
    local.push_back(rows);
  }
  return MakeRowSet(std::move(local));
}

}  // namespace annulus
