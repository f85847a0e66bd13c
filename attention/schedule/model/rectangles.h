#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_RECTANGLES_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_RECTANGLES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/schedule/model/row_set.h"
#include "attention/sharding/row_map.h"
#include "attention/sharding/shard_plan.h"

namespace annulus {

// Local rows × local rows × query heads in which something is visible.
struct Rectangle {
  Interval q, k;
  int32_t head_begin = 0, head_end = 0;
  Coverage coverage = Coverage::kPartial;
};

// A shard's queries, cut where sequences and the shard's own runs end, with the keys that each
// piece sees: made once for a rank and asked for each key block. Pieces are at most kMaxPieces
// (longer lists are grouped), and stripes are never cut apart, so that tasks stay few.
class QueryPieces {
 public:
  static constexpr int64_t kMaxPieces = 64;

  // Both must outlive this. `fold_tile` > 0: sums are folded in a fixed order. Then no rectangle
  // cuts a tile of so many keys (from local multiples on, which are global ones) but where a
  // sequence ends, nor holds keys between which others lie.
  QueryPieces(const MaskMap& mask, const RowMap& q_rows, int64_t fold_tile = 0);

  // Rectangles that cover exactly once all visible pairs of these queries and rows `keys` of a key
  // shard; run of heads by run (MaskMap::head_runs), then by query row, then by key row. Trimmed to
  // rows that see or are seen with some head of the run.
  std::vector<Rectangle> Against(const RowMap& k_rows, Interval keys) const;

 private:
  struct Piece {
    Interval rows;
    RowSet visible;  // Packed key rows.
    const MaskMap::HeadRun* heads = nullptr;
  };

  std::vector<int64_t> KeyEnds(const RowMap& k_rows, Interval keys) const;
  // Rounded out to tiles where sums are folded.
  Interval Rounded(Interval local, Interval keys) const;
  void AddRectangle(const Piece& piece, const RowMap& k_rows, Interval keys,
                    std::vector<Rectangle>* out) const;
  Interval TrimQueries(const Piece& piece, Interval packed_keys) const;

  const MaskMap& mask_;
  const RowMap& q_rows_;
  const int64_t fold_tile_;
  std::vector<Piece> pieces_;
};

// The rectangles of query shards and blocks of key shards, each cut once: ranks that compute
// different heads of the same rows share them.
class RectangleTable {
 public:
  // Both must outlive this.
  RectangleTable(const MaskMap& mask, const ShardPlan& plan, int64_t fold_tile = 0)
      : mask_(mask), plan_(plan), fold_tile_(fold_tile), pieces_(plan.shards.size()) {}

  // All queries of shard `q_shard` against rows `keys` of shard `k_shard`. Valid as long as this.
  const std::vector<Rectangle>& Of(int32_t q_shard, int32_t k_shard, Interval keys);

 private:
  const MaskMap& mask_;
  const ShardPlan& plan_;
  const int64_t fold_tile_;
  std::vector<std::unique_ptr<QueryPieces>> pieces_;  // By query shard.
  std::map<std::tuple<int32_t, int32_t, int64_t, int64_t>, std::vector<Rectangle>> made_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_RECTANGLES_H_
