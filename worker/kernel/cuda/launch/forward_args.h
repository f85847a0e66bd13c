#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_FORWARD_ARGS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_FORWARD_ARGS_H_

#include <cstddef>
#include <cstdint>

namespace annulus::cuda {

// The data that the host passes to the device: plain structs, the same on both sides. Rows are
// shard-local. Rows, keys and heads fit in 32 bits.

inline constexpr int kTileSlots = 64;  // Query slots of a tile (call_plan.h defines a slot).
inline constexpr int kThreads = 128;   // Threads of a block; each warp has 16 slots.
// Query rows of a chunk; chunks start at shard-local multiples.
inline constexpr int kChunkRows = 64;
inline constexpr int kMaxDim = 256;  // The largest dimension of queries and keys, and of values.

enum class Element : int32_t { kNone = 0, kFp32 = 1, kFp16 = 2, kBf16 = 3 };

// Keys [begin, end).
struct KeySpan32 {
  int32_t begin, end;
};

// A run of a shard's rows from `local` on: blocks of `block` packed rows, `stride` apart, the first
// at packed row `first`.
struct RowRun {
  int32_t local, first, block, stride;
};

// A block of a schedule in device memory. Head h of row r is at data + (r − row_begin) · row_bytes
// + (h − head_begin) · (bytes of a head), plus the offset of its section.
struct BlockAt {
  std::byte* data;
  int64_t row_bytes;
  int32_t row_begin, head_begin;
};

// A sequence that has query rows in the launch: its number, and the packed rows where its queries
// and its keys begin.
struct SequenceAt {
  int32_t q_begin, k_begin, number;
};

struct ForwardTask {
  BlockAt q, kv, out, pairs;
  int64_t value_offset;               // In a row of kv.
  int64_t max_offset, weight_offset;  // In a row of out.
  int64_t bits_offset, shift_offset;  // In a row of pairs: the bit mask, the offset of the LSE.
  int32_t q_begin, q_end, k_begin, k_end, head_begin, head_end;
  // The index in ForwardTables::classes of class 0: it says where the spans of row q_begin are. −1:
  // every row sees every key of the task.
  int32_t class_at;
  int32_t q_run, q_runs, k_run, k_runs;  // Row maps: first index in ForwardTables::runs, and count.
  // True if 16-byte copies from the tensor are possible, by its address and strides.
  bool q_whole, k_whole, v_whole;
};

// The work tile of a thread block: tile `tile` of key/value head `kv_head`, in the tasks that
// units[unit_begin … unit_end) name, in this order.
struct ForwardItem {
  int64_t tile;
  int32_t kv_head, unit_begin, unit_end;
  int32_t first_row;  // The query row of its first slot.
};

// Offsets of tables from ForwardArgs::tables.
struct ForwardTables {
  int64_t tasks, items, units;
  int64_t class_of_head;  // int32 per query head
  int64_t classes;        // int32: index in `firsts` of a class's first row
  int64_t firsts;         // int32: index in `spans` of a row's first span; one more ends the last
  int64_t spans;          // KeySpan32
  int64_t runs;           // RowRun
  // Set if the job has a ChangeRule. sequences: SequenceAt, in order. shifts and has_bits: int32,
  // [entry of sequences][class of heads]. A shift takes row 0 of a sequence to its position among
  // the keys (ALiBi). has_bits: 1 if the bit mask applies.
  int64_t sequences, shifts, has_bits;
  int64_t slopes;  // float per query head
  // Set for the kernel for sm_90a. unit_runs: int32, index in key_runs of a unit's first run; one
  // more ends the last. maps: tensor maps of each task's keys and values. next_item: int32, the
  // work counter of the persistent blocks; the host sets it to 0.
  int64_t unit_runs, key_runs, maps, next_item;
};

// A run of a unit's tiles of keys, in order. Tiles that no slot sees are left out. In a run that is
// not masked, every slot that sees a key of the run sees all of it.
struct KeyTileRun {
  int32_t begin, end;
  int32_t masked;
};

// The changes of a job to scores and weights, besides the mask. All zero: none.
struct ChangeRule {
  float cap, per_cap_high, per_cap_low;  // See score_rules.h; 0: none.
  bool alibi, bias, bits, offset;
  bool bias_per_head, bits_per_head;  // If false, head 0 stands for all.
  Element bias_type;
  int64_t bias_bytes, bit_bytes;  // Bytes of one head of a row.
  uint32_t drop_below;            // Weights whose word is below are dropped; 0: none.
  uint32_t seed[2];
};

struct ForwardArgs {
  const std::byte* tables;
  ForwardTables at;
  ChangeRule change;
  int32_t head_dim, value_dim, group, classes, sequences, items;
  float scale;
  float power_scale;  // scale · log2(e)
};

// The instantiation of the kernel for a job. `dim` is 64, 128 or 256, and at least both dimensions.
// `changes`: the job has a ChangeRule.
struct ForwardKind {
  Element element = Element::kNone;
  int dim = 0;
  bool changes = false;
  bool hopper = false;  // The kernel for sm_90a (hopper_config.h), which supports no changes.
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_FORWARD_ARGS_H_
