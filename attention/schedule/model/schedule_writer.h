#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_SCHEDULE_WRITER_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_SCHEDULE_WRITER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "attention/schedule/model/group_view.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Writes the schedule of one rank entry by entry: numbers its buffers and cuts its tasks. `group`
// must outlive this. Not thread-safe.
class ScheduleWriter {
 public:
  ScheduleWriter(const GroupView& group, int32_t steps);
  // Continues the schedule `begun`.
  ScheduleWriter(const GroupView& group, RankSchedule begun);

  int32_t AddBuffer(const Block& block);
  int32_t AddInput(const Block& block);
  int32_t AddOutput(const Block& block);
  // Adds own queries as an input. For gradients it also adds the outputs of the forward pass as an
  // input, from which kDelta makes the deltas in step 0. If there are sinks, it adds an output for
  // their gradients, too. Returns the buffer of the queries.
  int32_t AddOwnQueries(int32_t shard, Interval rows, Interval heads);
  const Block& block(int32_t buffer) const { return schedule_.buffers[buffer]; }

  // Adds a transfer of `rows` of `buffer` to or from `peer` to a step.
  void Send(int32_t step, int32_t buffer, Interval rows, int32_t peer);
  void Receive(int32_t step, int32_t buffer, Interval rows, int32_t peer);
  // Sends behind all transfers of the step that Send has written.
  void SendHome(int32_t step, int32_t buffer, Interval rows, int32_t peer);
  // Returns the buffer that travels for `state`, an accumulator that is complete after the tasks of
  // `step`. It is `state` itself, unless partials travel in bf16. Then it is a new buffer into
  // which `state` is rounded at the end of `step`.
  int32_t AddTraveller(int32_t step, int32_t state);
  // Receives `rows` of the accumulator `target` in the form in which they travel, and joins them to
  // `target` at the end of the step.
  void ReceiveInto(int32_t step, int32_t target, Interval rows, int32_t peer);

  // Query rows `q_rows` of buffer `q` × key rows `k_rows` of buffer `kv`, accumulated into `out_q`
  // and `out_kv` (-1: none), for the heads that all of these blocks share.
  struct Work {
    int32_t q = 0, kv = 0, out_q = 0;
    Interval q_rows, k_rows;
    int32_t out_kv = -1;
  };
  void Attend(int32_t step, const Work& work);

  void Apply(int32_t step, Op::Kind kind, int32_t source, int32_t target);

  int32_t steps() const { return static_cast<int32_t>(schedule_.steps.size()); }
  int32_t last_task_step() const { return last_task_step_; }

  // Returns the schedule. Call it once, at the end.
  RankSchedule Take();

 private:
  // The kind in which an accumulator of `kind` travels.
  BlockKind TravellerOf(BlockKind kind) const;

  const GroupView& group_;
  RankSchedule schedule_;
  std::vector<std::pair<int32_t, Transfer>> homeward_;  // By step.
  int32_t last_task_step_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_SCHEDULE_WRITER_H_
