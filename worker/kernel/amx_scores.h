#ifndef ANNULUS_WORKER_KERNEL_AMX_SCORES_H_
#define ANNULUS_WORKER_KERNEL_AMX_SCORES_H_

#include <immintrin.h>

#include "worker/kernel/amx_formats.h"
#include "worker/kernel/amx_products.h"
#include "worker/kernel/amx_rounding.h"
#include "worker/kernel/amx_softmax.h"

// Scores by AMX.

namespace annulus {
namespace {

// scores = scale · queries · keys.
template <int ROWS, int KEYS, class Series>
void ScoreTiles(const Operands& of, float scale, float* scores, Series& products) {
  products.template Multiply<KEYS, Start::kZero>(of, {scores, kKeyBlock, kTile, kTile * kKeyBlock},
                                                 NoWork());
  if (scale == 1) return;
  products.Finish();
  const __m512 factor = _mm512_set1_ps(scale);
  for (int r = 0; r < ROWS * kTile; ++r) {
    for (int k = 0; k < KEYS; ++k) {
      float* at = scores + r * kKeyBlock + k * kTile;
      _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), factor));
    }
  }
}

// Queries from `row` on, times keys.
template <class FORMAT>
Operands QueriesAndKeys(const TileBlock& tile, int row) {
  const int chunks = Chunks(tile.head_dim);
  Operands of;
  of.left =
      reinterpret_cast<const Bf16*>(tile.queries) + int64_t{row} * chunks * kChunk * FORMAT::kParts;
  of.left_stride = kChunk * sizeof(Bf16);
  of.left_chunk = FORMAT::kParts * kTileNumbers;
  of.left_low = kTileNumbers;
  of.left_below = of.right_beside = chunks * of.left_chunk;
  of.chunks = chunks;
  return of;
}
template <class FORMAT>
const Bf16* KeysFrom(const TileBlock& tile, int key) {
  return reinterpret_cast<const Bf16*>(tile.keys) +
         int64_t{key} * Chunks(tile.head_dim) * kChunk * FORMAT::kParts;
}

template <class FORMAT, int ROWS>
void ScoreRows(const TileBlock& tile, int row) {
  const Hull hull = HullOf(tile, row, MinInt(tile.rows, row + ROWS * kTile));
  Operands of = QueriesAndKeys<FORMAT>(tile, row);
  float* scores = tile.scores + int64_t{row} * kKeyBlock;
  Products<ROWS, FORMAT::kScoreProducts> products;
  for (int key = hull.begin / kTile * kTile; key < hull.end; key += 2 * kTile) {
    of.right = KeysFrom<FORMAT>(tile, key);
    key + kTile < hull.end ? ScoreTiles<ROWS, 2>(of, tile.score_scale, scores + key, products)
                           : ScoreTiles<ROWS, 1>(of, tile.score_scale, scores + key, products);
  }
  products.Finish();
}

template <class FORMAT>
void ScoreAmx(const TileBlock& tile) {
  const TileUse use;
  Fence();
  for (int row = 0; row < tile.rows; row += 2 * kTile) {
    tile.rows - row > kTile ? ScoreRows<FORMAT, 2>(tile, row) : ScoreRows<FORMAT, 1>(tile, row);
  }
  FORMAT::MendScores(tile);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_SCORES_H_
