#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_FINISH_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_FINISH_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/isa/avx512_finish-inl.h"

namespace annulus {
namespace {

// Returns false if some number is out of range for this division; `out` is then undefined. No
// quotient is subnormal; the rounding instruction would take such a number as zero.
inline bool MultiplyRowToBf16(const float* sums, const RowDivision& by, int dim, std::byte* out) {
  constexpr int kLanes = 16, kNumbers = 2 * kLanes;
  RowQuotients quotients(by);
  int i = 0;
  for (; i + kNumbers <= dim; i += kNumbers) {
    const __m512 first = quotients.Of(_mm512_loadu_ps(sums + i));
    const __m512 second = quotients.Of(_mm512_loadu_ps(sums + i + kLanes));
    _mm512_storeu_si512(out + int64_t{i} * 2,
                        reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
  }
  if (const int left = dim - i; left > 0) {
    const __m512 first = quotients.Of(sums + i, FirstLanes(left));
    const __m512 second = quotients.Of(sums + i + kLanes, FirstLanes(left - kLanes));
    _mm512_mask_storeu_epi16(out + int64_t{i} * 2, (1u << left) - 1,
                             reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
  }
  return !quotients.refused();
}

// Same result as FinishRow, bit for bit.
inline void FinishRowAmx(const float* sums, const RowDivision& by, int dim, DataType dtype,
                         std::byte* out) {
  if (dtype != DataType::kBf16) return FinishRowAvx512(sums, by, dim, dtype, out);
  if (by.instead || !CanMultiply(by.divisor) || !MultiplyRowToBf16(sums, by, dim, out))
    FinishRow(sums, by, dim, dtype, out);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_FINISH_INL_H_
