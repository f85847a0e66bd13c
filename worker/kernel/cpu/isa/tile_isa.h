#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_ISA_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_ISA_H_

#include <cstddef>
#include <cstdint>

#include "attention/numerics/partial.h"
#include "attention/spec/dtype.h"
#include "worker/kernel/cpu/isa/score_rules.h"

namespace annulus {

// The inner loops of the CPU kernel: one table of functions per instruction set. The fp32 loops
// come from one template (tile_functions-inl.h), so paths differ in vector width only. AVX512-BF16
// multiplies pairs of bf16 numbers. AMX multiplies bf16 numbers, or numbers in two bf16 parts.
//
// A result row depends on its own query row and the key blocks alone, not on its neighbours in a
// tile, nor on the grouping of rows. Packed data is an opaque array of floats to callers.

// The unpacked path for few query slots: keys and values are read in place (row_loop.h).

inline constexpr int kUnpackedKeys = 16;  // Keys that are attended to at once.
inline constexpr uint16_t kSeesAll = 0xffff;
inline constexpr int kUnpackedSlots = 8;  // Slots of a group, whose query pairs are interleaved.

// Neighbouring rows of one key/value head, in place, with no alignment.
struct UnpackedRows {
  DataType dtype = DataType::kUnspecified;
  const std::byte *keys = nullptr, *values = nullptr;  // The first row.
  int64_t key_stride = 0, value_stride = 0;            // bytes
  int count = 0;                                       // 1 … kUnpackedKeys
  int head_dim = 0, value_dim = 0;
  float score_scale = 1;  // The factor of products of unscaled queries.
  // The distance in bytes from the rows read now to those read soon, for prefetches. 0: unknown.
  int64_t keys_ahead = 0, values_ahead = 0;
};

// A query row and head, with its running state. Numbers after the last dimension, to a multiple of
// kUnpackedKeys, are 0.
struct RowSlot {
  // The query times the job's scale. Or, with TileIsa::unpacked_pairs, unscaled pairs of bf16
  // numbers. These are interleaved with those of up to kUnpackedSlots slots of the head, in aligned
  // lines of two pairs each: [pairs / 2][kUnpackedSlots][2]. `query` then points to this slot's
  // first pair.
  const float* query = nullptr;
  float* sums = nullptr;
  float* weights = nullptr;  // [kUnpackedKeys]; the slot's sum of weights is their total.
  float max = 0;
  uint16_t seen = 0;  // Bit i: sees key i; i < UnpackedRows::count.
};

// Brings slots, at least one, up to date with the rows: scores, online softmax and values. Masked
// values are not multiplied.
using AttendRowsFunction = void(const UnpackedRows& rows, RowSlot* slots, int count);

AttendRowsFunction AttendRowsAvx512;  // The function of kAvx512Isa.

// The packed path: tiles of query rows against packed blocks of keys.

inline constexpr int kRowGroup = 6;   // Query rows of a micro-kernel.
inline constexpr int kTileRows = 96;  // Query rows of a tile: a multiple of kRowGroup and of 16.
inline constexpr int kMostTiles = 8;  // The most neighbouring tiles that one item has.
inline constexpr int kMostTileRows = kMostTiles * kTileRows;
inline constexpr int kKeyBlock = 256;    // Keys of a block; blocks start at shard-local multiples.
inline constexpr int kMaxHeadDim = 256;  // Limit for q and k, and for v.

// The rows of one head in a packed buffer: row i at first + i * stride, no alignment.
struct ElementRows {
  DataType dtype = DataType::kUnspecified;  // fp32, fp16 or bf16
  const std::byte* first = nullptr;
  int64_t stride = 0;  // bytes
  // Packed output is aligned to cache lines and written by non-temporal stores.
  bool streamed = false;
};

// Rows of a tile, each at its own address.
struct QueryRows {
  DataType dtype = DataType::kUnspecified;
  const std::byte* const* row = nullptr;
  int count = 0;
  int dim = 0;
};

struct GradientIsa;  // gradient_isa.h

// One tile of query rows against one packed block of keys. Arrays of rows have kMostTileRows
// entries.
struct TileBlock {
  int rows = 0, head_dim = 0, value_dim = 0;
  // The scale, if queries are packed unscaled: applied by `score`, or by `softmax`.
  float score_scale = 1, softmax_scale = 1;
  const float* queries = nullptr;  // Packed by pack_queries.
  const float* keys = nullptr;     // Packed by pack_keys.
  const float* values = nullptr;   // Packed by pack_values.
  float* scores = nullptr;         // [rows][kKeyBlock]
  // [rows][sum_stride]; the stride is a multiple of the panel. Columns past value_dim stay 0.
  float* sums = nullptr;
  int sum_stride = 0;
  float slack = 0;  // A row's maximum stays until a score exceeds it by more.
  float *max = nullptr, *weight = nullptr;
  float* alpha = nullptr;  // The rescale factor of sums for this block; written by softmax.
  // The hull [begin, end) of the block's keys that a row group sees; begin >= end: none.
  const int16_t* group_begin = nullptr;
  const int16_t* group_end = nullptr;
};

// A block for `attend`, with the keys that rows see.
struct PackedBlock {
  const float *keys = nullptr, *values = nullptr;  // Packed by pack_keys and pack_values.
  const int16_t *group_begin = nullptr, *group_end = nullptr;  // See TileBlock.
  // The hull of each row; nullptr: all keys.
  const int16_t *row_begin = nullptr, *row_end = nullptr;
};

struct TileIsa {
  const char* name;
  int lanes;    // floats of a vector
  int panel;    // keys, or value columns, of a packed panel: a multiple of lanes
  int tiles;    // The best number of neighbouring tiles of an item: at most kMostTiles.
  float slack;  // TileBlock::slack, for jobs without max_logit.
  int parts;    // bf16 numbers per packed number; 0: packed as fp32

