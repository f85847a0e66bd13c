#ifndef ANNULUS_WORKER_KERNEL_AMX_STATES_H_
#define ANNULUS_WORKER_KERNEL_AMX_STATES_H_

#include <immintrin.h>

#include "worker/kernel/amx_lanes.h"
#include "worker/kernel/tile_softmax.h"

// The running state of 16 rows on paths that multiply bf16 numbers.

namespace annulus {
namespace {

// What the rows' state was and becomes, in lanes.
struct RowStates {
  __mmask16 seeing;  // Rows that see something; the others stay as they are.
  __m512 old, weight, max, alpha, reference, slack;

  RowStates(const TileBlock& tile, int row, __mmask16 rows)
      : seeing(rows), slack(_mm512_set1_ps(tile.slack)) {
    old = _mm512_mask_loadu_ps(_mm512_set1_ps(kMinusInf), seeing, tile.max + row);
    weight = _mm512_maskz_loadu_ps(seeing, tile.weight + row);
  }

  // What a score must exceed to raise its row's maximum.
  __m512 Bounds() const {
    return _mm512_mask_blend_ps(seeing, _mm512_set1_ps(-kMinusInf), _mm512_add_ps(old, slack));
  }
  // Maxima stay. Not for rows that have seen nothing yet.
  bool CanStay() const {
    return _mm512_mask_cmp_ps_mask(seeing, old, _mm512_set1_ps(kMinusInf), _CMP_EQ_OQ) == 0;
  }
  void Stay() {
    max = reference = old;
    alpha = _mm512_set1_ps(1);
  }
  void Raise(__m512 block_max) {
    const __m512 lowest = _mm512_set1_ps(kMinusInf);
    const __mmask16 above = _mm512_cmp_ps_mask(block_max, Bounds(), _CMP_GT_OQ);
    max = _mm512_mask_blend_ps(above, old, block_max);
    // Nothing but −inf so far: any finite reference gives weights of 0.
    const __mmask16 nothing = _mm512_cmp_ps_mask(max, lowest, _CMP_EQ_OQ);
    reference = _mm512_mask_blend_ps(nothing, max, _mm512_setzero_ps());
    alpha = Exp2Near(_mm512_mul_ps(_mm512_sub_ps(old, reference), _mm512_set1_ps(kLog2e)));
  }
  void End(const TileBlock& tile, int row, __m512 block_weight) const {
    const __m512 lowest = _mm512_set1_ps(kMinusInf);
    // A row whose every score is NaN has a maximum of −inf, which would say "nothing seen".
    const __mmask16 lost = _mm512_cmp_ps_mask(block_weight, block_weight, _CMP_UNORD_Q) &
                           _mm512_cmp_ps_mask(max, lowest, _CMP_EQ_OQ);
    _mm512_mask_storeu_ps(tile.max + row, seeing, _mm512_mask_blend_ps(lost, max, block_weight));
    _mm512_mask_storeu_ps(tile.weight + row, seeing, _mm512_fmadd_ps(weight, alpha, block_weight));
    _mm512_mask_storeu_ps(tile.alpha + row, seeing, alpha);
  }
};

// Whether none of the rows has sums yet; clears those of rows that have none beside others.
inline bool BeginSums(const TileBlock& tile, int row, int count) {
  int begun = 0;
  for (int r = row; r < row + count; ++r) begun += tile.max[r] != kMinusInf ? 1 : 0;
  if (begun == 0) return true;
  for (int r = row; begun < count && r < row + count; ++r) {
    if (tile.max[r] != kMinusInf) continue;
    float* sums = tile.sums + int64_t{r} * tile.sum_stride;
    for (int i = 0; i < tile.value_dim; i += kTile) _mm512_storeu_ps(sums + i, _mm512_setzero_ps());
  }
  return false;
}

// Whether some lane of a row, times `scale`, is above the row's lane of `bounds`.
inline bool AnyAbove(const float (*lanes)[kTile], __m512 scale, __m512 bounds) {
  alignas(64) float bound[kTile];
  _mm512_store_ps(bound, bounds);
  __mmask16 above = 0;
  Unroll<kTile>([&](int r) {
    above |= _mm512_cmp_ps_mask(_mm512_mul_ps(_mm512_load_ps(lanes[r]), scale),
                                _mm512_set1_ps(bound[r]), _CMP_GT_OQ);
  });
  return above != 0;
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_STATES_H_
