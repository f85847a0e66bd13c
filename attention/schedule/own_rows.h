#ifndef ANNULUS_ATTENTION_SCHEDULE_OWN_ROWS_H_
#define ANNULUS_ATTENTION_SCHEDULE_OWN_ROWS_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/schedule_writer.h"

namespace annulus {

// The buffers of a rank's own shards, all heads, in a schedule in which it computes its own
// queries.
class OwnRows {
 public:
  // Adds them to `writer`. Both must outlive this.
  OwnRows(const GroupView& group, int32_t rank, ScheduleWriter* writer);

  struct Queries {
    int32_t shard = 0;
    int32_t q = 0, partial = 0, out = 0;  // Buffers.
    Interval rows;
  };
  struct Keys {
    int32_t shard = 0;
    int32_t buffer = 0;
    Interval rows;
  };
  const std::vector<Queries>& queries() const { return queries_; }
  const std::vector<Keys>& keys() const { return keys_; }
  // The buffer of an own shard's keys; -1 when it has none.
  int32_t KeysOf(int32_t shard) const;

  // All own queries against rows `rows` of a key buffer, in `step`.
  void Attend(int32_t step, int32_t kv_buffer, Interval rows);
  // All own queries against all own keys.
  void AttendOwn(int32_t step);
  // One finish for every output.
  void Finish(int32_t step);

 private:
  ScheduleWriter* writer_;
  std::vector<Queries> queries_;
  std::vector<Keys> keys_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_OWN_ROWS_H_
