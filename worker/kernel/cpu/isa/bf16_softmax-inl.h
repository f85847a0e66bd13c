#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_SOFTMAX_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_SOFTMAX_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/isa/bf16_packing-inl.h"
#include "worker/kernel/cpu/isa/tile_softmax-inl.h"
#include "worker/kernel/cpu/isa/vector-inl.h"
#include "worker/kernel/cpu/isa/vector_avx512-inl.h"

// The online softmax of AMX and AVX512-BF16. It takes 16 rows at a time, with scores in rows or in
// AMX tiles. Compiled for AVX-512 with BF16 and included by tile_avx512bf16.cc, amx_isa-inl.h,
// amx_scores-inl.h and amx_streaming_pipeline-inl.h. Start at SoftmaxAmx; the AMX pipelines call
// RaiseStates and WeighRows themselves.
namespace annulus {

// Scores of a row → weights.

namespace {

// Row r's scores of keys [16 c, 16 c + 16) are at first + r · ROW + c · CHUNK.
template <int ROW, int CHUNK>
struct ScoreView {
  float* first;

  float* At(int row, int chunk) const { return first + row * ROW + chunk * CHUNK; }
};

// A row's score → exp(scale · score − max).
template <class FORMAT>
struct Weighing {
  __m512 scale, reference;

  // Not one multiply-add: the largest score must give exactly 0.
  __m512 operator()(__m512 score) const {
    return FORMAT::Exp2(_mm512_mul_ps(_mm512_sub_ps(_mm512_mul_ps(score, scale), reference),
                                      _mm512_set1_ps(kLog2e)));
  }
};

// Returns the sum of the weights of four chunks of a row from `chunk` on. Only `left` of them
// exist; the others have weight 0. Calls take(row, c, first, second) with the weights of chunks c
// and c + 1, in order of c.
template <class FORMAT, class View, class Take>
inline __attribute__((always_inline)) __m512 WeighFour(View view, int row, int chunk, int left,
                                                       const Weighing<FORMAT>& weighing,
                                                       const Take& take) {
  __m512 weights[4];
  Unroll<4>([&](int i) {
    weights[i] =
        i < left ? weighing(_mm512_loadu_ps(view.At(row, chunk + i))) : _mm512_setzero_ps();
  });
  take(row, chunk, weights[0], weights[1]);
  if (left > 2) take(row, chunk + 2, weights[2], weights[3]);
  return _mm512_add_ps(_mm512_add_ps(weights[0], weights[1]),
                       _mm512_add_ps(weights[2], weights[3]));
}

}  // namespace

// The running state of 16 rows.

namespace {

// The state of 16 rows before and after the block, one row per lane.
struct RowStates {
  __mmask16 seeing;  // Rows that see a key; the others keep their state.
  __m512 old, weight, max, alpha, reference, slack;

  RowStates(const TileBlock& tile, int row, __mmask16 rows)
      : seeing(rows), slack(_mm512_set1_ps(tile.slack)) {
    old = _mm512_mask_loadu_ps(_mm512_set1_ps(kMinusInf), seeing, tile.max + row);
    weight = _mm512_maskz_loadu_ps(seeing, tile.weight + row);
  }

