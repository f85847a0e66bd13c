// Compiled with -mavx2 -mfma -mf16c: call only after isa_dispatch.h has checked the CPU.
#include <immintrin.h>

#include "worker/kernel/cpu/isa/tile_functions-inl.h"

namespace annulus {
namespace {

struct Avx2 {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kDotRun = 32;
  // 6 × 2 accumulators, 2 of B, 1 broadcast: 15 of 16 registers.
  static constexpr int kPanelVectors = 2;

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set(float v) { return _mm256_set1_ps(v); }
  static F Load(const float* at) { return _mm256_loadu_ps(at); }
  static void Store(float* at, F v) { _mm256_storeu_ps(at, v); }
  static F LoadBf16(const std::byte* at) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static F LoadFp16(const std::byte* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F AddTerm(F a, F b, F sum) { return Fma(a, b, sum); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F IfLess(F a, F b, F x, F y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static F Choose(uint32_t bits, F x, F y) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i both = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane);
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(_mm256_cmpeq_epi32(both, lane)));
  }
  static F Distance(int32_t n, const int32_t* at) {
    const __m256i rows = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm256_cvtepi32_ps(_mm256_abs_epi32(_mm256_sub_epi32(_mm256_set1_epi32(n), rows)));
  }
  static uint32_t WordsBelow(const uint32_t* counters, const uint32_t* row, const PhiloxKeys& keys,
                             uint32_t threshold) {
    return HalfBelow(counters, row, keys, threshold) | HalfBelow(counters + 4, row, keys, threshold)
                                                           << 16;
  }
  static F ShiftToExponent(F a) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a), 23));
  }
  static inline __attribute__((always_inline)) void Transpose(F (&rows)[8]) {
    F pairs[8];  // [2i], [2i + 1]: rows 2i and 2i + 1 interleaved.
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    F fours[8];  // [4i + c]: columns c and 4 + c of rows 4i to 4i + 3.
    for (int i = 0; i < 8; i += 4) {
      fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
      fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
      fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
      fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
    for (int c = 0; c < 4; ++c) {
      rows[c] = _mm256_permute2f128_ps(fours[c], fours[4 + c], 0x20);
      rows[4 + c] = _mm256_permute2f128_ps(fours[c], fours[4 + c], 0x31);
    }
  }

 private:
  // The words of four counters. Each counter has 8 bytes of a vector; the upper four bytes that
  // products leave are ignored.
  static uint32_t HalfBelow(const uint32_t* counters, const uint32_t* row, const PhiloxKeys& keys,
                            uint32_t threshold) {
    // In this order the words below come out side by side.
    const __m128i unpacked = _mm_loadu_si128(reinterpret_cast<const __m128i*>(counters));
    __m256i c0 = _mm256_cvtepu32_epi64(_mm_shuffle_epi32(unpacked, _MM_SHUFFLE(3, 1, 2, 0)));
    __m256i c1 = _mm256_set1_epi64x(row[0]), c2 = _mm256_set1_epi64x(row[1]);
    __m256i c3 = _mm256_set1_epi64x(row[2]);
    const __m256i times_a = _mm256_set1_epi64x(kPhiloxA), times_b = _mm256_set1_epi64x(kPhiloxB);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const __m256i a = _mm256_mul_epu32(c0, times_a), b = _mm256_mul_epu32(c2, times_b);
      const auto key0 = static_cast<int64_t>(keys.first[round]);
      const auto key1 = static_cast<int64_t>(keys.second[round]);
      c0 = _mm256_xor_si256(_mm256_srli_epi64(b, 32),
                            _mm256_xor_si256(c1, _mm256_set1_epi64x(key0)));
      c2 = _mm256_xor_si256(_mm256_srli_epi64(a, 32),
                            _mm256_xor_si256(c3, _mm256_set1_epi64x(key1)));
      c1 = b;
      c3 = a;
    }
    const __m256i first = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xaa);
    const __m256i second = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xaa);
    return EightBelow(_mm256_unpacklo_epi64(first, second), threshold) |
           EightBelow(_mm256_unpackhi_epi64(first, second), threshold) << 8;
  }
  // AVX2 compares only signed numbers.
  static uint32_t EightBelow(__m256i words, uint32_t threshold) {
    const __m256i sign = _mm256_set1_epi32(INT32_MIN);
    const __m256i bound = _mm256_set1_epi32(static_cast<int>(threshold ^ 0x80000000u));
    const __m256i below = _mm256_cmpgt_epi32(bound, _mm256_xor_si256(words, sign));
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(below)));
  }
};

}  // namespace

const TileIsa kAvx2Isa = MakeTileIsa<Avx2>("avx2");

}  // namespace annulus
