#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_VECTOR_AVX512_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_VECTOR_AVX512_INL_H_

#include <immintrin.h>

#include <cstddef>

#include "worker/kernel/cpu/isa/philox_words-inl.h"

// The vector type of the AVX-512 paths (vector-inl.h). Included by files that are compiled with
// -mavx512f.

namespace annulus {
namespace {

struct Avx512 {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kDotRun = 32;
  // 6 × 4 accumulators, 4 of B, 1 broadcast: 29 of 32 registers.
  static constexpr int kPanelVectors = 4;

  // GCC 12's unmasked forms of these start from an undefined register, and its own warning then
  // reports that.
  static constexpr __mmask16 kAll = 0xffff;
  static constexpr __mmask8 kEight = 0xff;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set(float v) { return _mm512_set1_ps(v); }
  static F Load(const float* at) { return _mm512_loadu_ps(at); }
  static void Store(float* at, F v) { _mm512_storeu_ps(at, v); }
  static F LoadBf16(const std::byte* at) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm512_castsi512_ps(
        _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, bits), 16));
  }
  static F LoadFp16(const std::byte* at) {
    return _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F AddTerm(F a, F b, F sum) { return Fma(a, b, sum); }
  static F Max(F a, F b) { return _mm512_maskz_max_ps(kAll, a, b); }
  static F IfLess(F a, F b, F x, F y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
  }
  static bool AnyLess(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) != 0; }
  static F Choose(uint32_t bits, F x, F y) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>(bits), y, x);
  }
  static F Distance(int32_t n, const int32_t* at) {
    const __m512i apart = _mm512_sub_epi32(_mm512_set1_epi32(n), _mm512_loadu_si512(at));
    return _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_abs_epi32(kAll, apart));
  }
  // Each counter has 8 bytes of a vector; the upper four bytes that products leave are ignored.
  static uint32_t WordsBelow(const uint32_t* counters, const uint32_t* row, const PhiloxKeys& keys,
                             uint32_t threshold) {
    // In this order the words below come out side by side.
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i unpacked = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(counters));
    __m512i c0 = _mm512_maskz_cvtepu32_epi64(kEight, _mm256_permutevar8x32_epi32(unpacked, order));
    __m512i c1 = _mm512_set1_epi64(row[0]), c2 = _mm512_set1_epi64(row[1]);
    __m512i c3 = _mm512_set1_epi64(row[2]);
    const __m512i times_a = _mm512_set1_epi64(kPhiloxA), times_b = _mm512_set1_epi64(kPhiloxB);
    constexpr int kXor = 0x96;  // Exclusive or of three.
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const __m512i a = _mm512_maskz_mul_epu32(kEight, c0, times_a);
      const __m512i b = _mm512_maskz_mul_epu32(kEight, c2, times_b);
      c0 = _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(kEight, b, 32), c1,
                                     _mm512_set1_epi64(static_cast<int64_t>(keys.first[round])),
                                     kXor);
      c2 = _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(kEight, a, 32), c3,
                                     _mm512_set1_epi64(static_cast<int64_t>(keys.second[round])),
                                     kXor);
      c1 = b;
      c3 = a;
    }
    constexpr __mmask16 kOdd = 0xaaaa;
    const __m512i first = _mm512_mask_shuffle_epi32(c0, kOdd, c1, _MM_PERM_CCAA);
    const __m512i second = _mm512_mask_shuffle_epi32(c2, kOdd, c3, _MM_PERM_CCAA);
    const __m512i low = _mm512_maskz_unpacklo_epi64(kEight, first, second);
    const __m512i high = _mm512_maskz_unpackhi_epi64(kEight, first, second);
    const __m512i bound = _mm512_set1_epi32(static_cast<int>(threshold));
    return static_cast<uint32_t>(_mm512_cmplt_epu32_mask(low, bound)) |
           static_cast<uint32_t>(_mm512_cmplt_epu32_mask(high, bound)) << 16;
  }
  static F ShiftToExponent(F a) {
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, _mm512_castps_si512(a), 23));
  }
  static inline __attribute__((always_inline)) void Transpose(F (&rows)[16]) {
    F pairs[16];  // [2i], [2i + 1]: rows 2i and 2i + 1 interleaved.
    for (int i = 0; i < 16; i += 2) {
      pairs[i] = _mm512_maskz_unpacklo_ps(kAll, rows[i], rows[i + 1]);
      pairs[i + 1] = _mm512_maskz_unpackhi_ps(kAll, rows[i], rows[i + 1]);
    }
    F fours[16];  // [4i + c]: columns c, 4 + c, 8 + c and 12 + c of rows 4i to 4i + 3.
    for (int i = 0; i < 16; i += 4) {
      fours[i] = _mm512_maskz_shuffle_ps(kAll, pairs[i], pairs[i + 2], 0x44);
      fours[i + 1] = _mm512_maskz_shuffle_ps(kAll, pairs[i], pairs[i + 2], 0xee);
      fours[i + 2] = _mm512_maskz_shuffle_ps(kAll, pairs[i + 1], pairs[i + 3], 0x44);
      fours[i + 3] = _mm512_maskz_shuffle_ps(kAll, pairs[i + 1], pairs[i + 3], 0xee);
    }
    for (int c = 0; c < 4; ++c) {
      const F even_low = Lanes<0x88>(fours[c], fours[4 + c]);
      const F odd_low = Lanes<0xdd>(fours[c], fours[4 + c]);
      const F even_high = Lanes<0x88>(fours[8 + c], fours[12 + c]);
      const F odd_high = Lanes<0xdd>(fours[8 + c], fours[12 + c]);
      rows[c] = Lanes<0x88>(even_low, even_high);
      rows[4 + c] = Lanes<0x88>(odd_low, odd_high);
      rows[8 + c] = Lanes<0xdd>(even_low, even_high);
      rows[12 + c] = Lanes<0xdd>(odd_low, odd_high);
    }
  }

  // Quarters of a and b: 0x88 picks the even ones, 0xdd the odd ones.
  template <int PICK>
  static F Lanes(F a, F b) {
    return _mm512_maskz_shuffle_f32x4(kAll, a, b, PICK);
  }
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_VECTOR_AVX512_INL_H_
