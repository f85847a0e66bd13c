#ifndef ANNULUS_WORKER_KERNEL_AMX_LANES_H_
#define ANNULUS_WORKER_KERNEL_AMX_LANES_H_

#include <immintrin.h>

#include "worker/kernel/amx_packing.h"
#include "worker/kernel/tile_vector.h"
#include "worker/kernel/vector_avx512.h"

// What the softmax of paths that multiply bf16 numbers does to vectors.

namespace annulus {
namespace {

// 2^t for t <= about 0, by a polynomial of the fraction of t, highest power first; exactly 1 at 0,
// exactly 0 at −inf; NaN stays NaN.
template <int TERMS>
inline __m512 Exp2By(const float (&terms)[TERMS], __m512 t) {
  constexpr int kRoundDown = 0x09;
  const __m512 f = _mm512_maskz_reduce_ps(Avx512::kAll, t, kRoundDown);
  __m512 p = _mm512_set1_ps(terms[0]);
  for (int i = 1; i < TERMS; ++i) p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(terms[i]));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(Avx512::kAll, p, t);
}
// Relative error 1.5e-7.
inline __m512 Exp2Near(__m512 t) {
  constexpr float kTerms[] = {1.867130399e-03f, 9.017029777e-03f, 5.579991266e-02f,
                              2.401644439e-01f, 6.931512952e-01f};
  return Exp2By(kTerms, t);
}
// Relative error 3.4e-6, on average 4e-8, for what is rounded to 8 bits.
inline __m512 Exp2Rough(__m512 t) {
  constexpr float kTerms[] = {1.355574746e-02f, 5.203237012e-02f, 2.413797677e-01f,
                              6.930321455e-01f};
  return Exp2By(kTerms, t);
}

// Of each row's 16 lanes, the result in the row's lane.
template <class Op>
inline __m512 AcrossLanes(const float (*lanes)[kTile], const Op& op) {
  __m512 square[kTile];
  Unroll<kTile>([&](int r) { square[r] = _mm512_load_ps(lanes[r]); });
  return AcrossRows<Avx512>(square, op);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_LANES_H_
