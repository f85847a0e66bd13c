#ifndef ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_OWN_ROWS_H_
#define ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_OWN_ROWS_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/schedule_writer.h"

namespace annulus {

// The buffers of a rank's own shards with all heads, for schedules in which a rank computes its own
// queries. For forward passes and gradients.
class OwnRows {
 public:
  // Adds the buffers to `writer` and, for gradients, the deltas of own queries in step 0. `writer`
  // must outlive this.
  OwnRows(const GroupView& group, int32_t rank, ScheduleWriter* writer);

  struct Queries {
    int32_t shard = 0;
    int32_t q = 0, state = 0, out = 0;  // Buffer numbers: queries, accumulator, output.
    Interval rows;
  };
  struct Keys {
    int32_t shard = 0;
    int32_t buffer = 0;
    int32_t dkv = -1, out = -1;  // For gradients: the accumulator and the output; -1 otherwise.
    Interval rows;
  };
  const std::vector<Queries>& queries() const { return queries_; }
  const std::vector<Keys>& keys() const { return keys_; }
  // The keys of an own shard; nullptr if it has none. Valid as long as this.
  const Keys* KeysOf(int32_t shard) const;

  // Adds tasks of all own queries against rows `rows` of a key buffer, in `step`. Gradients of the
  // keys go to `dkv` (-1: none).
  void Attend(int32_t step, int32_t kv_buffer, Interval rows, int32_t dkv = -1);
  // Adds tasks of all own queries against all own keys.
  void AttendOwn(int32_t step);
  // Adds one kFinish for each output.
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
