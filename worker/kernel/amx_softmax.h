#ifndef ANNULUS_WORKER_KERNEL_AMX_SOFTMAX_H_
#define ANNULUS_WORKER_KERNEL_AMX_SOFTMAX_H_

#include <immintrin.h>

#include "worker/kernel/amx_packing.h"
#include "worker/kernel/tile_softmax.h"
#include "worker/kernel/tile_vector.h"
#include "worker/kernel/vector_avx512.h"

// The softmax of the AMX path: 16 rows at a time, whether their scores lie in rows or in tiles,
// with the same operations in the same order, so that a row's bits do not depend on which it was.

namespace annulus {
namespace {

// Row r's scores of keys [16 c, 16 c + 16) at first + r · row_stride + c · chunk_stride.
struct ScoreView {
  float* first = nullptr;
  int row_stride = 0, chunk_stride = 0;

  float* At(int row, int chunk) const { return first + row * row_stride + chunk * chunk_stride; }
};

// Chunks of 16 keys.
struct ChunkSpan {
  int begin = 0, end = kKeyBlock / kTile;
};

// 2^t for t <= about 0; exactly 1 at 0, exactly 0 at −inf; NaN stays NaN. Relative error 1.5e-7:
// what is multiplied with it has 8 bits.
inline __m512 Exp2Bf16(__m512 t) {
  constexpr int kRoundDown = 0x09;
  const __m512 f = _mm512_maskz_reduce_ps(Avx512::kAll, t, kRoundDown);
  __m512 p = _mm512_set1_ps(1.867130399e-03f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.017029777e-03f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.579991266e-02f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.401644439e-01f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931512952e-01f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(Avx512::kAll, p, t);
}

// Of each row's 16 lanes, the result in the row's lane.
template <class Op>
inline __m512 AcrossLanes(const float (&lanes)[kTile][kTile], const Op& op) {
  __m512 square[kTile];
  Unroll<kTile>([&](int r) { square[r] = _mm512_load_ps(lanes[r]); });
  Avx512::Transpose(square);
  for (int width = kTile / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) square[i] = op(square[i], square[i + width]);
  }
  return square[0];
}

inline __m512 LargestOf(const ScoreView& view, int row, ChunkSpan part) {
  __m512 top[4];
  for (__m512& one : top) one = _mm512_set1_ps(kMinusInf);
  int c = part.begin;
  for (; c + 4 <= part.end; c += 4) {
    Unroll<4>([&](int i) { top[i] = Avx512::Max(_mm512_loadu_ps(view.At(row, c + i)), top[i]); });
  }
  for (; c < part.end; ++c) top[0] = Avx512::Max(_mm512_loadu_ps(view.At(row, c)), top[0]);
  return Avx512::Max(Avx512::Max(top[0], top[1]), Avx512::Max(top[2], top[3]));
}

// What the rows' state was and becomes, in lanes.
struct RowStates {
  __mmask16 seeing = 0;  // Rows that see something; the others stay as they are.
  __m512 max, weight, alpha, reference;

  void Begin(const TileBlock& tile, int row, __m512 block_max) {
    const __m512 lowest = _mm512_set1_ps(kMinusInf);
    const __m512 old = _mm512_mask_loadu_ps(lowest, seeing, tile.max + row);
    weight = _mm512_maskz_loadu_ps(seeing, tile.weight + row);
    max = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(block_max, old, _CMP_GT_OQ), old, block_max);
    // Nothing but −inf so far: any finite reference gives weights of 0.
    const __mmask16 nothing = _mm512_cmp_ps_mask(max, lowest, _CMP_EQ_OQ);
    reference = _mm512_mask_blend_ps(nothing, max, _mm512_setzero_ps());
    alpha = Exp2Bf16(_mm512_mul_ps(_mm512_sub_ps(old, reference), _mm512_set1_ps(kLog2e)));
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

// scores → exp(scale · score − max) of rows [row, row + count) of the tile, count <= 16, with their
// state brought up to date. part(r): what row r sees, rounded out to chunks; empty: nothing.
// weigh(r, c, weights): takes the weights of a chunk, in order of c.
template <class Part, class Weigh>
inline void SoftmaxRows(const TileBlock& tile, int row, int count, const ScoreView& view,
                        const Part& part, const Weigh& weigh) {
  alignas(64) float lanes[kTile][kTile];
  RowStates states;
  for (int r = 0; r < kTile; ++r) {
    const ChunkSpan seen = r < count ? part(r) : ChunkSpan{0, 0};
    if (seen.begin < seen.end) states.seeing |= static_cast<__mmask16>(1u << r);
    _mm512_store_ps(lanes[r], LargestOf(view, r, seen));
  }
  const __m512 scale = _mm512_set1_ps(tile.softmax_scale);
  const auto max = [](__m512 a, __m512 b) { return Avx512::Max(a, b); };
  states.Begin(tile, row, _mm512_mul_ps(AcrossLanes(lanes, max), scale));
  alignas(64) float references[kTile];
  _mm512_store_ps(references, states.reference);
  const __m512 log2e = _mm512_set1_ps(kLog2e);
  for (int r = 0; r < count; ++r) {
    const ChunkSpan seen = part(r);
    const __m512 reference = _mm512_set1_ps(references[r]);
    __m512 sum[4];
    for (__m512& one : sum) one = _mm512_setzero_ps();
    const auto add = [&](int c, int lane) {
      // Not as one multiply-add: the largest score must give exactly 0.
      const __m512 score = _mm512_mul_ps(_mm512_loadu_ps(view.At(r, c)), scale);
      const __m512 t = _mm512_mul_ps(_mm512_sub_ps(score, reference), log2e);
      const __m512 p = Exp2Bf16(t);
      sum[lane] = _mm512_add_ps(sum[lane], p);
      weigh(r, c, p);
    };
    const int fours = (seen.end - seen.begin) / 4;  // From a multiple of 4 on.
    for (int four = 0; four < fours; ++four) {
      Unroll<4>([&](int i) { add(seen.begin + 4 * four + i, i); });
    }
    for (int i = 0; i < 3; ++i) {
      if (seen.begin + 4 * fours + i < seen.end) add(seen.begin + 4 * fours + i, i);
    }
    _mm512_store_ps(lanes[r],
                    _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
  }
  const auto plus = [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); };
  states.End(tile, row, AcrossLanes(lanes, plus));
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_SOFTMAX_H_
