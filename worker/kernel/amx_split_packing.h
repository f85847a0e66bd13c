#ifndef ANNULUS_WORKER_KERNEL_AMX_SPLIT_PACKING_H_
#define ANNULUS_WORKER_KERNEL_AMX_SPLIT_PACKING_H_

#include "worker/kernel/amx_split.h"

// Packs fp16 and fp32 rows as AMX takes them: like bf16 (amx_packing.h), but with a tile of high
// parts and behind it one of low parts where one of numbers is, and row p of a tile of values holds
// keys 2p and 2p + 1.
//
// An infinity times a low part of 0 would be NaN. So an infinite value is all low part, which meets
// one part of a weight only; and queries and keys with infinities are marked, with a byte for each
// behind the packed numbers, and their scores made otherwise.

namespace annulus {
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

// 32 numbers of a row of values, from `column` on: those that are not finite are all low part.
// Returns whether all are finite.
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
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_SPLIT_PACKING_H_
