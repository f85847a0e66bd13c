#ifndef ANNULUS_ATTENTION_SCHEDULE_RANK_BUILDER_H_
#define ANNULUS_ATTENTION_SCHEDULE_RANK_BUILDER_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/rectangles.h"
#include "attention/schedule_data.h"

namespace annulus {

// Writes one rank's forward schedule in which own queries stay: owns the buffers of the rank's
// shards, cuts tasks, and ends with one finish for every output. A strategy says what moves when.
class RankBuilder {
 public:
  // `shards`: those owned by the rank. All of `request` must outlive this.
  RankBuilder(const ScheduleRequest& request, const std::vector<int32_t>& shards, int32_t steps);

  // A buffer for rows of a shard's keys and values, all heads.
  int32_t AddKeys(int32_t shard, Interval rows);
  // The input buffer of an own shard's keys; -1 when it has none.
  int32_t OwnKeys(int32_t shard) const;

  // All queries of the rank against rows `rows` of a key buffer, in `step`.
  void Attend(int32_t step, int32_t kv_buffer, Interval rows);
  // All queries of the rank against all its own keys.
  void AttendOwn(int32_t step);

  void Send(int32_t step, int32_t buffer, Interval rows, int32_t peer);
  void Receive(int32_t step, int32_t buffer, Interval rows, int32_t peer);

  // Adds the finish ops, after the last tasks, and gives the schedule away.
  RankSchedule Build();

 private:
  // One own shard with queries.
  struct Queries {
    int32_t q = 0, partial = 0, out = 0;  // Buffers.
    QueryPieces pieces;
  };
  struct OwnedKeys {
    int32_t shard = 0;
    int32_t buffer = 0;
    int64_t rows = 0;
  };

  int32_t AddBuffer(const Block& block);
  void AddQueries(int32_t shard);

  const ScheduleRequest& request_;
  RankSchedule schedule_;
  std::vector<Queries> queries_;
  std::vector<OwnedKeys> own_keys_;
  int32_t last_task_step_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_RANK_BUILDER_H_
