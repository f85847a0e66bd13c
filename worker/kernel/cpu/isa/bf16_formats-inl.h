#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_FORMATS_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_FORMATS_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/isa/bf16_packing-inl.h"

// Number formats for products of bf16 numbers, on AMX and AVX512-BF16: `Whole` for bf16 and `Split`
// for fp16 and fp32 as sums of two bf16 numbers. Compiled for AVX-512 with BF16 and included by the
// amx_*-inl.h files, bf16_pairs-inl.h and bf16_rounding-inl.h.
//
// Start at `Whole` and `Split` at the end: the templates of the other files take one of them as
// FORMAT. Packing of split numbers is in PackQueriesSplit, PackKeysSplit and PackValuesSplit.
namespace annulus {

// Numbers as sums of two bf16 numbers: fp16 exactly, fp32 to 17 bits.

namespace {

// The parts of 16 numbers, each the upper half of an fp32 number. Infinities and NaN are in `high`
// alone.
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
  // Numbers that would round to infinity are truncated instead.
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

// Loads 16 numbers of a row of fp16 or fp32, from `begin` on, with zeros past its end.
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

// Loads 32 numbers of a row of fp16, from `begin` on, times ±1. Returns false if one is not finite.
// Otherwise the numbers are exactly the sums of their parts: none rounds to infinity.
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

// Loads 32 numbers of a row, from `begin` on, times ±1. Returns true if one is infinite.
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

// Packing of fp16 and fp32 rows for AMX: as for bf16 (bf16_packing-inl.h), with two differences.
// Each tile of numbers becomes a tile of high parts followed by one of low parts. Row p of a tile
// of values has keys 2p and 2p + 1.
//
// An infinity times a low part of 0 would be NaN. So an infinite value is all low part, which meets
// only one part of a weight. Queries and keys with infinities are marked, with one byte for each
// after the packed numbers; MendScores computes their scores again.

namespace {

inline int64_t SplitNumbers(int rows, int dim) { return int64_t{2} * rows * Chunks(dim) * kChunk; }

inline void PackQueriesSplit(const QueryRows& rows, double scale, float* out) {
  auto* to = reinterpret_cast<Bf16*>(out);
  auto* marks = reinterpret_cast<uint8_t*>(to + SplitNumbers(RoundUp(rows.count, kTile), rows.dim));
  const __m512i sign = _mm512_set1_epi32(static_cast<int>(scale < 0 ? 0x80000000u : 0));
  for (int i = 0; i < kMostTileRows; ++i) marks[i] = 0;
  for (int begin = 0; begin < rows.count; begin += kTile) {
    for (int d = 0; d < rows.dim; d += kChunk, to += 2 * kTileNumbers) {
      for (int r = 0; r < kTile; ++r) {
        RowParts parts = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        if (begin + r < rows.count &&
            LoadParts32(rows.dtype, rows.row[begin + r], d, rows.dim, sign, &parts)) {
          marks[begin + r] = 1;
        }
        _mm512_storeu_si512(to + r * kChunk, parts.high);
        _mm512_storeu_si512(to + kTileNumbers + r * kChunk, parts.low);
      }
    }
  }
}

inline void PackKeysSplit(const ElementRows& rows, const uint8_t* present, int count, int dim,
                          float* out) {
  auto* marks =
      reinterpret_cast<uint8_t*>(reinterpret_cast<Bf16*>(out) + SplitNumbers(kKeyBlock, dim));
  for (int i = 0; i < kKeyBlock; ++i) marks[i] = 0;
  const __m512i no_sign = _mm512_setzero_si512();
  for (int begin = 0; begin < count; begin += kTile) {
    for (int d = 0; d < dim; d += kChunk, out += kTileNumbers) {
      __m512 high[kTile], low[kTile];
      for (int r = 0; r < kTile; ++r) {
        const int row = begin + r;
        RowParts parts = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        if (row < count && present[row] &&
            LoadParts32(rows.dtype, rows.first + row * rows.stride, d, dim, no_sign, &parts)) {
          marks[row] = 1;
        }
        high[r] = _mm512_castsi512_ps(parts.high);
        low[r] = _mm512_castsi512_ps(parts.low);
      }
      Avx512::Transpose(high);
      Unroll<kTile>([&](int r) {
        StorePacked(out + r * kTile, _mm512_castps_si512(high[r]), rows.streamed);
      });
      Avx512::Transpose(low);
      Unroll<kTile>([&](int r) {
        StorePacked(out + kTileNumbers / 2 + r * kTile, _mm512_castps_si512(low[r]), rows.streamed);
      });
    }
  }
  EndPacked(rows.streamed);
}

// Loads 32 numbers of a row of values, from `column` on. Numbers that are not finite are all low
// part. Returns true if all are finite.
inline bool LoadValueParts(DataType dtype, const std::byte* row, int column, int dim,
                           RowParts* out) {
  const __m512i exponent = _mm512_set1_epi32(0x7f800000);
  if (dtype == DataType::kFp16 && LoadFiniteFp16(row, column, dim, _mm512_setzero_si512(), out))
    return true;
  Parts halves[2];
  __mmask16 odd[2];
  for (int i = 0; i < 2; ++i) {
    Parts& parts = halves[i] = PartsOf(LoadNumbers(dtype, row, column + i * kTile, dim));
    odd[i] = _mm512_cmpeq_epi32_mask(_mm512_and_si512(parts.high, exponent), exponent);
    parts.low = _mm512_mask_blend_epi32(odd[i], parts.low, parts.high);
    parts.high = _mm512_mask_blend_epi32(odd[i], parts.high, _mm512_setzero_si512());
  }
  out->high = Halves(halves[0].high, halves[1].high);
  out->low = Halves(halves[0].low, halves[1].low);
  return (odd[0] | odd[1]) == 0;
}

inline bool PackValuesSplit(const ElementRows& rows, const uint8_t* present, int count, int dim,
                            float* out) {
  constexpr int64_t kBeside = int64_t{2} * kKeyChunks * kTileNumbers;
  bool finite = true;
  for (int column = 0; column < dim; column += kChunk) {
    const auto load = [&](int row) {
      RowParts parts = {_mm512_setzero_si512(), _mm512_setzero_si512()};
      if (row < count && present[row])
        finite &= LoadValueParts(rows.dtype, rows.first + row * rows.stride, column, dim, &parts);
      return parts;
    };
    auto* to = reinterpret_cast<Bf16*>(out) + column / kTile * kBeside;
    for (int key = 0; key < RoundUp(count, kChunk); key += 2, to += kChunk) {
      if (key > 0 && key % kChunk == 0) to += kTileNumbers;
      const RowParts even = load(key), odd = load(key + 1);
      for (int i = 0; i < 2 && column + i * kTile < dim; ++i) {
        Bf16* at = to + i * kBeside;
        StorePacked(at, InTurn(even.high, odd.high, i * kTile), rows.streamed);
        StorePacked(at + kTileNumbers, InTurn(even.low, odd.low, i * kTile), rows.streamed);
      }
    }
  }
  EndPacked(rows.streamed);
  return finite;
}

}  // namespace

// A format says how the products of bf16 numbers compute products of a type:
// - kParts: bf16 numbers per number. Weights have as many parts as values.
// - kScoreProducts, kValueProducts: bf16 products per product.

namespace {

// bf16 numbers, unchanged.
struct Whole {
  static constexpr int kParts = 1;
  // Each product is added to the sum directly: that error is far below the rounding of the weights.
  static constexpr bool kInPlace = true;
  static constexpr int kScoreProducts = 1, kValueProducts = 1;
  static constexpr float kSlack = 6.5f;  // See TileIsa::slack.
  static __m512 Exp2(__m512 t) { return Exp2Rough(t); }

