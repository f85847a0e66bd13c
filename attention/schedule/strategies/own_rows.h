#ifndef ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_OWN_ROWS_H_
#define ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_OWN_ROWS_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/schedule_writer.h"

namespace annulus {

// The buffers of a rank's own shards, all heads, in a schedule in which it computes its own
// queries, of a forward pass or of gradients.
class OwnRows {
 public:
  // Adds them to `writer`, for gradients with the deltas of own queries, in step 0. Both must
  // outlive this.
  OwnRows(const GroupView& group, int32_t rank, ScheduleWriter* writer);

  struct Queries {
    int32_t shard = 0;
    int32_t q = 0, state = 0, out = 0;  // Buffers.
    Interval rows;
  };
  struct Keys {
    int32_t shard = 0;
    int32_t buffer = 0;
    int32_t dkv = -1, out = -1;  // Of gradients.
    Interval rows;
  };
  const std::vector<Queries>& queries() const { return queries_; }
  const std::vector<Keys>& keys() const { return keys_; }
  // Those of an own shard; null when it has none.
  const Keys* KeysOf(int32_t shard) const;

  // All own queries against rows `rows` of a key buffer, in `step`; gradients of the keys go to
  // `dkv` (−1: there are none).
  void Attend(int32_t step, int32_t kv_buffer, Interval rows, int32_t dkv = -1);
  // All own queries against all own keys.
  void AttendOwn(int32_t step);
  // One finish for every output.
  void Finish(int32_t step);

 private:
  void AddQueries(const GroupView& group, int32_t shard, int64_t rows);
  void AddKeys(const GroupView& group, int32_t shard, int64_t rows);

  ScheduleWriter* writer_;
  std::vector<Queries> queries_;
  std::vector<Keys> keys_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_OWN_ROWS_H_
