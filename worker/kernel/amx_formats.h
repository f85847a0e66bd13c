#ifndef ANNULUS_WORKER_KERNEL_AMX_FORMATS_H_
#define ANNULUS_WORKER_KERNEL_AMX_FORMATS_H_

#include <immintrin.h>

#include "worker/kernel/amx_lanes.h"
#include "worker/kernel/amx_split_packing.h"

// What is made of a type of numbers for products of bf16 ones: how many bf16 numbers stand for one,
// how many products of them for a product, and what follows from that. Weights have as many parts
// as values.

namespace annulus {
namespace {

// bf16, as it is.
struct Whole {
  static constexpr int kParts = 1;
  // Sums take each product as it comes: the error of that is nothing beside the weights'.
  static constexpr bool kInPlace = true;
  static constexpr int kScoreProducts = 1, kValueProducts = 1;
  static constexpr float kSlack = 6.5f;  // TileIsa::slack
  static __m512 Exp2(__m512 t) { return Exp2Rough(t); }

  // Stores 32 weights from `to` on, each of the first beside one of the second, rounded by
  // integers. Halves go away from zero; a NaN must have room, as one of a bf16 number has.
  static void StoreWeights(__m512 first, __m512 second, Bf16* to, int64_t /*low*/) {
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(~0xffff);
    const __m512i even =
        _mm512_maskz_srli_epi32(kAll, _mm512_add_epi32(_mm512_castps_si512(first), half), 16);
    const __m512i odd = _mm512_add_epi32(_mm512_castps_si512(second), half);
    constexpr int kOddAndUpperOrEven = 0xea;
    _mm512_storeu_si512(to, _mm512_ternarylogic_epi32(odd, upper, even, kOddAndUpperOrEven));
  }
  // Where a key of a block lies among its weights, and among values.
  static int PlaceOf(int key) { return PlaceBeside(key); }
  // Whether scores are not what products of parts say.
  static bool HasInfinities(const TileBlock&) { return false; }
  static void MendScores(const TileBlock&) {}
};

// Numbers of two parts. What low parts give each other is 2⁻¹⁸ of a product: nothing beside what a
// weight is rounded by, but of scores of ten thousands more than fp16 jobs may lose.
template <int SCORE_PRODUCTS>
struct Split {
  static constexpr int kParts = 2;
  static constexpr bool kInPlace = false;
  static constexpr int kScoreProducts = SCORE_PRODUCTS, kValueProducts = 3;
  static constexpr float kSlack = 0;
  static __m512 Exp2(__m512 t) { return Exp2Near(t); }
  static int PlaceOf(int key) { return key; }

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
    static_assert(kMostTileRows % 32 == 0);
    __m512i marks = _mm512_setzero_si512();
    for (int row = 0; row < kMostTileRows; row += 64) {
      const int left = kMostTileRows - row;
      const uint64_t there = left >= 64 ? ~uint64_t{0} : (uint64_t{1} << (left % 64)) - 1;
      marks = _mm512_or_si512(marks, _mm512_maskz_loadu_epi8(there, QueryMarks(tile) + row));
    }
    for (int key = 0; key < kKeyBlock; key += 64) {
      marks = _mm512_or_si512(marks, _mm512_loadu_si512(KeyMarks(tile) + key));
    }
    return _mm512_test_epi32_mask(marks, marks) != 0;
  }

  // Scores with an infinity on either side, 16 keys at a time: they are infinite or NaN, whatever
  // the order of the sum.
  static void MendScores(const TileBlock& tile) {
    if (!HasInfinities(tile)) return;
    for (int row = 0; row < tile.rows; ++row) {
      const KeySpan part = WrittenPart<Avx512>(tile, row);
      const bool whole = QueryMarks(tile)[row] != 0;
      for (int key = part.begin; key < part.end; key += kTile) {
        const __m512i marks = _mm512_maskz_cvtepu8_epi32(
            kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(KeyMarks(tile) + key)));
        const __mmask16 marked = whole ? kAll : _mm512_test_epi32_mask(marks, marks);
        if (marked == 0) continue;
        _mm512_mask_storeu_ps(
            tile.scores + int64_t{row} * kKeyBlock + key, marked,
            _mm512_mul_ps(_mm512_set1_ps(tile.score_scale), Dots(tile, row, key)));
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
  // A row's products with 16 keys, a pair of dimensions at a time.
  static __m512 Dots(const TileBlock& tile, int row, int key) {
    constexpr int kParted = 2 * kTileNumbers;
    const int64_t tiles = Chunks(tile.head_dim) * int64_t{kParted};
    const Bf16* q =
        reinterpret_cast<const Bf16*>(tile.queries) + row / kTile * tiles + row % kTile * kChunk;
    const Bf16* k = reinterpret_cast<const Bf16*>(tile.keys) + key / kTile * tiles;
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    const auto first = [](__m512i pairs) {
      return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, pairs, 16));
    };
    const auto second = [upper](__m512i pairs) {
      return _mm512_castsi512_ps(_mm512_and_si512(pairs, upper));
    };
    __m512 sum = _mm512_setzero_ps();
    for (int d = 0; d < tile.head_dim; d += 2) {
      const int64_t chunk = d / kChunk * int64_t{kParted};
      const Bf16 *of_row = q + chunk + d % kChunk, *of_keys = k + chunk + d % kChunk * kTile;
      const __m512i high = _mm512_loadu_si512(of_keys);
      const __m512i low = _mm512_loadu_si512(of_keys + kTileNumbers);
      sum = _mm512_fmadd_ps(_mm512_set1_ps(Number(of_row)), _mm512_add_ps(first(high), first(low)),
                            sum);
      sum = _mm512_fmadd_ps(_mm512_set1_ps(Number(of_row + 1)),
                            _mm512_add_ps(second(high), second(low)), sum);
    }
    return sum;
  }
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_FORMATS_H_
