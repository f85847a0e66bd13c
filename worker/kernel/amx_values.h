#ifndef ANNULUS_WORKER_KERNEL_AMX_VALUES_H_
#define ANNULUS_WORKER_KERNEL_AMX_VALUES_H_

#include <immintrin.h>

#include "worker/kernel/amx_scores.h"
#include "worker/kernel/amx_sums.h"

// Weights times values by AMX.

namespace annulus {
namespace {

// 32 weights of a row as AMX takes them, those that the softmax has not written as zero.
template <class FORMAT>
void RoundWeights(const float* weights, int key, int begin, int end, Bf16* to, int64_t low) {
  const auto part = [&](int at) {
    if (at < begin || at >= end) return _mm512_setzero_ps();
    const __m512 all = _mm512_loadu_ps(weights + at);
    // That of a bias may be of any bits.
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(all, all, _CMP_UNORD_Q), all,
                                _mm512_set1_ps(__builtin_nanf("")));
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
  AddAllColumns<FORMAT, ROWS>(tile, row, first, {tile.alpha + row, /*fresh=*/false}, of, NoWork());
}

template <class FORMAT>
void AccumulateAmx(const TileBlock& tile) {
  const TileUse use;
  for (int row = 0; row < tile.rows; row += 2 * kTile) {
    tile.rows - row > kTile ? AccumulateRows<FORMAT, 2>(tile, row)
                            : AccumulateRows<FORMAT, 1>(tile, row);
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_VALUES_H_
