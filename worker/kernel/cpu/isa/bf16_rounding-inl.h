#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_ROUNDING_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_ROUNDING_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/isa/bf16_formats-inl.h"

// Weights of rows, rounded where they lie, for products of bf16 numbers.

namespace annulus {
namespace {

// What some rows see of a block, all together.
struct Hull {
  int begin = kKeyBlock, end = 0;
};
inline Hull HullOf(const TileBlock& tile, int row_begin, int row_end) {
  Hull hull;
  for (int group = row_begin / kRowGroup; group * kRowGroup < row_end; ++group) {
    if (tile.group_begin[group] >= tile.group_end[group]) continue;
    hull.begin = MinInt(hull.begin, tile.group_begin[group]);
    hull.end = hull.end > tile.group_end[group] ? hull.end : tile.group_end[group];
  }
  return hull;
}

// Weights of a bias may be NaN of any bits, of which rounding by integers would make numbers.
inline __m512 PlainNan(__m512 weights) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(weights, weights, _CMP_UNORD_Q), weights,
                              _mm512_set1_ps(__builtin_nanf("")));
}

// 32 weights of a row as products take them, those that the softmax has not written as zero.
template <class FORMAT>
void RoundWeights(const float* weights, int key, int begin, int end, Bf16* to, int64_t low) {
  const auto part = [&](int at) {
    return at < begin || at >= end ? _mm512_setzero_ps() : PlainNan(_mm512_loadu_ps(weights + at));
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

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_ROUNDING_INL_H_