  // Packs up to kKeyBlock rows, in fp32: keys as [panel of keys][head_dim][panel], values as [panel
  // of columns][kKeyBlock][panel]. Rows i with present[i] == 0 are not read and become 0.
  void (*pack_keys)(const ElementRows& rows, const uint8_t* present, int count, int dim,
                    float* out);
  // Returns false if some packed value is NaN or infinite.
  bool (*pack_values)(const ElementRows& rows, const uint8_t* present, int count, int dim,
                      float* out);
  // Packs query rows times the job's scale as [row group][head_dim][kRowGroup]. Missing rows of the
  // last group are 0. Up to one vector of floats after the last group is overwritten. To scale q
  // costs one small rounding per product; to scale a sum would cost one as large as the sum. Paths
  // with bf16 products have no bits for it: they take the sign of the scale only.
  void (*pack_queries)(const QueryRows& rows, double scale, float* out);

  // scores = queries · keys in the visible part of each row group, rounded out to vectors.
  void (*score)(const TileBlock& tile);
  // Applies offset, soft cap, ALiBi, then bias and bit mask, to the same part. Called only for jobs
  // that have any.
  void (*change_scores)(const TileBlock& tile, const ScoreRule& rule);
  // Online softmax: scores → exp(score − max), and updates max, weight and alpha. Scores of masked
  // pairs must be −inf. Reads and writes the same part as `score`.
  void (*softmax)(const TileBlock& tile);
  // Sets the weights that dropout drops to 0, in the same part. Called only for jobs with dropout.
  void (*drop_weights)(const TileBlock& tile, const DropRule& rule);
  // sums = sums · alpha + scores · values, over the same part. May overwrite `scores`.
  void (*accumulate)(const TileBlock& tile);
  // `accumulate` for a tile of one row that sees `spans` (at least one, sorted, disjoint). No other
  // key's value is multiplied. The row gets the same bits as by `accumulate`.
  void (*accumulate_row)(const TileBlock& row, const KeySpan* spans, int count);
  // score, softmax and accumulate in one, with the same bits, for blocks whose masked values are
  // finite. Returns the number of blocks that it took; it stops at the first that it cannot take.
  // Sums of rows with max −inf are not read.
  int (*attend)(const TileBlock& tile, const PackedBlock* blocks, int count);  // nullptr: none.
  AttendRowsFunction* attend_rows;                                             // nullptr: none.
  bool unpacked_pairs;           // attend_rows takes pairs of bf16 numbers, in bf16 jobs only.
  int few_slots;                 // The most slots per key for which attend_rows is faster.
  const GradientIsa* gradients;  // nullptr: the table `fp32` has them.
  // Computes a row's output from its sums, rounded to `dtype`: as Finish
  // (attention/numerics/partial.h).
  void (*finish_row)(const float* sums, const RowDivision& by, int dim, DataType dtype,
                     std::byte* out);
  // The tables of the same path for jobs other than bf16; nullptr: this one.
  const TileIsa *fp32, *fp16;
  const TileIsa* bf16x3;  // For fp32 numbers in two bf16 parts; nullptr: not served.
};

// The table of `isa` for a type.
inline const TileIsa& IsaFor(const TileIsa& isa, DataType dtype) {
  const TileIsa* table = nullptr;
  if (dtype == DataType::kFp32) table = isa.fp32;
  if (dtype == DataType::kFp16) table = isa.fp16;
  return table == nullptr ? isa : *table;
}

// Floats of a packed block. Keys of two parts have one byte per key after them.
inline int64_t PackedKeyFloats(const TileIsa& isa, int head_dim) {
  if (isa.parts == 0) return int64_t{kKeyBlock} * head_dim;
  const int64_t chunks = (head_dim + 31) / 32;
  return kKeyBlock * (chunks * 32 / 2 * isa.parts + (isa.parts > 1 ? 1 : 0));
}
inline int64_t PackedValueFloats(const TileIsa& isa, int value_dim) {
  const int64_t columns = (value_dim + isa.panel - 1) / isa.panel * isa.panel;
  return int64_t{kKeyBlock} * columns * (isa.parts == 0 ? 2 : isa.parts) / 2;
}

extern const TileIsa kPortableIsa;
extern const TileIsa kAvx2Isa;
extern const TileIsa kAvx512Isa, kAvx512Bf16Isa;
extern const TileIsa kAmxIsa;

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_ISA_H_
