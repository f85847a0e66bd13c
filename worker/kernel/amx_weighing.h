#ifndef ANNULUS_WORKER_KERNEL_AMX_WEIGHING_H_
#define ANNULUS_WORKER_KERNEL_AMX_WEIGHING_H_

#include <immintrin.h>

#include "worker/kernel/amx_lanes.h"
#include "worker/kernel/tile_softmax.h"

// Scores of a row → weights, on paths that multiply bf16 numbers.

namespace annulus {
namespace {

// Row r's scores of keys [16 c, 16 c + 16) at first + r · ROW + c · CHUNK.
template <int ROW, int CHUNK>
struct ScoreView {
  float* first;

  float* At(int row, int chunk) const { return first + row * ROW + chunk * CHUNK; }
};

// A row's score → exp(scale · score − max).
template <class FORMAT>
struct Weighing {
  __m512 scale, reference;

  // Not as one multiply-add: the largest score must give exactly 0.
  __m512 operator()(__m512 score) const {
    return FORMAT::Exp2(_mm512_mul_ps(_mm512_sub_ps(_mm512_mul_ps(score, scale), reference),
                                      _mm512_set1_ps(kLog2e)));
  }
};

// The weights of a row's four chunks from `chunk` on, or of the `left` of them that there are
// (others weigh nothing), added up. take(row, c, first, second): gets those of chunks c and c + 1,
// in order of c.
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
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_WEIGHING_H_
