#ifndef ANNULUS_WORKER_KERNEL_AMX_SOFTMAX_H_
#define ANNULUS_WORKER_KERNEL_AMX_SOFTMAX_H_

#include <immintrin.h>

#include "worker/kernel/amx_lanes.h"
#include "worker/kernel/amx_states.h"
#include "worker/kernel/amx_weighing.h"
#include "worker/kernel/tile_softmax.h"
#include "worker/kernel/tile_vector.h"
#include "worker/kernel/vector_avx512.h"

// The softmax of paths that multiply bf16 numbers: 16 rows at a time, whether their scores lie in
// rows or in tiles, with the same operations in the same order, so that a row's bits do not depend
// on which it was.

namespace annulus {
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

// Of each of 16 rows what it sees, rounded out to chunks (empty: nothing), and of each of 16 lanes
// the largest of its scores.
struct RowScores {
  ChunkSpan part[kTile];
  alignas(64) float largest[kTile][kTile];
};

// Brings the maxima of 16 rows up to date with the largest of their scores, in any lane. Returns
// whether some row had one that did not stay.
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

// The weights of rows [row, row + count) of the tile, count <= 16, with their state brought up to
// date; `take` as for WeighFour.
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

// Of all rows, whose scores lie in rows, and then their weights.
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

#endif  // ANNULUS_WORKER_KERNEL_AMX_SOFTMAX_H_