  // Stores 32 weights from `to` on, each of `first` next to one of `second`, rounded with integer
  // arithmetic. Halves round away from zero. A NaN must not overflow when rounded; a NaN of a bf16
  // number does not.
  static void StoreWeights(__m512 first, __m512 second, Bf16* to, int64_t /*low*/) {
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(~0xffff);
    const __m512i even =
        _mm512_maskz_srli_epi32(kAll, _mm512_add_epi32(_mm512_castps_si512(first), half), 16);
    const __m512i odd = _mm512_add_epi32(_mm512_castps_si512(second), half);
    constexpr int kOddAndUpperOrEven = 0xea;
    _mm512_storeu_si512(to, _mm512_ternarylogic_epi32(odd, upper, even, kOddAndUpperOrEven));
  }
  // The place of a key of a block among weights and values.
  static int PlaceOf(int key) { return PlaceBeside(key); }
  // True if some scores differ from the products of their parts.
  static bool HasInfinities(const TileBlock&) { return false; }
  static void MendScores(const TileBlock&) {}
};

// Numbers of two parts. Low part times low part is 2⁻¹⁸ of a product. For values that is far below
// the rounding of a weight. For scores of tens of thousands it is more than fp16 jobs may lose.
template <int SCORE_PRODUCTS>
struct Split {
  static constexpr int kParts = 2;
  static constexpr bool kInPlace = false;
  static constexpr int kScoreProducts = SCORE_PRODUCTS, kValueProducts = 3;
  static constexpr float kSlack = 0;
  static __m512 Exp2(__m512 t) { return Exp2Near(t); }
  static int PlaceOf(int key) { return key; }

  // High parts from `to` on, low parts from `to + low` on.
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

  // Computes scores with an infinity on either side again, 16 keys at a time. They are infinite or
  // NaN, whatever the order of the sum.
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
  // A row's dot products with 16 keys, one pair of dimensions at a time.
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

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_FORMATS_INL_H_
