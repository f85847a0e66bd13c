#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_GRADIENT_ISA_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_GRADIENT_ISA_H_

#include <cstdint>

#include "worker/kernel/cpu/isa/score_rules.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// The functions of an instruction set that only the backward pass uses; TileIsa has the others.
//
// All arithmetic is fp32, unless `parts` of the TileIsa is not 0. Then products are of bf16
// numbers: weights and dS (before the scale) are rounded to bf16.
//
// Sums over pairs or chunks of rows must not depend on which rows of a tile are present. So in bf16
// each row keeps its place: the packed rows are all slots of a tile, and `weights_row` marks the
// empty ones. In fp32 only rows that are present are packed.

// One tile of query slots against one block of keys, after both products (q·k and dO·v). Arrays of
// rows have kTileRows entries.
struct GradientTile {
  int rows = 0;
  float scale = 1;                  // The factor of dS.
  float weight_scale = 1;           // The factor that `weights` still lack.
  const float* lse = nullptr;       // Not −inf.
  const float* lse_rest = nullptr;  // The second number of the LSE; added to `lse`.
  const float* delta = nullptr;
  float* weights = nullptr;   // [rows][kKeyBlock]: scores; weigh() turns them into weights.
  float* d_scores = nullptr;  // [rows][kKeyBlock]: dO·v; weigh() turns it into scale · dS.
  // See TileBlock.
  const int16_t* group_begin = nullptr;
  const int16_t* group_end = nullptr;
};

// Floats from one row of pairs to the next: a block plus a cache line. At 1 KiB apart, rows would
// share four sets of a cache.
inline constexpr int kPairStride = kKeyBlock + 16;
inline constexpr int kRoundedFloats = kTileRows / 2 * kPairStride;

// Sums of keys [key_begin, key_end) of a block += weightsᵀ · right.
struct OuterProduct {
  int rows = 0;  // Rows of `right`.
  // [rows]; bf16 only. The row in `weights` of each row of `right`; −1: empty, as if its weights
  // were 0.
  const int16_t* weights_row = nullptr;
  int dim = 0;
  int key_begin = 0, key_end = 0;
  const float* weights = nullptr;  // [rows][weight_stride]
  int weight_stride = kKeyBlock;
  const float* right = nullptr;  // Packed by pack_rows.
  // [kKeyBlock][sum_stride]; the stride is a multiple of the panel. If `sums_of_keys` is set:
  // [columns][kKeyBlock] in the same room.
  float* sums = nullptr;
  int sum_stride = 0;
  float* rounded = nullptr;  // kRoundedFloats, aligned to 64 bytes: working memory.
};

struct GradientIsa {
  // Backward of the soft cap: d_scores becomes (dO·v − delta) · (1 − t²), with t = score / cap
  // (ScoreRule::cap). weigh() then needs delta 0. Changes the same part as `weigh`.
  void (*uncap)(const GradientTile& tile, const ScoreRule& rule);
  // The next three change `numbers`, laid out as `weights`, in the same part as `weigh`. They add
  // `more`, multiply by `by`, and set 0 where `pairs` is −inf.
  void (*add)(const GradientTile& tile, const float* more, float* numbers);
  void (*multiply)(const GradientTile& tile, const float* by, float* numbers);
  void (*clear_hidden)(const GradientTile& tile, const float* pairs, float* numbers);

  // Packs up to kTileRows rows as [panel of columns][kTileRows][panel]: fp32, or a format that
  // takes no more room. Returns false if some value is NaN or infinite. In bf16 an empty row is
  // nullptr.
  bool (*pack_rows)(const QueryRows& rows, float* out);
  // Copies the result of `pack_rows`, with zeros for rows with seen[row] == 0 (kTileRows entries).
  void (*keep_seen)(const float* packed, int dim, const uint8_t* seen, float* out);
  // scores → weights, dO·v → scale · dS, in the visible part of each row group, rounded out to
  // vectors. Masked pairs in that part become undefined.
  void (*weigh)(const GradientTile& tile);
  // Adds an outer product. For one key, sums of other keys keep their bits whatever `right` is.
  void (*add_outer)(const OuterProduct& product);
  // Copies sums of keys [key, key + 16) as [16][stride]. `key` is a multiple of 16; the stride is
  // one of the panel. nullptr: the sums already have that layout.
  void (*sums_of_keys)(const float* sums, int key, int dim, float* out, int stride);
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_GRADIENT_ISA_H_
