#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_ISA_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_ISA_H_

#include <cstddef>
#include <cstdint>

#include "attention/numerics/partial.h"
#include "attention/spec/dtype.h"
#include "worker/kernel/cpu/isa/score_rules.h"
#include "worker/kernel/cpu/isa/unpacked_rows.h"

namespace annulus {

// The inner loops of the CPU kernel, as one table of functions per instruction set. Those of fp32
// arithmetic come from one template (tile_functions-inl.h), so they differ in vector width only;
// AVX512-BF16 multiplies pairs of bf16 numbers, AMX those or numbers in two parts of bf16. A result
// row depends on its own query row and the key blocks alone: not on its neighbours in a tile, nor
// on how rows are grouped. What is packed is an array of floats to all others, whatever lies in it.

inline constexpr int kRowGroup = 6;   // Query rows of a micro-kernel.
inline constexpr int kTileRows = 96;  // Query rows of a tile: a multiple of kRowGroup and of 16.
inline constexpr int kMostTiles = 8;  // Neighbouring tiles that are attended to as one.
inline constexpr int kMostTileRows = kMostTiles * kTileRows;
inline constexpr int kKeyBlock = 256;    // Keys of a block, anchored at shard-local multiples.
inline constexpr int kMaxHeadDim = 256;  // Of q and k, and of v.

// The rows of one head in a packed buffer: row i at first + i * stride, no alignment.
struct ElementRows {
  DataType dtype = DataType::kUnspecified;  // fp32, fp16 or bf16
  const std::byte* first = nullptr;
  int64_t stride = 0;     // bytes
  bool streamed = false;  // What is packed is aligned to lines and goes past the caches.
};

// Rows of a tile, each where it lies.
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
  // Of products of queries that are packed unscaled: where the softmax multiplies, or before.
  float score_scale = 1, softmax_scale = 1;
  const float* queries = nullptr;  // PackQueries
  const float* keys = nullptr;     // PackKeys
  const float* values = nullptr;   // PackValues
  float* scores = nullptr;         // [rows][kKeyBlock]
  // [rows][sum_stride]; the stride is a multiple of the panel, columns past value_dim stay 0.
  float* sums = nullptr;
  int sum_stride = 0;
  float slack = 0;  // A maximum stays while no score is above it by more.
  float *max = nullptr, *weight = nullptr;
  float* alpha = nullptr;  // Factor for sums of this block; written by softmax.
  // The hull [begin, end) of the block's keys that a row group sees; begin >= end: none.
  const int16_t* group_begin = nullptr;
  const int16_t* group_end = nullptr;
};

// For `attend`, with what rows see of it.
struct PackedBlock {
  const float *keys = nullptr, *values = nullptr;              // PackKeys, PackValues
  const int16_t *group_begin = nullptr, *group_end = nullptr;  // As in TileBlock.
  const int16_t *row_begin = nullptr, *row_end = nullptr;      // Of each row; nullptr: all keys.
};

struct TileIsa {
  const char* name;
  int lanes;    // floats of a vector
  int panel;    // keys, or value columns, of a packed panel: a multiple of lanes
  int tiles;    // Neighbouring tiles that it is faster to attend to as one, at most kMostTiles
  float slack;  // By so much a row's maximum may fall behind, where nobody asks for it.
  int parts;    // bf16 numbers that stand for one packed number; 0: it is packed as fp32

  // Packs up to kKeyBlock rows: keys as [panel of keys][head_dim][panel], values as
  // [panel of columns][kKeyBlock][panel], both fp32. Rows i with present[i] == 0 are not read and
  // become 0.
  void (*pack_keys)(const ElementRows& rows, const uint8_t* present, int count, int dim,
                    float* out);
  // Returns false when some packed value is NaN or infinite.
  bool (*pack_values)(const ElementRows& rows, const uint8_t* present, int count, int dim,
                      float* out);
  // Packs query rows times the job's scale as [row group][head_dim][kRowGroup]; missing rows of the
  // last group are 0, and up to a vector of floats after the last one is overwritten. Scaling q
  // costs one small rounding a product; scaling a sum would cost one as large as the sum. (bf16 has
  // no room for it: products of bf16 take its sign only.)
  void (*pack_queries)(const QueryRows& rows, double scale, float* out);

  // scores = queries · keys in the visible part of each row group, rounded out to vectors.
  void (*score)(const TileBlock& tile);
  // Offset, soft cap, ALiBi, then bias and bit mask, on the same part, where the job has any.
  void (*change_scores)(const TileBlock& tile, const ScoreRule& rule);
  // scores → exp(score − max), with max, weight and alpha brought up to date. What a row does not
  // see is −inf in `scores`. Reads and writes the same part as `score`.
  void (*softmax)(const TileBlock& tile);
  // Zeroes weights that dropout drops, on the same part. Called only where the job has dropout.
  void (*drop_weights)(const TileBlock& tile, const DropRule& rule);
  // sums = sums · alpha + scores · values, of the same part. May overwrite `scores`.
  void (*accumulate)(const TileBlock& tile);
  // The same for a tile of one row that sees `spans` (at least one, sorted, disjoint): no other
  // key's value is multiplied. The row gets the same bits as by `accumulate`.
  void (*accumulate_row)(const TileBlock& row, const KeySpan* spans, int count);
  // score, softmax and accumulate in one, with the same bits, of blocks whose unseen values are
  // finite; how many it did before one that it cannot. Sums below a max of −inf are not read.
  int (*attend)(const TileBlock& tile, const PackedBlock* blocks, int count);  // nullptr: none.
  AttendRowsFunction* attend_rows;                                             // nullptr: none.
  bool unpacked_pairs;           // It takes pairs of bf16 numbers, of bf16 jobs alone.
  int few_slots;                 // Up to so many for a key it is faster than to pack.
  const GradientIsa* gradients;  // nullptr: `fp32` has them.
  // A row's output of its sums, rounded to `dtype`: as Finish (attention/numerics/partial.h).
  void (*finish_row)(const float* sums, const RowDivision& by, int dim, DataType dtype,
                     std::byte* out);
  // The tables of the same path for other jobs than bf16's; nullptr: this one.
  const TileIsa *fp32, *fp16;
  const TileIsa* bf16x3;  // For fp32 numbers in two parts of bf16; nullptr: not served.
};

// The table that `isa` has for a type.
inline const TileIsa& IsaFor(const TileIsa& isa, DataType dtype) {
  const TileIsa* table = nullptr;
  if (dtype == DataType::kFp32) table = isa.fp32;
  if (dtype == DataType::kFp16) table = isa.fp16;
  return table == nullptr ? isa : *table;
}

// Floats that a packed block takes. Behind keys of two parts there is a byte for each key.
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
