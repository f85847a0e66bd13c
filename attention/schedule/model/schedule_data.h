#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_SCHEDULE_DATA_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_SCHEDULE_DATA_H_

#include <cstdint>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/interval.h"
#include "attention/spec/spec.h"

namespace annulus {

// Strategies are data. A schedule says, for one rank and step by step, what to send, receive and
// compute; one loop (worker/executor) runs any of them. docs/explanation/architecture.md tells the
// model and its proofs.

enum class BlockKind : uint8_t {
  kQ,        // queries
  kKv,       // keys and values, interleaved per row
  kQGrad,    // q, dO, LSE, delta; as an input, the gradient into LSE (0: none) in place of delta
  kPartial,  // running state: unnormalised sum, max, sum of weights, fp32
  kBf16Partial,  // the same, as it travels with Execution.bf16_partials: its sum in bf16
  kDq,           // fp32 accumulators
  kDkv,
  kOut,    // output and LSE
  kDqOut,  // finished gradients
  kDkvOut,
  kDSinkOut,  // what each query row adds to the gradients of its heads' sinks
  kPairs,     // bias and bit mask of queries, against all keys of their sequences
  kDBias,     // fp32 accumulators of the gradient of a bias, of the same shape; outputs as they are
};

// Rows × heads of one shard, never empty. Rows are the shard's local rows; heads are query heads
// for kQ, kQGrad, partials, kDq, kOut, kDqOut, kDSinkOut, kPairs, kDBias and key/value heads for
// kKv, kDkv, kDkvOut. kPairs and kDBias that stand for all query heads are of head 0 alone.
struct Block {
  BlockKind kind = BlockKind::kQ;
  int32_t shard = 0;
  int64_t row_begin = 0, row_end = 0;
  int32_t head_begin = 0, head_end = 0;
  friend bool operator==(const Block& a, const Block& b) {
    return a.kind == b.kind && a.shard == b.shard && a.row_begin == b.row_begin &&
           a.row_end == b.row_end && a.head_begin == b.head_begin && a.head_end == b.head_end;
  }
};

// Rows [row_begin, row_end) (shard-local) of a buffer, to or from rank `peer`. Never empty, never
// to self. The n-th send from a to b in step k is the n-th receive from a in step k of b.
struct Transfer {
  int32_t buffer = 0;
  int64_t row_begin = 0, row_end = 0;
  int32_t peer = 0;
};

// Query rows [q_begin, q_end) × key rows [k_begin, k_end) (shard-local) × query heads [head_begin,
// head_end), accumulated into the buffers `out_q` (kPartial or kDq) and `out_kv` (kDkv); -1: none.
// Queries are kQ where `out_q` is kPartial, and kQGrad for gradients. `pairs`: their kPairs, where
// the job has any. `out_bias` (kDBias) goes with `out_q` where the job asks for that gradient.
struct Task {
  int32_t q = 0, kv = 0, out_q = -1, out_kv = -1, pairs = -1, out_bias = -1;
  int64_t q_begin = 0, q_end = 0, k_begin = 0, k_end = 0;
  int32_t head_begin = 0, head_end = 0;
  Coverage coverage = Coverage::kPartial;  // kFull: no mask work. Empty rectangles make no task.
  // Of rows of a kPartial: those that begin with the task, whatever `out_q` holds, and those that
  // end with it: their output goes to `out` (kOut), and what `out_q` holds of them means nothing
  // from then on. Builders leave them empty: attention/schedule/passes/row_ends.h.
  Interval begins, ends;
  int32_t out = -1;
};

// Acts on the intersection of the two blocks.
struct Op {
  enum class Kind : uint8_t { kMerge, kAdd, kFinish, kDelta, kSink, kRound };
  Kind kind = Kind::kMerge;
  // Buffers. kMerge: kPartial or kBf16Partial → kPartial. kAdd: kDq, kDkv or kDBias → the same.
  // kFinish: kPartial → kOut, kDq → kDqOut, kDkv → kDkvOut. kDelta: kOut → an input kQGrad, which
  // is complete from then on. kSink: complete kQGrad → kDSinkOut. kRound: kPartial → kBf16Partial.
  int32_t source = 0, target = 0;
};

// Transfers start together with the tasks of their step and end before its ops. Tasks touch only
// rows present when the step begins and no buffer in flight for writing; their list order is the
// order in which an accumulator row sees its keys.
struct Step {
  std::vector<Transfer> sends, receives;
  std::vector<Task> tasks;
  std::vector<Op> ops;
};

// One rank's part. Input buffers hold their block from the start, outputs live to the end;
// accumulators are born as the identity unless a receive or an op that overwrites its target comes
// first, or each row begins with a task (Task::begins). Memory is derived
// (attention/schedule/arena/arena_plan.h), so are message tags. An empty side of a shard has no
// buffers. All ranks of a group have the same number of steps, at least one.
struct RankSchedule {
  std::vector<Block> buffers;
  std::vector<int32_t> inputs, outputs;  // Buffer ids.
  std::vector<Step> steps;
};

class PlanMemo;  // attention/schedule/model/plan_memo.h

// What a schedule is made from. Pointers must outlive the call.
struct ScheduleRequest {
  const AttentionSpec* spec = nullptr;
  const MaskMap* mask = nullptr;
  const ShardPlan* plan = nullptr;
  Execution execution;  // Resolved: neither strategy nor degrees are left to the planner.
  // Shared by requests that differ in their execution alone; null: nothing is remembered.
  PlanMemo* memo = nullptr;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_SCHEDULE_DATA_H_
