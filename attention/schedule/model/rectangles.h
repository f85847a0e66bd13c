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

// Local query rows × local key rows × query heads with at least one visible pair.
struct Rectangle {
  Interval q, k;
  int32_t head_begin = 0, head_end = 0;
  Coverage coverage = Coverage::kPartial;
};

// The queries of one shard, cut at the ends of sequences and of the shard's plain ranges, with the
// keys that each piece sees. Made once per shard and used for each key block. There are at most
// kMaxPieces pieces (longer lists are grouped), and stripes are never cut, so tasks stay few.
// Immutable.
class QueryPieces {
 public:
  static constexpr int64_t kMaxPieces = 64;

  // `mask` and `q_rows` must outlive this. `fold_tile` > 0 is for jobs that fold sums in a fixed
  // order. Then no rectangle cuts a tile of `fold_tile` keys except at a sequence's end, and the
  // keys of a rectangle are adjacent in the job. Tiles begin at local multiples, which are global
  // multiples.
  QueryPieces(const MaskMap& mask, const RowMap& q_rows, int64_t fold_tile = 0);

  // Rectangles that cover each visible pair of these queries and rows `keys` of a key shard exactly
  // once. Order: by run of heads (MaskMap::head_runs), then query row, then key row. Each is
  // trimmed to rows that see, or are seen, with some head of the run.
  std::vector<Rectangle> Against(const RowMap& k_rows, Interval keys) const;

 private:
  struct Piece {
    Interval rows;
    RowSet visible;  // Packed key rows.
    const MaskMap::HeadRun* heads = nullptr;
  };

  std::vector<int64_t> KeyEnds(const RowMap& k_rows, Interval keys) const;
  // Rounds `local` out to tiles if sums are folded.
  Interval Rounded(Interval local, Interval keys) const;
  void AddRectangle(const Piece& piece, const RowMap& k_rows, Interval keys,
                    std::vector<Rectangle>* out) const;
  Interval TrimQueries(const Piece& piece, Interval packed_keys) const;

  const MaskMap& mask_;
  const RowMap& q_rows_;
  const int64_t fold_tile_;
  std::vector<Piece> pieces_;
};

// The rectangles of query shards and blocks of key shards. Each is computed once: ranks that
// compute different heads of the same rows share them. Not thread-safe.
class RectangleTable {
 public:
  // `mask` and `plan` must outlive this.
  RectangleTable(const MaskMap& mask, const ShardPlan& plan, int64_t fold_tile = 0)
      : mask_(mask), plan_(plan), fold_tile_(fold_tile), pieces_(plan.shards.size()) {}

  // Rectangles of all queries of shard `q_shard` against rows `keys` of shard `k_shard`. Valid as
  // long as this table.
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
