#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_SCHEDULE_WRITER_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_SCHEDULE_WRITER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "attention/schedule/model/group_view.h"
#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// Writes one rank's schedule entry by entry: numbers its buffers and cuts its tasks.
class ScheduleWriter {
 public:
  ScheduleWriter(const GroupView& group, int32_t steps);
  // Goes on with `begun`.
  ScheduleWriter(const GroupView& group, RankSchedule begun);

  int32_t AddBuffer(const Block& block);
  int32_t AddInput(const Block& block);
  int32_t AddOutput(const Block& block);
  // Own queries as an input. For gradients also the outputs of the forward pass, which give their
  // deltas in step 0, and with these, where there are sinks, an output of what those get of them.
  int32_t AddOwnQueries(int32_t shard, Interval rows, Interval heads);
  const Block& block(int32_t buffer) const { return schedule_.buffers[buffer]; }

  void Send(int32_t step, int32_t buffer, Interval rows, int32_t peer);
  void Receive(int32_t step, int32_t buffer, Interval rows, int32_t peer);
  // A send after all those of its step that Send writes.
  void SendHome(int32_t step, int32_t buffer, Interval rows, int32_t peer);
  // What travels of `state`, an accumulator that is complete after the tasks of `step`: itself, or,
  // where partials travel in bf16, what it is rounded to at the end of that step.
  int32_t AddTraveller(int32_t step, int32_t state);
  // Receives rows of the accumulator `target`, as they travel, which are joined to it at the end of
  // the step.
  void ReceiveInto(int32_t step, int32_t target, Interval rows, int32_t peer);

  // Query rows `q_rows` of buffer `q` against key rows `k_rows` of buffer `kv`, into `out_q` and
  // `out_kv` (unless −1), for the heads that the blocks share.
  struct Work {
    int32_t q = 0, kv = 0, out_q = 0;
    Interval q_rows, k_rows;
    int32_t out_kv = -1;
  };
  void Attend(int32_t step, const Work& work);

  void Apply(int32_t step, Op::Kind kind, int32_t source, int32_t target);

  int32_t steps() const { return static_cast<int32_t>(schedule_.steps.size()); }
  int32_t last_task_step() const { return last_task_step_; }

  // Gives the schedule away.
  RankSchedule Take();

 private:
  // As what an accumulator of a kind travels.
  BlockKind TravellerOf(BlockKind kind) const;

  const GroupView& group_;
  RankSchedule schedule_;
  std::vector<std::pair<int32_t, Transfer>> homeward_;  // By step.
  int32_t last_task_step_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_SCHEDULE_WRITER_H_
