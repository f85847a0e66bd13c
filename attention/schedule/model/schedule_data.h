#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_SCHEDULE_DATA_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_SCHEDULE_DATA_H_

#include <cstdint>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/interval.h"
#include "attention/spec/spec.h"

namespace annulus {

// Strategies are data. A schedule lists, for one rank and step by step, which rows to send, to
// receive and to compute. One loop (worker/executor) runs every schedule, so a new strategy needs
// no new code for kernels, communicators or memory.
//
// How a request becomes running steps:
//
// 1. MakeShardPlan (attention/sharding/shard_plan.h) assigns the job's rows to ranks.
// 2. MakeSchedule (attention/schedule/schedule.h) calls the builder of the strategy
//    (attention/schedule/strategies/builders.h). The builder writes one RankSchedule with
//    ScheduleWriter (attention/schedule/model/schedule_writer.h).
// 3. MakeSchedule then applies the passes that every builder needs: AddKeyPass, AttachScoreInputs,
//    AttachBiasGradient and FixOrder (attention/schedule/passes).
// 4. SplitSteps (attention/schedule/passes/segment_steps.h) cuts long steps into parts. WithRowEnds
//    (attention/schedule/passes/row_ends.h) lets tasks write finished rows.
// 5. PlanArena (attention/schedule/arena/arena_plan.h) derives the life of each buffer and places
//    the buffers in one arena of device memory.
// 6. PeerDigests (attention/schedule/model/digest.h) summarises what a rank sends and receives. The
//    coordinator starts a group only if the digests of all pairs match.
//
// A schedule has buffers, which are all blocks that the rank ever holds, and steps. A step runs as
//   start transfers → run tasks (one kernel call) → wait for transfers → apply ops
//
// Example: ring-pass-kv, forward, full mask, two ranks. Rank 0 has
//   buffers  0 kQ of shard 0 (input)     1 kPartial of shard 0    2 kKv of shard 0 (input)
//            3 kKv of shard 1            4 kOut of shard 0 (output)
//   step 0   send 2 to rank 1, receive 3 from rank 1; task: queries 0 × keys 2, into 1
//   step 1   task: queries 0 × keys 3, into 1; op: kFinish 1 → 4
// Rank 1 has the same with shards 0 and 1 swapped.
//
// Rules of the schedules of a group; tests/attention/checker proves them for every builder:
//
// - All ranks have the same number of steps, at least one.
// - The n-th send from a to b in step k and the n-th receive from a in step k of b have the same
//   kind, shard, rows and heads. Message tags follow from this order.
// - Tasks read only rows that are present when the step begins, and write no buffer in flight.
// - Each visible (query row, query head, key row) is attended exactly once.
//
// More: docs/explanation/architecture.md, "Strategies are data"; docs/explanation/strategies.md.

enum class BlockKind : uint8_t {
  kQ,            // Queries.
  kKv,           // Keys and values, interleaved per row.
  kQGrad,        // q, dO, LSE, delta. Inputs have the gradient of LSE (0: none) in place of delta.
  kPartial,      // Running state in fp32: unnormalised sum, max, sum of weights.
  kBf16Partial,  // kPartial as it travels with Execution.bf16_partials: its sum is bf16.
  kDq,           // Sums of gradients of queries, fp32.
  kDkv,          // Sums of gradients of keys and values, fp32.
  kOut,          // Output and LSE.
  kDqOut,        // Finished gradients of queries.
  kDkvOut,       // Finished gradients of keys and values.
  kDSinkOut,     // The gradient of the sinks of each query row's heads.
  kPairs,        // Bias, bit mask and LSE offset of queries, against all keys of their sequences.
  kDBias,        // Sums of the gradient of a bias, fp32, in the shape of the bias; also its output.
};

// Rows × heads of one shard; never empty. Rows are local rows of the shard. Heads are key/value
// heads for kKv, kDkv and kDkvOut, and query heads for all other kinds. kPairs and kDBias that
// apply to all query heads have head 0 only. BlockLayout (block_layout.h) defines the bytes.
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

// Shard-local rows [row_begin, row_end) of a buffer, to or from rank `peer`. Never empty, never to
// the rank itself.
struct Transfer {
  int32_t buffer = 0;
  int64_t row_begin = 0, row_end = 0;
  int32_t peer = 0;
};

// A tile of work: query rows [q_begin, q_end) × key rows [k_begin, k_end) (both shard-local) ×
// query heads [head_begin, head_end). Accumulates into the buffers `out_q` (kPartial or kDq) and
// `out_kv` (kDkv); -1: none.
//
// `q` is kQ for a forward pass and kQGrad for gradients. `pairs` is the kPairs of the queries, if
// the job has any. `out_bias` (kDBias) accompanies `out_q` if the job asks for the gradient of the
// bias.
struct Task {
  int32_t q = 0, kv = 0, out_q = -1, out_kv = -1, pairs = -1, out_bias = -1;
  int64_t q_begin = 0, q_end = 0, k_begin = 0, k_end = 0;
  int32_t head_begin = 0, head_end = 0;
  // kFull: no mask work is needed. An empty rectangle has no task.
  Coverage coverage = Coverage::kPartial;
  // For rows of a kPartial. `begins`: rows whose state begins with this task, whatever `out_q`
  // holds. `ends`: rows that end with it. Their output goes to `out` (kOut), and what `out_q` holds
  // for them is meaningless afterwards. Builders leave these empty; WithRowEnds sets them
  // (attention/schedule/passes/row_ends.h).
  Interval begins, ends;
  int32_t out = -1;
};

// An operation on whole blocks after the tasks of a step. Acts on the intersection of the two
// blocks.
struct Op {
  enum class Kind : uint8_t { kMerge, kAdd, kFinish, kDelta, kSink, kRound };
  Kind kind = Kind::kMerge;
  // Buffers. By kind:
  //   kMerge   kPartial or kBf16Partial → kPartial
  //   kAdd     kDq, kDkv or kDBias → the same kind
  //   kFinish  kPartial → kOut, kDq → kDqOut, kDkv → kDkvOut
  //   kDelta   kOut → an input kQGrad, which is complete afterwards
  //   kSink    complete kQGrad → kDSinkOut
  //   kRound   kPartial → kBf16Partial
  int32_t source = 0, target = 0;
};

// One step. Its transfers start together with its tasks and end before its ops. Tasks touch only
// rows that are present when the step begins, and no buffer in flight for writing. The order of
// tasks is the order in which an accumulator row sees its keys.
struct Step {
  std::vector<Transfer> sends, receives;
  std::vector<Task> tasks;
  std::vector<Op> ops;
};

// The schedule of one rank. Input buffers hold their block from the start; outputs live to the end.
// An accumulator starts as the identity, unless its first use is a receive or an op that overwrites
// it, or each of its rows begins with a task (Task::begins). PlanArena derives memory. An empty
// side of a shard has no buffers.
struct RankSchedule {
  std::vector<Block> buffers;
  std::vector<int32_t> inputs, outputs;  // Buffer numbers.
  std::vector<Step> steps;
};

class PlanMemo;  // attention/schedule/model/plan_memo.h

// The inputs of MakeSchedule. Pointers must outlive the call.
struct ScheduleRequest {
  const AttentionSpec* spec = nullptr;
  const MaskMap* mask = nullptr;
  const ShardPlan* plan = nullptr;
  Execution execution;  // Resolved: neither strategy nor degrees are open.
  // A cache that requests share if they differ only in `execution`; null: no cache.
  PlanMemo* memo = nullptr;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_SCHEDULE_DATA_H_
