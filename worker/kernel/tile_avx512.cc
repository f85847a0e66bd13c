// Compiled with -mavx512f: called only after the CPU has been asked (isa_dispatch.h).
#include <immintrin.h>

#include "worker/kernel/tile_functions.h"

namespace annulus {
namespace {

struct Avx512 {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kPanelVectors =
      4;  // 6 × 4 accumulators, 4 of B and 1 broadcast: 29 of 32 registers.

  // GCC 12's unmasked forms of these start from an undefined register, which its own warning then
  // reports.
  static constexpr __mmask16 kAll = 0xffff;

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
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm512_maskz_max_ps(kAll, a, b); }
  static F ShiftToExponent(F a) {
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, _mm512_castps_si512(a), 23));
  }
};

}  // namespace

const TileIsa kAvx512Isa = MakeTileIsa<Avx512>("avx512");

}  // namespace annulus
