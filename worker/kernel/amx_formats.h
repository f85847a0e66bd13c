#ifndef ANNULUS_WORKER_KERNEL_AMX_FORMATS_H_
#define ANNULUS_WORKER_KERNEL_AMX_FORMATS_H_

#include <immintrin.h>

#include "worker/kernel/amx_split_packing.h"

// What AMX makes of a type of numbers: how many bf16 numbers stand for one, how many products of
// them for a product, and what follows from that. Weights have as many parts as values.

namespace annulus {
namespace {

// bf16, as it is.
struct Whole {
  static constexpr int kParts = 1;
  static constexpr int kScoreProducts = 1, kValueProducts = 1;

  // Stores 32 weights from `to` on.
  static void StoreWeights(__m512 first, __m512 second, Bf16* to, int64_t /*low*/) {
    _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
  }
  // Whether scores are not what products of parts say.
  static bool HasInfinities(const TileBlock&) { return false; }
  static void MendScores(const TileBlock&) {}
};

// Numbers of two parts. What low parts give each other is 2⁻¹⁸ of a product: nothing beside what a
// weight is rounded by, but of scores of ten thousands more than fp16 jobs may lose.
template <int SCORE_PRODUCTS>
struct Split {
  static constexpr int kParts = 2;
  static constexpr int kScoreProducts = SCORE_PRODUCTS, kValueProducts = 3;

  // High parts from `to` on, low ones from `to + low` on.
  static void StoreWeights(__m512 first, __m512 second, Bf16* to, int64_t low) {
    const __m512i high = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
    const auto numbers = [](__m256i halves) {
      return _mm512_castsi512_ps(
          _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, halves), 16));
    };
    const __m512 even = numbers(_mm512_maskz_extracti64x4_epi64(0xf, high, 0));
    const __m512 odd = numbers(_mm512_maskz_extracti64x4_epi64(0xf, high, 1));
    const __m512 rest_first = _mm512_sub_ps(first, even);
    const __m512 rest_second = _mm512_sub_ps(second, odd);
    _mm512_storeu_si512(to, high);
    _mm512_storeu_si512(to + low,
                        reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(rest_second, rest_first)));
  }

  static const uint8_t* QueryMarks(const TileBlock& tile) {
    return reinterpret_cast<const uint8_t*>(reinterpret_cast<const Bf16*>(tile.queries) +
                                            SplitNumbers(RoundUp(tile.rows, kTile), tile.head_dim));
  }
  static const uint8_t* KeyMarks(const TileBlock& tile) {
    return reinterpret_cast<const uint8_t*>(reinterpret_cast<const Bf16*>(tile.keys) +
                                            SplitNumbers(kKeyBlock, tile.head_dim));
  }
  static bool HasInfinities(const TileBlock& tile) {
    __m512i marks =
        _mm512_maskz_loadu_epi8((uint64_t{1} << (kTileRows - 64)) - 1, QueryMarks(tile) + 64);
    marks = _mm512_or_si512(marks, _mm512_loadu_si512(QueryMarks(tile)));
    for (int key = 0; key < kKeyBlock; key += 64) {
      marks = _mm512_or_si512(marks, _mm512_loadu_si512(KeyMarks(tile) + key));
    }
    return _mm512_test_epi32_mask(marks, marks) != 0;
  }

  // Scores with an infinity on either side, one by one: they are infinite or NaN, whatever the
  // order of the sum.
  static void MendScores(const TileBlock& tile) {
    if (!HasInfinities(tile)) return;
    for (int row = 0; row < tile.rows; ++row) {
      const KeySpan part = WrittenPart<Avx512>(tile, row);
      for (int key = part.begin; key < part.end; ++key) {
        if (QueryMarks(tile)[row] == 0 && KeyMarks(tile)[key] == 0) continue;
        tile.scores[int64_t{row} * kKeyBlock + key] = tile.score_scale * Dot(tile, row, key);
      }
    }
  }

 private:
  static float Number(const Bf16* high) {
    const uint32_t bits[2] = {uint32_t{high[0]} << 16, uint32_t{high[kTileNumbers]} << 16};
    float parts[2];
    __builtin_memcpy(parts, bits, sizeof(parts));
    return parts[0] + parts[1];
  }
  static float Dot(const TileBlock& tile, int row, int key) {
    const int64_t tiles = Chunks(tile.head_dim) * int64_t{2} * kTileNumbers;
    const Bf16* q =
        reinterpret_cast<const Bf16*>(tile.queries) + row / kTile * tiles + row % kTile * kChunk;
    const Bf16* k =
        reinterpret_cast<const Bf16*>(tile.keys) + key / kTile * tiles + key % kTile * 2;
    float sum = 0;
    for (int d = 0; d < tile.head_dim; ++d) {
      const int64_t chunk = d / kChunk * int64_t{2} * kTileNumbers;
      const int at = d % kChunk;
      sum += Number(q + chunk + at) * Number(k + chunk + at / 2 * kChunk + at % 2);
    }
    return sum;
  }
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_FORMATS_H_
