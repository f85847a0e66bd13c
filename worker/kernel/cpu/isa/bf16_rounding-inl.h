#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_ROUNDING_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_ROUNDING_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/isa/bf16_formats-inl.h"

// Rounding of the weights of rows, in place, for products of bf16 numbers.

namespace annulus {
namespace {

// The hull of the keys of a block that some rows see.
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

// A bias may make weights that are NaN with any bits; rounding with integers would turn those into
// numbers.
inline __m512 PlainNan(__m512 weights) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(weights, weights, _CMP_UNORD_Q), weights,
                              _mm512_set1_ps(__builtin_nanf("")));
}

// Stores 32 weights of a row as products take them. Keys outside [begin, end), which the softmax
// has not written, become zero.
template <class FORMAT>
void RoundWeights(const float* weights, int key, int begin, int end, Bf16* to, int64_t low) {
  const auto part = [&](int at) {
    return at < begin || at >= end ? _mm512_setzero_ps() : PlainNan(_mm512_loadu_ps(weights + at));
  };
  FORMAT::StoreWeights(part(key), part(key + kTile), to, low);
}

// Overwrites the row's own scores: no write is ahead of the reads.
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
