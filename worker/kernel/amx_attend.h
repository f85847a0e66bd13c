#ifndef ANNULUS_WORKER_KERNEL_AMX_ATTEND_H_
#define ANNULUS_WORKER_KERNEL_AMX_ATTEND_H_

#include <immintrin.h>

#include "worker/kernel/amx_values.h"

// Scores, softmax and values in one, strip by strip of up to 32 rows, of blocks that all rows see:
// the same operations as one after the other, with less way between them. A strip's scores lie tile
// by tile, [key chunk][row][16 keys], 32 KiB that stay in the first cache, and its weights,
// rounded, in the first half of each pair of tiles, low parts in the second.

namespace annulus {
namespace {

// Raises `largest` by the scores of two chunks.
template <int ROWS, int CHUNK>
inline void Raise(const float* scores, RowScores (&rows)[ROWS]) {
  for (int i = 0; i < ROWS; ++i) {
    for (int r = 0; r < kTile; ++r, scores += kTile) {
      float* largest = rows[i].largest[r];
      const __m512 one = Avx512::Max(_mm512_loadu_ps(scores), _mm512_load_ps(largest));
      _mm512_store_ps(largest, Avx512::Max(_mm512_loadu_ps(scores + CHUNK), one));
    }
  }
}

template <class FORMAT, int ROWS>
void AttendStrip(const TileBlock& tile, int row, int count) {
  constexpr int kTileFloats = kTile * kTile;
  constexpr int kChunkFloats = ROWS * kTileFloats;
  constexpr int kNumbersOfFloat = sizeof(float) / sizeof(Bf16);
  RowScores rows[ROWS];
  for (RowScores& of : rows) {
    for (int r = 0; r < kTile; ++r) {
      of.part[r] = {0, count / kTile};
      _mm512_store_ps(of.largest[r], _mm512_set1_ps(kMinusInf));
    }
  }
  Operands of = QueriesAndKeys<FORMAT>(tile, row);
  of.right = KeysFrom<FORMAT>(tile, 0);
  float* scores = tile.scores;
  for (int key = 0; key < count; key += 2 * kTile, scores += 2 * kChunkFloats) {
    Multiply<ROWS, 2, FORMAT::kScoreProducts>(of, {scores, kTile, kChunkFloats, kTileFloats});
    of.right += 2 * of.right_beside;
    // Those that are there by now.
    if (key > 0) Raise<ROWS, kChunkFloats>(scores - 2 * kChunkFloats, rows);
  }
  Raise<ROWS, kChunkFloats>(scores - 2 * kChunkFloats, rows);
  for (int i = 0; i < ROWS && row + i * kTile < tile.rows; ++i) {
    const ScoreView<kTile, kChunkFloats> view{tile.scores + i * kTileFloats};
    WeighRows(tile, row + i * kTile, MinInt(kTile, tile.rows - row - i * kTile), view, rows[i],
              [&](int r, int c, __m512 first, __m512 second) {
                FORMAT::StoreWeights(first, second, reinterpret_cast<Bf16*>(view.At(r, c)),
                                     kChunkFloats * kNumbersOfFloat);
              });
  }
  Fence();
  Operands weights;
  weights.left = reinterpret_cast<const Bf16*>(tile.scores);
  weights.left_stride = kChunk * sizeof(Bf16);
  weights.left_low = kChunkFloats * kNumbersOfFloat;
  weights.left_chunk = 2 * weights.left_low;
  weights.left_below = kTileNumbers;
  weights.chunks = count / kChunk;
  AddAllColumns<FORMAT, ROWS>(tile, row, 0, weights);
}

template <class FORMAT>
void AttendBlock(const TileBlock& tile, int count) {
  const TileUse use;
  Fence();
  for (int row = 0; row < tile.rows; row += 2 * kTile) {
    tile.rows - row > kTile ? AttendStrip<FORMAT, 2>(tile, row, count)
                            : AttendStrip<FORMAT, 1>(tile, row, count);
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_ATTEND_H_
