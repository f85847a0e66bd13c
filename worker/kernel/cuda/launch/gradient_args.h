#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_GRADIENT_ARGS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_GRADIENT_ARGS_H_

#include "worker/kernel/cuda/launch/forward_args.h"

namespace annulus::cuda {

// What the host tells the device of a call of gradients, beside what it tells of attention.

// Which accumulators a block of threads owns. It goes through all that adds to them, so that no two
// blocks of a launch write to one address, and sums have one order.
enum class GradientSide : int32_t {
  kQueries,        // dQ, and dBias: a tile of query slots goes through keys.
  kKeysAndValues,  // dK and dV: a tile of keys goes through query slots.
  kKeys,           // dK alone, and dV alone, where registers hold one of them.
  kValues,
};

struct GradientKind {
  ForwardKind forward;
  GradientSide side = GradientSide::kQueries;
};

inline constexpr int kTileKeys = 64;     // Of a tile of keys.
static_assert(kTileKeys == kTileSlots);  // A tile of either has the warps' rows.

// What a task has beside its ForwardTask, whose `out` is not used. Addresses of absent outputs are
// null.
struct GradientTask {
  BlockAt d_q, d_kv, d_bias;
  // In a row of q. The rest of the LSE: −1 where there is none.
  int64_t d_out_offset, lse_offset, lse_rest_offset, delta_offset;
  int64_t d_value_offset;  // In a row of d_kv.
  // Entry of GradientArgs::hulls for the chunk of row q_begin: the keys between the first and the
  // last that some row of the chunk sees. −1: every row sees every key of the task.
  int32_t hull_at;
  bool d_out_whole;
  int32_t map_row;  // Of the kernel for sm_90a: the row, or key, at which the task's maps begin.
};

// Blocks of threads from `first_block` on, `heads` times `tiles` of them: those of tile
// first_tile + i · tile_step and key/value head head_begin + h in block i · heads + h, which bring
// their accumulators up to date with the tasks that units[unit_begin … unit_end) name, in order.
struct GradientGroup {
  int32_t first_block, heads, head_begin, first_tile, tile_step, unit_begin, unit_end;
};

struct GradientArgs {
  ForwardArgs forward;
  // Offsets from the tables: GradientTask, of each ForwardTask; KeySpan32; int32; GradientGroup.
  int64_t tasks, hulls, units, groups;
  int32_t group_count;
  float kept;  // What dropout multiplies weights by that it keeps.
  bool d_bias;
  bool d_bias_per_head;  // Else head 0 stands for all.
  int64_t d_bias_bytes;  // Of one head of a row.
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_GRADIENT_ARGS_H_
