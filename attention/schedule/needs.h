#ifndef ANNULUS_ATTENTION_SCHEDULE_NEEDS_H_
#define ANNULUS_ATTENTION_SCHEDULE_NEEDS_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/row_set.h"
#include "attention/schedule_data.h"

namespace annulus {

// Packed key rows that some row of `q_rows` (local rows of `map`) sees with query head `q_head`.
// Costs a few look-ups for masks whose visible intervals slide along, however many stripes there
// are.
RowSet VisibleKeys(const MaskMap& mask, int32_t q_head, const RowMap& map, Interval q_rows);

// Who needs which key rows: one visible set for each rank, from which every (rank, shard) need
// follows with a few look-ups, so that a rank's schedule never builds the whole Θ(W²) table.
class Needs {
 public:
  static constexpr int64_t kMaxIntervals = 64;

  explicit Needs(const ScheduleRequest& request);

  // Packed key rows that some query row of `rank`, with some head, sees.
  const RowSet& Visible(int32_t rank) const { return visible_[rank]; }
  // Local rows of a shard's keys that hold `keys` (packed rows), rounded out to the plan's granule,
  // and to 1/kMaxIntervals of the shard where some rank sees more than kMaxIntervals intervals of
  // keys (documents cut in a thousand places): a bounded number of transfers is worth some rows
  // nobody asked for. Rounding on a fixed grid keeps subsets subsets, on which a ring depends.
  RowSet Local(int32_t shard, const RowSet& keys) const;
  RowSet Of(int32_t rank, int32_t shard) const { return Local(shard, visible_[rank]); }
  // Whether any row of any rank sees a key.
  bool any() const { return any_; }
  // Shards in increasing order.
  const std::vector<int32_t>& ShardsOf(int32_t rank) const { return shards_of_[rank]; }

 private:
  const ShardPlan& plan_;
  std::vector<RowSet> visible_;
  std::vector<std::vector<int32_t>> shards_of_;
  bool any_ = false;
  bool coarse_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_NEEDS_H_