  // A score above its row's bound raises the row's maximum.
  __m512 Bounds() const {
    return _mm512_mask_blend_ps(seeing, _mm512_set1_ps(-kMinusInf), _mm512_add_ps(old, slack));
  }
  // True if maxima may stay: no row is still without a maximum.
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
    // All scores were −inf so far: any finite reference gives weights of 0.
    const __mmask16 nothing = _mm512_cmp_ps_mask(max, lowest, _CMP_EQ_OQ);
    reference = _mm512_mask_blend_ps(nothing, max, _mm512_setzero_ps());
    alpha = Exp2Near(_mm512_mul_ps(_mm512_sub_ps(old, reference), _mm512_set1_ps(kLog2e)));
  }
  void End(const TileBlock& tile, int row, __m512 block_weight) const {
    const __m512 lowest = _mm512_set1_ps(kMinusInf);
    // A row whose every score is NaN has a maximum of −inf, which would mean "has seen no key".
    const __mmask16 lost = _mm512_cmp_ps_mask(block_weight, block_weight, _CMP_UNORD_Q) &
                           _mm512_cmp_ps_mask(max, lowest, _CMP_EQ_OQ);
    _mm512_mask_storeu_ps(tile.max + row, seeing, _mm512_mask_blend_ps(lost, max, block_weight));
    _mm512_mask_storeu_ps(tile.weight + row, seeing, _mm512_fmadd_ps(weight, alpha, block_weight));
    _mm512_mask_storeu_ps(tile.alpha + row, seeing, alpha);
  }
};

// Returns true if no row has sums yet. Otherwise clears the sums of the rows that have none.
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

// True if some lane of a row, times `scale`, is above the row's lane of `bounds`.
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

// The softmax of 16 rows. Scores in rows and scores in tiles go through the same operations in the
// same order, so a row's bits do not depend on which.

namespace {

// Chunks of 16 keys.
struct ChunkSpan {
  int begin = 0, end = kKeyBlock / kTile;
};

template <class View>
inline __attribute__((always_inline)) __m512 LargestOf(View view, int row, ChunkSpan part) {
  __m512 top[4];
  for (__m512& one : top) one = _mm512_set1_ps(kMinusInf);
  int c = part.begin;
  for (; c + 4 <= part.end; c += 4) {
    Unroll<4>([&](int i) { top[i] = Avx512::Max(_mm512_loadu_ps(view.At(row, c + i)), top[i]); });
  }
  for (; c < part.end; ++c) top[0] = Avx512::Max(_mm512_loadu_ps(view.At(row, c)), top[0]);
  return Avx512::Max(Avx512::Max(top[0], top[1]), Avx512::Max(top[2], top[3]));
}

// For each of 16 rows: the part that it sees, rounded out to chunks (empty: nothing), and the
// largest score of each of 16 lanes.
struct RowScores {
  ChunkSpan part[kTile];
  alignas(64) float largest[kTile][kTile];
};

// Updates the maxima of 16 rows with the largest of their scores, in any lane. Returns true if all
// rows had a maximum and some row's rose.
inline bool RaiseStates(const float (*largest)[kTile], __m512 scale, RowStates& states) {
  const bool can_stay = states.CanStay();
  if (can_stay && !AnyAbove(largest, scale, states.Bounds())) {
    states.Stay();
    return false;
  }
  const auto max = [](__m512 a, __m512 b) { return Avx512::Max(a, b); };
  states.Raise(_mm512_mul_ps(AcrossLanes(largest, max), scale));
  return can_stay;
}
inline __m512 SumsOf(const float (*lanes)[kTile]) {
  return AcrossLanes(lanes, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); });
}

// Computes the weights of rows [row, row + count) of the tile, count <= 16, and updates their
// state; `take` as for WeighFour.
template <class FORMAT, class View, class Take>
inline __attribute__((always_inline)) void WeighRows(const TileBlock& tile, int row, int count,
                                                     View view, RowScores& scores,
                                                     const Take& take) {
  __mmask16 seeing = 0;
  for (int r = 0; r < count; ++r) {
    if (scores.part[r].begin < scores.part[r].end) seeing |= static_cast<__mmask16>(1u << r);
  }
  const __m512 scale = _mm512_set1_ps(tile.softmax_scale);
  RowStates states(tile, row, seeing);
  RaiseStates(scores.largest, scale, states);
  alignas(64) float references[kTile], sums[kTile][kTile];
  _mm512_store_ps(references, states.reference);
  for (int r = 0; r < count; ++r) {
    const ChunkSpan seen = scores.part[r];
    const Weighing<FORMAT> weighing{scale, _mm512_set1_ps(references[r])};
    __m512 sum = _mm512_setzero_ps();
    int c = seen.begin;  // A multiple of 4.
    for (; c + 4 <= seen.end; c += 4)
      sum = _mm512_add_ps(sum, WeighFour(view, r, c, 4, weighing, take));
    if (c < seen.end) sum = _mm512_add_ps(sum, WeighFour(view, r, c, seen.end - c, weighing, take));
    _mm512_store_ps(sums[r], sum);
  }
  states.End(tile, row, SumsOf(sums));
}

// The softmax of all rows, with scores and weights in rows.
template <class FORMAT>
void SoftmaxAmx(const TileBlock& tile) {
  RowScores scores;
  for (int row = 0; row < tile.rows; row += kTile) {
    const ScoreView<kKeyBlock, kTile> view{tile.scores + int64_t{row} * kKeyBlock};
    const int count = MinInt(kTile, tile.rows - row);
    for (int r = 0; r < kTile; ++r) {
      const KeySpan keys = r < count ? WrittenPart<Avx512>(tile, row + r) : KeySpan{};
      scores.part[r] = {keys.begin / kTile, keys.end / kTile};
      _mm512_store_ps(scores.largest[r], LargestOf(view, r, scores.part[r]));
    }
    const auto take = [&](int r, int c, __m512 first, __m512 second) {
      _mm512_storeu_ps(view.At(r, c), first);
      _mm512_storeu_ps(view.At(r, c + 1), second);
    };
    WeighRows<FORMAT>(tile, row, count, view, scores, take);
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_SOFTMAX_INL_H_
