#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_FORWARD_ARGS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_FORWARD_ARGS_H_

#include <cstddef>
#include <cstdint>

namespace annulus::cuda {

// What the host tells the device: plain data, the same on both sides. Rows are shard-local, and
// rows, keys and heads fit in 32 bits.

inline constexpr int kTileSlots = 64;  // Query slots of a tile (call_plan.h says what a slot is).
inline constexpr int kThreads = 128;   // Of a block of threads; each warp has 16 slots.
inline constexpr int kChunkRows = 64;  // Query rows of a chunk: shard-local multiples.
inline constexpr int kMaxDim = 256;    // Of queries and keys, and of values.

enum class Element : int32_t { kNone = 0, kFp32 = 1, kFp16 = 2, kBf16 = 3 };

// Keys [begin, end).
struct KeySpan32 {
  int32_t begin, end;
};

// Rows of a shard from `local` on: blocks of `block` packed rows, `stride` apart, from `first` on.
struct RowRun {
  int32_t local, first, block, stride;
};

// A block of a schedule in memory. Head h of row r lies at data + (r − row_begin) · row_bytes +
// (h − head_begin) · (bytes of a head), past the offset of its section.
struct BlockAt {
  std::byte* data;
  int64_t row_bytes;
  int32_t row_begin, head_begin;
};

// A sequence that has query rows of the launch: its number, and the packed rows at which its
// queries and keys begin.
struct SequenceAt {
  int32_t q_begin, k_begin, number;
};

struct ForwardTask {
  BlockAt q, kv, out, pairs;
  int64_t value_offset;               // In a row of kv.
  int64_t max_offset, weight_offset;  // In a row of out.
  int64_t bits_offset, shift_offset;  // In a row of pairs: the bit mask, the offset of the LSE.
  int32_t q_begin, q_end, k_begin, k_end, head_begin, head_end;
  // Entry of ForwardTables::classes for class 0: where the first spans of row q_begin are. −1:
  // every row sees every key of the task.
  int32_t class_at;
  int32_t q_run, q_runs, k_run, k_runs;  // Row maps: where in ForwardTables::runs, and how many.
  // Whether 16 bytes at a time may be copied from the tensor, as its address and strides allow.
  bool q_whole, k_whole, v_whole;
};

// What one block of threads does at once: tile `tile` of key/value head `kv_head`, in the tasks
// that units[unit_begin … unit_end) name, in this order.
struct ForwardItem {
  int64_t tile;
  int32_t kv_head, unit_begin, unit_end;
  int32_t first_row;  // Of its first slot.
};

// Offsets from ForwardArgs::tables.
struct ForwardTables {
  int64_t tasks, items, units;
  int64_t class_of_head;  // int32 of each query head
  int64_t classes;        // int32: where a class's rows begin in `firsts`
  int64_t firsts;         // int32: where a row's spans begin in `spans`; one more ends the last
  int64_t spans;          // KeySpan32
  int64_t runs;           // RowRun
  // Where the job has a ChangeRule. sequences: SequenceAt, in order. shifts and has_bits: int32,
  // [entry of sequences][class of heads], what takes row 0 of a sequence to its position among the
  // keys (ALiBi), and whether the bit mask counts.
  int64_t sequences, shifts, has_bits;
  int64_t slopes;  // float of each query head
  // Of the kernel for Hopper. unit_runs: int32, where a unit's runs begin in key_runs; one more
  // ends the last. maps: tensor maps of each task's keys and values. next_item: int32, 0 as it
  // comes from the host, which blocks count up.
  int64_t unit_runs, key_runs, maps, next_item;
};

// Tiles of keys of a unit, in order: what no slot sees is left out. Of those that are not masked
// every slot that sees something sees all.
struct KeyTileRun {
  int32_t begin, end;
  int32_t masked;
};

// What a job does to scores and weights beside the mask. All zero: nothing.
struct ChangeRule {
  float cap, per_cap_high, per_cap_low;  // score_rules.h; 0: none.
  bool alibi, bias, bits, offset;
  bool bias_per_head, bits_per_head;  // Else head 0 stands for all.
  Element bias_type;
  int64_t bias_bytes, bit_bytes;  // Of one head of a row.
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

// Which instantiation of the kernel serves a job: `dim` is 64, 128 or 256, not below either
// dimension; `changes` where the job has a ChangeRule.
struct ForwardKind {
  Element element = Element::kNone;
  int dim = 0;
  bool changes = false;
  bool hopper = false;  // The kernel for sm_90a (hopper_config.h), which has no changes.
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_FORWARD_ARGS_H_
