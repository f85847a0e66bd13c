#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_GRADIENT_ARGS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_GRADIENT_ARGS_H_

#include "worker/kernel/cuda/launch/forward_args.h"

namespace annulus::cuda {

// The data of a gradient call that the host passes to the device besides that of attention
// (forward_args.h).

// The accumulators that a thread block owns. The block goes through everything that adds to them.
// So no two blocks of a launch write to one address, and sums have one order.
enum class GradientSide : int32_t {
  kQueries,        // dQ and dBias: a tile of query slots goes through keys.
  kKeysAndValues,  // dK and dV: a tile of keys goes through query slots.
  kKeys,           // dK alone, and dV alone, if registers hold only one of them.
  kValues,
};

struct GradientKind {
  ForwardKind forward;
  GradientSide side = GradientSide::kQueries;
};

inline constexpr int kTileKeys = 64;     // Keys of a tile of keys.
static_assert(kTileKeys == kTileSlots);  // The warps' rows fit a tile of either.

// The data of a task besides its ForwardTask, whose `out` is not used. Addresses of absent outputs
// are null.
struct GradientTask {
  BlockAt d_q, d_kv, d_bias;
  // In a row of q. lse_rest_offset is −1 if there is none.
  int64_t d_out_offset, lse_offset, lse_rest_offset, delta_offset;
  int64_t d_value_offset;  // In a row of d_kv.
  // The index in GradientArgs::hulls for the chunk of row q_begin. An entry is the hull of the keys
  // that rows of the chunk see. −1: every row sees every key of the task.
  int32_t hull_at;
  bool d_out_whole;
  int32_t map_row;  // For the kernel for sm_90a: the row, or key, where the task's maps begin.
};

// heads × tiles thread blocks, from `first_block` on. Block i · heads + h has tile first_tile + i ·
// tile_step and key/value head head_begin + h. It adds the tasks that units[unit_begin … unit_end)
// name, in order, to its accumulators.
struct GradientGroup {
  int32_t first_block, heads, head_begin, first_tile, tile_step, unit_begin, unit_end;
};

struct GradientArgs {
  ForwardArgs forward;
  // Offsets from the tables: a GradientTask for each ForwardTask; KeySpan32; int32; GradientGroup.
  int64_t tasks, hulls, units, groups;
  int32_t group_count;
  float kept;  // The factor of weights that dropout keeps.
  bool d_bias;
  bool d_bias_per_head;  // If false, head 0 stands for all.
  int64_t d_bias_bytes;  // Bytes of one head of a row.
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_GRADIENT_ARGS_H_
