#ifndef ANNULUS_WORKER_KERNEL_AMX_SPLIT_H_
#define ANNULUS_WORKER_KERNEL_AMX_SPLIT_H_

#include <immintrin.h>

#include "worker/kernel/amx_packing.h"

// Numbers as sums of two bf16 numbers: fp16 ones exactly, fp32 ones to 17 bits.

namespace annulus {
namespace {

// The parts of 16 numbers, each the upper half of an fp32 number; infinities and NaN are all high.
struct Parts {
  __m512i high, low;
  __mmask16 infinite;
};

inline __m512i RoundToBf16(__m512 x) {
  const __m256i bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
  return _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, bits), 16);
}

inline Parts PartsOf(__m512 x) {
  const __m512i exponent = _mm512_set1_epi32(0x7f800000);
  const __m512i bits = _mm512_castps_si512(x);
  const __mmask16 not_finite = _mm512_cmpeq_epi32_mask(_mm512_and_si512(bits, exponent), exponent);
  Parts parts;
  parts.high = RoundToBf16(x);
  // Numbers that would be rounded to infinity are cut off instead.
  const __mmask16 over = _mm512_cmpeq_epi32_mask(_mm512_and_si512(parts.high, exponent), exponent);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  parts.high = _mm512_mask_and_epi32(parts.high, over & ~not_finite, bits, upper);
  parts.low = RoundToBf16(
      _mm512_maskz_sub_ps(static_cast<__mmask16>(~not_finite), x, _mm512_castsi512_ps(parts.high)));
  parts.infinite = static_cast<__mmask16>(not_finite & _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q));
  return parts;
}

// Two times 16 upper halves as 32 bf16 numbers, those of `first` first.
inline __m512i Halves(__m512i first, __m512i second) {
  return reinterpret_cast<__m512i>(
      _mm512_cvtne2ps_pbh(_mm512_castsi512_ps(second), _mm512_castsi512_ps(first)));
}

// 16 numbers of a row of fp16 or fp32, from `begin` on, zeros past its end.
inline __m512 LoadNumbers(DataType dtype, const std::byte* row, int begin, int dim) {
  const int left = dim - begin;
  if (left <= 0) return _mm512_setzero_ps();
  const auto mask = static_cast<__mmask16>(left >= kTile ? 0xffffu : (1u << left) - 1);
  if (dtype == DataType::kFp32) return _mm512_maskz_loadu_ps(mask, row + int64_t{begin} * 4);
  return _mm512_maskz_cvtph_ps(kAll, _mm256_maskz_loadu_epi16(mask, row + int64_t{begin} * 2));
}

// Both parts of 32 numbers, as bf16 numbers.
struct RowParts {
  __m512i high, low;
};

// 32 numbers of a row of fp16, from `begin` on, times ±1; false where one is not finite. All others
// are the sums of their parts: none is rounded to infinity.
inline bool LoadFiniteFp16(const std::byte* row, int begin, int dim, __m512i sign, RowParts* out) {
  const __m512i exponent = _mm512_set1_epi16(0x7c00);
  const __m512i bits = LoadPart32(row, begin, dim);
  if (_mm512_cmpeq_epi16_mask(_mm512_and_si512(bits, exponent), exponent) != 0) return false;
  const auto halves = [](__m512i of, __m256i* to) {
    to[0] = _mm512_maskz_extracti64x4_epi64(0xf, of, 0);
    to[1] = _mm512_maskz_extracti64x4_epi64(0xf, of, 1);
  };
  __m256i half[2];
  __m512 numbers[2];
  halves(bits, half);
  for (int i = 0; i < 2; ++i) {
    const __m512 number = _mm512_maskz_cvtph_ps(kAll, half[i]);
    numbers[i] = _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(number), sign));
  }
  out->high = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(numbers[1], numbers[0]));
  halves(out->high, half);
  for (int i = 0; i < 2; ++i) {
    const __m512i upper = _mm512_maskz_cvtepu16_epi32(kAll, half[i]);
    numbers[i] =
        _mm512_sub_ps(numbers[i], _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, upper, 16)));
  }
  out->low = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(numbers[1], numbers[0]));
  return true;
}

// 32 numbers of a row, from `begin` on, times ±1; true where one is infinite.
inline bool LoadParts32(DataType dtype, const std::byte* row, int begin, int dim, __m512i sign,
                        RowParts* out) {
  if (dtype == DataType::kFp16 && LoadFiniteFp16(row, begin, dim, sign, out)) return false;
  const auto part = [&](int from) {
    return PartsOf(_mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(LoadNumbers(dtype, row, from, dim)), sign)));
  };
  const Parts first = part(begin), second = part(begin + kTile);
  out->high = Halves(first.high, second.high);
  out->low = Halves(first.low, second.low);
  return (first.infinite | second.infinite) != 0;
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_SPLIT_H_
