#ifndef ANNULUS_ATTENTION_SCHEDULE_GRADIENT_ROWS_H_
#define ANNULUS_ATTENTION_SCHEDULE_GRADIENT_ROWS_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/schedule_writer.h"

namespace annulus {

// The buffers of a rank's own shards, all heads, in a schedule of gradients in which queries and
// keys are whole: OwnRows for the backward pass.
class GradientRows {
 public:
  // Adds them to `writer`. Both must outlive this.
  GradientRows(const GroupView& group, int32_t rank, ScheduleWriter* writer);

  struct Queries {
    int32_t shard = 0;
    int32_t q = 0, forward = 0, dq = 0, out = 0;  // Buffers; forward: output and LSE.
    Interval rows;
  };
  struct Keys {
    int32_t shard = 0;
    int32_t buffer = 0, dkv = 0, out = 0;
    Interval rows;
  };
  const std::vector<Queries>& queries() const { return queries_; }
  const std::vector<Keys>& keys() const { return keys_; }

  // Deltas of all own queries; they may be used and sent from the next step on.
  void Begin(int32_t step);
  // All own queries against rows `rows` of a key buffer, whose gradients go to `dkv`.
  void Attend(int32_t step, int32_t kv_buffer, Interval rows, int32_t dkv);
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

#endif  // ANNULUS_ATTENTION_SCHEDULE_GRADIENT_ROWS_H_
