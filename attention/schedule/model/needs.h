#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_NEEDS_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_NEEDS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "attention/schedule/model/row_set.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Packed key rows that some row of `q_rows` (local rows of `map`) sees with query head `q_head`.
// Costs a few look-ups for masks whose visible intervals slide along, however many stripes there
// are.
RowSet VisibleKeys(const MaskMap& mask, int32_t q_head, const RowMap& map, Interval q_rows);

// Packed query rows that hold all those which see some of the keys `k_rows` (local rows of `map`)
// with query head `q_head`. May hold others: rows between those, and whole sequences whose keys all
// lie there. Costs two searches for each run of keys.
RowSet SeeingQueries(const MaskMap& mask, int32_t q_head, const RowMap& map, Interval k_rows);

// Who needs which rows of the tensor that travels: one set for each rank, from which every (rank,
// shard) need follows with a few look-ups, when it is asked for. One thread at a time.
class Needs {
 public:
  static constexpr int64_t kMaxIntervals = 64;

  // `travels`: which rows a rank wants. Keys: those that some of its queries, with some head, see.
  // Queries: those that see some of its keys (SeeingQueries).
  explicit Needs(const ScheduleRequest& request, RowSpace travels = RowSpace::kKey);

  // Packed rows that `rank` wants, its own included.
  const RowSet& Wanted(int32_t rank) const { return wanted_[rank]; }
  // Local rows of a shard that hold those which `rank` wants, rounded out to the plan's granule,
  // and to 1/kMaxIntervals of the shard where some rank wants more than kMaxIntervals intervals
  // (documents cut in a thousand places): a bounded number of transfers is worth some rows nobody
  // asked for. Rounding on a fixed grid keeps subsets subsets, on which a ring depends. Worked out
  // once for each pair; the reference stays valid.
  const RowSet& Of(int32_t rank, int32_t shard) const;
  // What some of `ranks` want.
  RowSet OfAny(absl::Span<const int32_t> ranks, int32_t shard) const;
  // Whether any rank wants any row; where none does, no row sees a key.
  bool any() const { return any_; }
  // Shards in increasing order.
  const std::vector<int32_t>& ShardsOf(int32_t rank) const { return shards_of_[rank]; }

 private:
  void AddWanted(const ScheduleRequest& request, int32_t rank, const Shard& shard);
  RowSet Local(int32_t shard, const RowSet& wanted) const;

  const ShardPlan& plan_;
  const RowSpace travels_;
  std::vector<RowSet> wanted_;
  std::vector<std::vector<int32_t>> shards_of_;
  mutable std::vector<std::optional<RowSet>> local_;  // [rank][shard]
  bool any_ = false;
  bool coarse_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_NEEDS_H_
