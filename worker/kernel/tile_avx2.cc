// Compiled with -mavx2 -mfma -mf16c: called only after the CPU has been asked (isa_dispatch.h).
#include <immintrin.h>

#include "worker/kernel/tile_functions.h"

namespace annulus {
namespace {

struct Avx2 {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kDotRun = 32;
  static constexpr int kPanelVectors =
      2;  // 6 × 2 accumulators, 2 of B and 1 broadcast: 15 of 16 registers.

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
};

}  // namespace

const TileIsa kAvx2Isa = MakeTileIsa<Avx2>("avx2");

}  // namespace annulus
