#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_GRADIENT_ISA_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_GRADIENT_ISA_H_

#include <cstdint>

#include "worker/kernel/cpu/isa/score_rules.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// What the backward pass of the CPU kernel needs of an instruction set beside a TileIsa. All
// arithmetic is fp32, but where `parts` of the TileIsa says that bf16 numbers are multiplied: there
// weights and dS, before the scale, are rounded to bf16 for products. Sums over pairs or chunks of
// rows would depend on which rows of a tile are there, did these not keep their places in it: so
// there the rows that are packed are all slots of a tile, and `weights_row` says which are empty.
// Of fp32 they are those that are there.

// One tile of query slots against one block of keys, after both products. Arrays of rows have
// kTileRows entries.
struct GradientTile {
  int rows = 0;
  float scale = 1;                  // What dS is multiplied by.
  float weight_scale = 1;           // What `weights` are still to be multiplied by.
  const float* lse = nullptr;       // Not −inf.
  const float* lse_rest = nullptr;  // What the LSE is still to be made more by.
  const float* delta = nullptr;
  float* weights = nullptr;   // [rows][kKeyBlock]: scores, which become weights.
  float* d_scores = nullptr;  // [rows][kKeyBlock]: dO·v, which becomes scale · dS.
  // As in TileBlock.
  const int16_t* group_begin = nullptr;
  const int16_t* group_end = nullptr;
};

// Rows of pairs lie a line more than a block apart: 1 KiB apart they would share four sets of a
// cache.
inline constexpr int kPairStride = kKeyBlock + 16;
inline constexpr int kRoundedFloats = kTileRows / 2 * kPairStride;

// Rows of keys [key_begin, key_end) of a block += weightsᵀ · right.
struct OuterProduct {
  int rows = 0;  // Of `right`.
  // [rows], of bf16: where each of these lies in `weights`; −1: it is empty, as if of weights 0.
  const int16_t* weights_row = nullptr;
  int dim = 0;
  int key_begin = 0, key_end = 0;
  const float* weights = nullptr;  // [rows][weight_stride]
  int weight_stride = kKeyBlock;
  const float* right = nullptr;  // pack_rows
  // [kKeyBlock][sum_stride], and the stride is a multiple of the panel; where there is
  // `sums_of_keys`, [columns][kKeyBlock] in the same room.
  float* sums = nullptr;
  int sum_stride = 0;
  float* rounded = nullptr;  // kRoundedFloats, aligned to 64 bytes: working memory.
};

struct GradientIsa {
  // Of scores that have been capped (ScoreRule::cap): d_scores becomes (dO·v − delta) · (1 − t²),
  // with t = score / cap. What is then weighed has no delta. In the same part as `weigh`.
  void (*uncap)(const GradientTile& tile, const ScoreRule& rule);
  // The next three change `numbers`, an array of pairs as `weights`, in the same part: plus `more`,
  // times `by`, and 0 where `pairs` is −inf.
  void (*add)(const GradientTile& tile, const float* more, float* numbers);
  void (*multiply)(const GradientTile& tile, const float* by, float* numbers);
  void (*clear_hidden)(const GradientTile& tile, const float* pairs, float* numbers);

  // Packs up to kTileRows rows as [panel of columns][kTileRows][panel], fp32 or whatever takes no
  // more room; false when some value is NaN or infinite. Empty ones, of bf16, are nullptr.
  bool (*pack_rows)(const QueryRows& rows, float* out);
  // Copies what `pack_rows` has packed, with zeros for rows with seen[row] == 0 (kTileRows
  // entries).
  void (*keep_seen)(const float* packed, int dim, const uint8_t* seen, float* out);
  // In the visible part of each row group, rounded out to vectors. What a row does not see there
  // becomes any number.
  void (*weigh)(const GradientTile& tile);
  // With one key, sums of others keep their bits whatever `right` holds.
  void (*add_outer)(const OuterProduct& product);
  // Sums of keys [key, key + 16) as [16][stride], `key` a multiple of 16, the stride one of the
  // panel; nullptr: they lie so.
  void (*sums_of_keys)(const float* sums, int key, int dim, float* out, int stride);
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_GRADIENT_ISA_H_
