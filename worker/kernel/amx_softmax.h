#ifndef ANNULUS_WORKER_KERNEL_AMX_SOFTMAX_H_
#define ANNULUS_WORKER_KERNEL_AMX_SOFTMAX_H_

#include <immintrin.h>

#include "worker/kernel/amx_lanes.h"
#include "worker/kernel/amx_states.h"
#include "worker/kernel/tile_softmax.h"
#include "worker/kernel/tile_vector.h"
#include "worker/kernel/vector_avx512.h"

// The softmax of the AMX path: 16 rows at a time, whether their scores lie in rows or in tiles,
// with the same operations in the same order, so that a row's bits do not depend on which it was.

namespace annulus {
namespace {

// Row r's scores of keys [16 c, 16 c + 16) at first + r · ROW + c · CHUNK.
template <int ROW, int CHUNK>
struct ScoreView {
  float* first;

  float* At(int row, int chunk) const { return first + row * ROW + chunk * CHUNK; }
};

// Chunks of 16 keys.
struct ChunkSpan {
  int begin = 0, end = kKeyBlock / kTile;
};

template <class View>
inline __m512 LargestOf(View view, int row, ChunkSpan part) {
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

// The exponentials of four chunks, or of the `left` of them that there are; zeros for the others.
template <class View, class Weight>
inline __attribute__((always_inline)) void WeighFour(View view, int row, int chunk, int left,
                                                     const Weight& weight, __m512 (&sum)[4],
                                                     __m512 (&weights)[4]) {
  Unroll<4>([&](int i) {
    weights[i] = _mm512_setzero_ps();
    if (i >= left) return;
    weights[i] = weight(_mm512_loadu_ps(view.At(row, chunk + i)));
    sum[i] = _mm512_add_ps(sum[i], weights[i]);
  });
}

// scores → exp(scale · score − max) of rows [row, row + count) of the tile, count <= 16, with their
// state brought up to date. weigh(r, c, first, second): takes the weights of chunks c and c + 1,
// in order of c.
template <class View, class Weigh>
inline __attribute__((always_inline)) void WeighRows(const TileBlock& tile, int row, int count,
                                                     View view, RowScores& scores,
                                                     const Weigh& weigh) {
  __mmask16 seeing = 0;
  for (int r = 0; r < count; ++r) {
    if (scores.part[r].begin < scores.part[r].end) seeing |= static_cast<__mmask16>(1u << r);
  }
  const __m512 scale = _mm512_set1_ps(tile.softmax_scale);
  RowStates states(tile, row, seeing);
  if (states.CanStay() && !AnyAbove(scores.largest, scale, states.Bounds())) {
    states.Stay();
  } else {
    const auto max = [](__m512 a, __m512 b) { return Avx512::Max(a, b); };
    states.Raise(_mm512_mul_ps(AcrossLanes(scores.largest, max), scale));
  }
  alignas(64) float references[kTile], sums[kTile][kTile];
  _mm512_store_ps(references, states.reference);
  const __m512 log2e = _mm512_set1_ps(kLog2e);
  for (int r = 0; r < count; ++r) {
    const ChunkSpan seen = scores.part[r];
    const __m512 reference = _mm512_set1_ps(references[r]);
    // Not as one multiply-add: the largest score must give exactly 0.
    const auto weight = [&](__m512 score) {
      return Exp2Bf16(_mm512_mul_ps(_mm512_sub_ps(_mm512_mul_ps(score, scale), reference), log2e));
    };
    __m512 sum[4], weights[4];
    for (__m512& one : sum) one = _mm512_setzero_ps();
    int c = seen.begin;  // A multiple of 4.
    for (; c + 4 <= seen.end; c += 4) {
      WeighFour(view, r, c, 4, weight, sum, weights);
      weigh(r, c, weights[0], weights[1]);
      weigh(r, c + 2, weights[2], weights[3]);
    }
    if (c < seen.end) {
      WeighFour(view, r, c, seen.end - c, weight, sum, weights);
      weigh(r, c, weights[0], weights[1]);
      if (c + 2 < seen.end) weigh(r, c + 2, weights[2], weights[3]);
    }
    _mm512_store_ps(sums[r],
                    _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
  }
  const auto plus = [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); };
  states.End(tile, row, AcrossLanes(sums, plus));
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_SOFTMAX_H_
