#include "attention/schedule/model/rectangles.h"

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "attention/schedule/model/needs.h"

namespace annulus {
namespace {

// If a query piece sees more intervals than this in a key block, their hull is used; kernels find
// the gaps themselves.
constexpr size_t kMaxKeyIntervals = 4;

// Joins neighbours until at most `limit` pieces of about equal rows are left.
std::vector<int64_t> Thin(const std::vector<int64_t>& ends, int64_t begin, int64_t limit) {
  if (static_cast<int64_t>(ends.size()) <= limit) return ends;
  const int64_t rows = ends.back() - begin;
  std::vector<int64_t> kept;
  for (const int64_t end : ends) {
    const int64_t wanted = rows * (static_cast<int64_t>(kept.size()) + 1) / limit;
    if (end - begin >= wanted || end == ends.back()) kept.push_back(end);
  }
  return kept;
}

// Ends of the pieces of local rows `rows`: at the ends of sequences and between plain ranges.
std::vector<int64_t> PieceEnds(const RowMap& map, Interval rows,
                               absl::FunctionRef<int64_t(int64_t)> sequence_of,
                               absl::FunctionRef<int64_t(int64_t)> begin_of) {
  std::vector<int64_t> ends = {rows.end};
  const auto add = [&](int64_t end) {
    if (end > rows.begin && end < rows.end) ends.push_back(end);
  };
  int64_t origin = 0;
  const std::vector<RowRange>& ranges = map.ranges();
  for (size_t i = 0; i + 1 < ranges.size(); ++i) {
    origin += ranges[i].block * ranges[i].count;
    if (ranges[i].count == 1 && ranges[i + 1].count == 1) add(origin);
  }
  const int64_t last = sequence_of(map.Global(rows.end - 1));
  for (int64_t s = sequence_of(map.Global(rows.begin)) + 1; s <= last; ++s) {
    add(map.LowerBound(begin_of(s)));
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return Thin(ends, rows.begin, QueryPieces::kMaxPieces);
}

}  // namespace

QueryPieces::QueryPieces(const MaskMap& mask, const RowMap& q_rows, int64_t fold_tile)
    : mask_(mask), q_rows_(q_rows), fold_tile_(fold_tile) {
  if (q_rows.rows() == 0) return;
  const std::vector<int64_t> ends = PieceEnds(
      q_rows, {0, q_rows.rows()}, [&](int64_t row) { return mask.SequenceOfQuery(row); },
      [&](int64_t sequence) { return mask.QueryBegin(sequence); });
  // [class][piece]; runs of heads share classes.
  std::vector<std::vector<RowSet>> visible(mask.classes());
  for (int32_t c = 0; c < mask.classes(); ++c) {
    int64_t begin = 0;
    for (const int64_t end : ends) {
      visible[c].push_back(VisibleKeys(mask, mask.HeadOfClass(c), q_rows, {begin, end}));
      begin = end;
    }
  }
  for (const MaskMap::HeadRun& run : mask.head_runs()) {
    int64_t begin = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      Piece piece{{begin, ends[i]}, {}, &run};
      for (const int32_t head : run.heads) {
        piece.visible = Union(piece.visible, visible[mask.ClassOf(head)][i]);
      }
      pieces_.push_back(std::move(piece));
      begin = ends[i];
    }
  }
}

std::vector<int64_t> QueryPieces::KeyEnds(const RowMap& k_rows, Interval keys) const {
  std::vector<int64_t> ends = PieceEnds(
      k_rows, keys, [&](int64_t row) { return mask_.SequenceOfKey(row); },
      [&](int64_t sequence) { return mask_.KeyBegin(sequence); });
  if (fold_tile_ == 0) return ends;
  k_rows.ForEachRun(keys,
                    [&](int64_t local, int64_t, int64_t count) { ends.push_back(local + count); });
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

Interval QueryPieces::Rounded(Interval local, Interval keys) const {
  if (fold_tile_ == 0 || local.length() == 0) return local;
  const int64_t end = (local.end + fold_tile_ - 1) / fold_tile_ * fold_tile_;
  return Intersect({local.begin / fold_tile_ * fold_tile_, end}, keys);
}

std::vector<Rectangle> QueryPieces::Against(const RowMap& k_rows, Interval keys) const {
  std::vector<Rectangle> rectangles;
  if (keys.length() == 0) return rectangles;
  const std::vector<int64_t> ends = KeyEnds(k_rows, keys);
  for (const Piece& piece : pieces_) {
    std::vector<Interval> local;
    for (const Interval& seen : Clip(piece.visible, k_rows.Hull(keys))) {
      local.push_back(Rounded(Intersect(k_rows.Local(seen), keys), keys));
    }
    RowSet seen = MakeRowSet(std::move(local));
    if (seen.size() > kMaxKeyIntervals)
      seen = RowSet{Interval{seen.front().begin, seen.back().end}};
    for (const Interval& interval : seen) {
      auto end = std::upper_bound(ends.begin(), ends.end(), interval.begin);
      for (Interval rest = interval; rest.length() > 0; ++end) {
        const Interval part{rest.begin, std::min(rest.end, *end)};
        AddRectangle(piece, k_rows, part, &rectangles);
        rest.begin = part.end;
      }
    }
  }
  return rectangles;
}

void QueryPieces::AddRectangle(const Piece& piece, const RowMap& k_rows, Interval keys,
                               std::vector<Rectangle>* out) const {
  const Interval packed_keys = k_rows.Hull(keys);
  const Interval q = TrimQueries(piece, packed_keys);
  if (q.length() == 0) return;
  const std::vector<int32_t>& heads = piece.heads->heads;
  const bool full = std::all_of(heads.begin(), heads.end(), [&](int32_t head) {
    return mask_.Classify(head, q_rows_.Hull(q), packed_keys) == Coverage::kFull;
  });
  out->push_back(
      {q, keys, piece.heads->begin, piece.heads->end, full ? Coverage::kFull : Coverage::kPartial});
}

Interval QueryPieces::TrimQueries(const Piece& piece, Interval packed_keys) const {
  const std::vector<int32_t>& heads = piece.heads->heads;
  const auto sees = [&](Interval local) {
    return std::any_of(heads.begin(), heads.end(), [&](int32_t head) {
      return mask_.SeesAny(head, q_rows_.Hull(local), packed_keys);
    });
  };
  return TrimTo(sees, piece.rows);
}

const std::vector<Rectangle>& RectangleTable::Of(int32_t q_shard, int32_t k_shard, Interval keys) {
  const auto [at, added] =
      made_.try_emplace({q_shard, k_shard, keys.begin, keys.end}, std::vector<Rectangle>());
  if (!added) return at->second;
  std::unique_ptr<QueryPieces>& pieces = pieces_[q_shard];
  if (pieces == nullptr) {
    pieces = std::make_unique<QueryPieces>(mask_, plan_.shards[q_shard].q_rows, fold_tile_);
  }
  at->second = pieces->Against(plan_.shards[k_shard].kv_rows, keys);
  return at->second;
}

}  // namespace annulus
