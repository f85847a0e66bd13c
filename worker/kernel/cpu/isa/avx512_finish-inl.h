#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_AVX512_FINISH_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_AVX512_FINISH_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/isa/tile_finish-inl.h"

// The epilogue of a row on AVX-512: sums / divisor, rounded to the output type, by multiplications
// in place of divisions. Compiled with -mavx512f. Included by tile_avx512.cc and bf16_finish-inl.h.
// Start at FinishRowAvx512.
namespace annulus {
namespace {

// The range in which division by multiplication stays normal, remainders included.
constexpr float kLeastDivided = 0x1p-60f, kMostDivided = 0x1p60f;

inline bool CanMultiply(float divisor) {
  return divisor >= kLeastDivided && divisor <= kMostDivided;
}

inline __mmask16 FirstLanes(int count) {
  if (count <= 0) return 0;
  return static_cast<__mmask16>(count >= 16 ? 0xffff : (1 << count) - 1);
}

// The quotients of FinishRow for a divisor with CanMultiply, not yet rounded to a type. A correctly
// rounded reciprocal and one step with the exact remainder give a correctly rounded quotient
// (Markstein).
class RowQuotients {
 public:
  explicit RowQuotients(const RowDivision& by)
      : by_(_mm512_set1_ps(by.divisor)),
        once_(_mm512_set1_ps(1 / by.divisor)),
        scale_(_mm512_set1_ps(by.scale)) {}

  // The quotients of the sums in lanes `there`; 0 in other lanes.
  inline __attribute__((always_inline)) __m512 Of(const float* sums, __mmask16 there) {
    return Of(_mm512_maskz_loadu_ps(there, sums));
  }
  inline __attribute__((always_inline)) __m512 Of(__m512 sums) {
    const __m512 number = _mm512_mul_ps(scale_, sums);
    const __m512i bits = WithoutSign(number);
    most_ = _mm512_maskz_max_epu32(0xffff, most_, bits);
    // Minus one, so that 0 becomes the largest.
    least_ = _mm512_maskz_min_epu32(0xffff, least_, LessOne(bits));
    const __m512 near = _mm512_mul_ps(number, once_);
    const __m512 rest = _mm512_fnmadd_ps(near, by_, number);
    return _mm512_add_ps(_mm512_fmadd_ps(rest, once_, near), _mm512_setzero_ps());
  }
  // True if some number so far is out of range for this division.
  bool refused() const {
    const __m512i most = WithoutSign(_mm512_set1_ps(kMostDivided));
    const __m512i least = WithoutSign(_mm512_set1_ps(kLeastDivided));
    return (_mm512_cmpgt_epu32_mask(most_, most) |
            _mm512_cmplt_epu32_mask(least_, LessOne(least))) != 0;
  }

 private:
  static __m512i WithoutSign(__m512 number) {
    return _mm512_maskz_slli_epi32(0xffff, _mm512_castps_si512(number), 1);
  }

  static __m512i LessOne(__m512i bits) { return _mm512_sub_epi32(bits, _mm512_set1_epi32(1)); }

  const __m512 by_, once_, scale_;
  // Over all numbers so far, without signs: the largest, and the smallest that is not 0, minus one.
  __m512i most_ = _mm512_setzero_si512(), least_ = _mm512_set1_epi32(-1);
};

// Returns false if some number is out of range; `row` is then undefined.
inline bool MultiplyRow(const float* sums, const RowDivision& by, int dim, float* row) {
  constexpr int kLanes = 16;
  RowQuotients quotients(by);
  for (int i = 0; i < dim; i += kLanes)
    _mm512_store_ps(row + i, quotients.Of(sums + i, FirstLanes(dim - i)));
  return !quotients.refused();
}

// Same result as FinishRow, bit for bit.
inline void FinishRowAvx512(const float* sums, const RowDivision& by, int dim, DataType dtype,
                            std::byte* out) {
  alignas(64) float row[kMaxHeadDim];
  if (by.instead || !CanMultiply(by.divisor) || !MultiplyRow(sums, by, dim, row)) {
    return FinishRow(sums, by, dim, dtype, out);
  }
  RoundAll(dtype, row, dim, out);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_AVX512_FINISH_INL_H_
