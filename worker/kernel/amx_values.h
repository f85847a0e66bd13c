#ifndef ANNULUS_WORKER_KERNEL_AMX_VALUES_H_
#define ANNULUS_WORKER_KERNEL_AMX_VALUES_H_

#include <immintrin.h>

#include "worker/kernel/amx_scores.h"

// Weights times values by AMX.

namespace annulus {
namespace {

// 32 weights of a row as AMX takes them, those that the softmax has not written as zero.
template <class FORMAT>
void RoundWeights(const float* weights, int key, int begin, int end, Bf16* to, int64_t low) {
  const auto part = [&](int at) {
    return at >= begin && at < end ? _mm512_loadu_ps(weights + at) : _mm512_setzero_ps();
  };
  FORMAT::StoreWeights(part(key), part(key + kTile), to, low);
}

// Over the row's own scores: what is written lies no further than what has been read.
template <class FORMAT>
void RoundRow(const TileBlock& tile, int row, Hull hull) {
  float* scores = tile.scores + int64_t{row} * kKeyBlock;
  auto* out = reinterpret_cast<Bf16*>(scores);
  int begin = 0, end = 0;
  if (row < tile.rows) {
    const int group = row / kRowGroup;
    constexpr int kPanelKeys = kPanel<Avx512>;
    if (tile.group_begin[group] < tile.group_end[group]) {
      begin = tile.group_begin[group] / kPanelKeys * kPanelKeys;
      end = RoundUp(tile.group_end[group], kTile);
    }
  }
  for (int key = hull.begin / kChunk * kChunk; key < hull.end; key += kChunk) {
    RoundWeights<FORMAT>(scores, key, begin, end, out + key * FORMAT::kParts, kChunk);
  }
}

// The block's own sum is built first and added once, to rows that see something of it.
template <class FORMAT, int ROWS, int COLUMNS>
void AddColumns(const TileBlock& tile, int row, int column, const Operands& of) {
  alignas(64) float block[ROWS * kTile * COLUMNS * kTile];
  Multiply<ROWS, COLUMNS, FORMAT::kValueProducts>(
      of, {block, COLUMNS * kTile, kTile, kTile * COLUMNS * kTile});
  const int rows = MinInt(ROWS * kTile, tile.rows - row);
  for (int r = 0; r < rows; ++r) {
    const int group = (row + r) / kRowGroup;
    if (tile.group_begin[group] >= tile.group_end[group]) continue;
    const __m512 alpha = _mm512_set1_ps(tile.alpha[row + r]);
    for (int c = 0; c < COLUMNS; ++c) {
      float* sums = tile.sums + int64_t{row + r} * tile.sum_stride + column + c * kTile;
      const __m512 more = _mm512_load_ps(block + (r * COLUMNS + c) * kTile);
      _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_loadu_ps(sums), alpha, more));
    }
  }
}

// Weights times values, from key chunk `first` on.
template <class FORMAT, int ROWS>
void AddAllColumns(const TileBlock& tile, int row, int first, Operands of) {
  constexpr int kPartNumbers = FORMAT::kParts * kTileNumbers;
  of.right_beside = kKeyChunks * kPartNumbers;
  for (int column = 0; column < tile.value_dim; column += 2 * kTile) {
    of.right = reinterpret_cast<const Bf16*>(tile.values) + first * kPartNumbers +
               int64_t{column / kTile} * of.right_beside;
    column + kTile < tile.value_dim ? AddColumns<FORMAT, ROWS, 2>(tile, row, column, of)
                                    : AddColumns<FORMAT, ROWS, 1>(tile, row, column, of);
  }
}

template <class FORMAT, int ROWS>
void AccumulateRows(const TileBlock& tile, int row) {
  const Hull hull = HullOf(tile, row, MinInt(tile.rows, row + ROWS * kTile));
  if (hull.begin >= hull.end) return;
  for (int r = 0; r < ROWS * kTile; ++r) RoundRow<FORMAT>(tile, row + r, hull);
  Fence();
  const int first = hull.begin / kChunk;
  Operands of;
  of.left_chunk = FORMAT::kParts * kChunk;
  of.left =
      reinterpret_cast<const Bf16*>(tile.scores + int64_t{row} * kKeyBlock) + first * of.left_chunk;
  of.left_stride = kKeyBlock * sizeof(float);
  of.left_low = kChunk;
  of.left_below = kTile * kKeyBlock * (sizeof(float) / sizeof(Bf16));
  of.chunks = (hull.end + kChunk - 1) / kChunk - first;
  AddAllColumns<FORMAT, ROWS>(tile, row, first, of);
}

template <class FORMAT>
void AccumulateAmx(const TileBlock& tile) {
  const TileUse use;
  for (int row = 0; row < tile.rows; row += 2 * kTile) {
    tile.rows - row > kTile ? AccumulateRows<FORMAT, 2>(tile, row)
                            : AccumulateRows<FORMAT, 1>(tile, row);
  }
}

// The row alone in a tile of zeros, and of the values only what it sees: the same sums in the same
// order, because what is left out would have been multiplied by zero.
template <class FORMAT>
void AccumulateRowAmx(const TileBlock& row, const KeySpan* spans, int count) {
  const TileUse use;
  constexpr int kParts = FORMAT::kParts;
  alignas(64) Bf16 weights[kTile][kKeyBlock * kParts] = {};
  alignas(64) Bf16 seen[kKeyBlock] = {};
  for (int i = 0; i < count; ++i) {
    for (int key = spans[i].begin; key < spans[i].end; ++key) seen[key] = 0xffff;
  }
  const int first = spans[0].begin / kChunk;
  const int chunks = (spans[count - 1].end + kChunk - 1) / kChunk - first;
  const auto keep_seen = [](Bf16* at, __m512i mask) {
    _mm512_storeu_si512(at, _mm512_and_si512(_mm512_loadu_si512(at), mask));
  };
  for (int key = first * kChunk; key < (first + chunks) * kChunk; key += kChunk) {
    Bf16* to = &weights[0][key * kParts];
    RoundWeights<FORMAT>(row.scores, key, 0, kKeyBlock, to, kChunk);
    for (int p = 0; p < kParts; ++p) keep_seen(to + p * kChunk, _mm512_loadu_si512(seen + key));
  }
  alignas(64) Bf16 values[kKeyChunks][kParts * kTileNumbers];
  const __m512 alpha = _mm512_set1_ps(*row.alpha);
  for (int column = 0; column < row.value_dim; column += kTile) {
    const float* from = row.values + column / kTile * (sizeof(values) / sizeof(float));
    __builtin_memcpy(values, from, sizeof(values));
    for (int pair = first * kTile; pair < (first + chunks) * kTile; ++pair) {
      int mask;
      __builtin_memcpy(&mask, seen + 2 * pair, sizeof(mask));
      Bf16* to = values[pair / kTile] + pair % kTile * kChunk;
      for (int p = 0; p < kParts; ++p) keep_seen(to + p * kTileNumbers, _mm512_set1_epi32(mask));
    }
    Fence();
    alignas(64) float block[kTile * kTile];
    Operands of;
    of.left_chunk = kParts * kChunk;
    of.left = &weights[0][first * kChunk * kParts];
    of.left_stride = sizeof(weights[0]);
    of.left_low = kChunk;
    of.right = values[first];
    of.chunks = chunks;
    Multiply<1, 1, FORMAT::kValueProducts>(of, {block, kTile, 0, 0});
    float* sums = row.sums + column;
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_loadu_ps(sums), alpha, _mm512_load_ps(block)));
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_VALUES_H_
