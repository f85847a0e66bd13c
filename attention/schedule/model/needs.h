#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_NEEDS_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_NEEDS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "attention/schedule/model/row_set.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Packed key rows that at least one of `q_rows` (local rows of `map`) sees with query head
// `q_head`. If visible intervals slide along with the rows, it costs a few look-ups, whatever the
// number of stripes.
RowSet VisibleKeys(const MaskMap& mask, int32_t q_head, const RowMap& map, Interval q_rows);

// A superset of the packed query rows that see at least one of the keys `k_rows` (local rows of
// `map`) with query head `q_head`. It may also hold rows between those, and all rows of a sequence
// whose keys all lie in `k_rows`. Costs two searches for each run of keys.
RowSet SeeingQueries(const MaskMap& mask, int32_t q_head, const RowMap& map, Interval k_rows);

// The rows of the travelling tensor that each rank needs. Stores one set for each rank and derives
// each (rank, shard) set with a few look-ups when it is first requested. Not thread-safe, not even
// for concurrent reads.
class Needs {
 public:
  static constexpr int64_t kMaxIntervals = 64;

  // `travels` selects the rows that a rank needs. kKey: the key rows that at least one of its
  // queries sees with some head. kQuery: the query rows that see its keys (SeeingQueries). The plan
  // must outlive this.
  explicit Needs(const ScheduleRequest& request, RowSpace travels = RowSpace::kKey);

  // Packed rows that `rank` needs, including its own.
  const RowSet& Wanted(int32_t rank) const { return wanted_[rank]; }
  // Local rows of a shard that `rank` needs, rounded out to the plan's granule. If some rank needs
  // more than kMaxIntervals intervals (many short documents, for example), all sets are rounded out
  // to 1/kMaxIntervals of the shard. This bounds the number of transfers at the price of some rows
  // that are not needed. If one rank needs a subset of what another needs, that holds after
  // rounding too, because all sets are rounded to the same grid. Rings rely on it: a stop must hold
  // all rows that later stops need. Computed once for each pair; the reference stays valid.
  const RowSet& Of(int32_t rank, int32_t shard) const;
  // Local rows of a shard that at least one of `ranks` needs.
  RowSet OfAny(absl::Span<const int32_t> ranks, int32_t shard) const;
  // True if some rank needs some row. If false, no row sees a key.
  bool any() const { return any_; }
  // The shards of a rank, in increasing order.
  const std::vector<int32_t>& ShardsOf(int32_t rank) const { return shards_of_[rank]; }

 private:
  void AddWanted(const ScheduleRequest& request, int32_t rank, const Shard& shard);
  RowSet Local(int32_t shard, const RowSet& wanted) const;

  const ShardPlan& plan_;
  const RowSpace travels_;
  std::vector<RowSet> wanted_;
  std::vector<std::vector<int32_t>> shards_of_;
  mutable std::vector<std::optional<RowSet>> local_;  // [rank][shard].
  bool any_ = false;
  bool coarse_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_NEEDS_H_
