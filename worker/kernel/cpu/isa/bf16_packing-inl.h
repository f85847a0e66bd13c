#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_PACKING_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_PACKING_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/isa/vector-inl.h"
#include "worker/kernel/cpu/isa/vector_avx512-inl.h"

// Packed layouts and vector functions that AMX and AVX512-BF16 share. Compiled for AVX-512 with
// BF16 and included by bf16_formats-inl.h, bf16_softmax-inl.h, unpacked_bf16_pairs-inl.h,
// amx_products-inl.h and amx_isa-inl.h. Start at the layouts below, then PackQueriesAmx,
// PackKeyPairs and PackValuePairs.
namespace annulus {

// The packed layouts of bf16 numbers:
// - Queries, for AMX: tiles of [16 rows][32 dimensions], as [row group][dimension chunk].
// - Keys: [panel of keys][pair of dimensions][key]. A pair is dimensions 2p and 2p + 1 of a key.
// - Values: [panel of columns][pair of keys][column]. A pair is keys p and p + 16 of each 32, so
//   that two vectors of weights interleave without a shuffle.
//
// AMX's panels are of 16 keys or columns, so that 16 pairs are an AMX tile.

namespace {

using Bf16 = uint16_t;

constexpr int kTile = 16;                     // Rows, and 32-bit columns, of an AMX tile.
constexpr int kChunk = 32;                    // bf16 numbers of a tile's row.
constexpr int kTileNumbers = kTile * kChunk;  // bf16 numbers of a tile.
constexpr int kKeyChunks = kKeyBlock / kChunk;
constexpr int kKeyPairs = kKeyBlock / 2;
constexpr __mmask16 kAll = Avx512::kAll;

inline int Chunks(int dim) { return (dim + kChunk - 1) / kChunk; }
inline int RoundUp(int value, int to) { return (value + to - 1) / to * to; }

// The place of a key of a block in this layout of pairs.
inline int PlaceBeside(int key) {
  return key / kChunk * kChunk + key % kTile * 2 + key % kChunk / kTile;
}

// Elements [begin, begin + 32) of a row of `dim`, with zeros past its end.
inline __m512i LoadPart32(const std::byte* row, int begin, int dim) {
  const int left = dim - begin;
  const __mmask32 mask = left >= kChunk ? 0xffffffffu : (1u << left) - 1;
  return _mm512_maskz_loadu_epi16(mask, row + int64_t{begin} * 2);
}

// Stores 64 bytes of a packed block, to an address that is a multiple of 64.
inline void StorePacked(void* to, __m512i bytes, bool streamed) {
  streamed ? _mm512_stream_si512(static_cast<__m512i*>(to), bytes) : _mm512_store_si512(to, bytes);
}

// Call after the last StorePacked, before other threads may read.
inline void EndPacked(bool streamed) {
  if (streamed) _mm_sfence();
}

inline void PackQueriesAmx(const QueryRows& rows, double scale, float* out) {
  auto* to = reinterpret_cast<Bf16*>(out);
  const __m512i sign = _mm512_set1_epi16(static_cast<int16_t>(scale < 0 ? 0x8000 : 0));
  int begin = 0;
  for (; begin + kTile <= rows.count && rows.dim % kChunk == 0; begin += kTile) {
    for (int r = 0; r < kTile; ++r) {
      const std::byte* row = rows.row[begin + r];
      for (int d = 0; d < rows.dim; d += kChunk)
        _mm512_storeu_si512(to + d * kTile + r * kChunk,
                            _mm512_xor_si512(_mm512_loadu_si512(row + int64_t{d} * 2), sign));
    }
    to += rows.dim * kTile;
  }
  for (; begin < rows.count; begin += kTile) {
    for (int d = 0; d < rows.dim; d += kChunk) {
      for (int r = 0; r < kTile; ++r, to += kChunk) {
        const bool there = begin + r < rows.count;
        const __m512i part = there ? LoadPart32(rows.row[begin + r], d, rows.dim) : sign;
        _mm512_storeu_si512(to, _mm512_xor_si512(part, sign));
      }
    }
  }
}

template <int PANEL>
void PackKeyPairs(const ElementRows& rows, const uint8_t* present, int count, int dim, float* out) {
  for (int begin = 0; begin < count; begin += kTile) {
    float* to = out + begin / PANEL * (Chunks(dim) * kTile * PANEL) + begin % PANEL;
    for (int d = 0; d < dim; d += kChunk, to += kTile * PANEL) {
      __m512 square[kTile];
      Unroll<kTile>([&](int r) {
        const int row = begin + r;
        square[r] = row < count && present[row]
                        ? _mm512_castsi512_ps(LoadPart32(rows.first + row * rows.stride, d, dim))
                        : _mm512_setzero_ps();
      });
      Avx512::Transpose(square);
      Unroll<kTile>([&](int r) {
        StorePacked(to + r * PANEL, _mm512_castps_si512(square[r]), rows.streamed);
      });
    }
  }
  EndPacked(rows.streamed);
}

// Numbers [begin, begin + 16) of two rows, interleaved.
inline __m512i InTurn(__m512i even, __m512i odd, int begin) {
  constexpr uint32_t kOdd = 32u << 16, kStep = 0x10001u;
  alignas(64) uint32_t lanes[kTile];
  for (int i = 0; i < kTile; ++i) lanes[i] = kOdd + static_cast<uint32_t>(begin + i) * kStep;
  return _mm512_permutex2var_epi16(even, _mm512_load_si512(lanes), odd);
}

template <int PANEL>
bool PackValuePairs(const ElementRows& rows, const uint8_t* present, int count, int dim,
                    float* out) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __m512i largest = _mm512_setzero_si512();
  for (int column = 0; column < dim; column += kChunk) {
    const auto load = [&](int row) {
      if (row >= count || !present[row]) return _mm512_setzero_si512();
      const __m512i part = LoadPart32(rows.first + row * rows.stride, column, dim);
      largest = _mm512_max_epu16(largest, _mm512_and_si512(part, exponent));
      return part;
    };
    const auto at = [out](int first) {
      return out + first / PANEL * (kKeyPairs * PANEL) + first % PANEL;
    };
    float *to = at(column), *beside = at(column + kTile);
    for (int i = 0; i < RoundUp(count, kChunk) / 2; ++i, to += PANEL, beside += PANEL) {
      const int key = i / kTile * kChunk + i % kTile;
      const __m512i even = load(key), odd = load(key + kTile);
      StorePacked(to, InTurn(even, odd, 0), rows.streamed);
      if (column + kTile < dim) StorePacked(beside, InTurn(even, odd, kTile), rows.streamed);
    }
  }
  EndPacked(rows.streamed);
  return _mm512_cmpeq_epi16_mask(largest, exponent) == 0;
}

}  // namespace

// Vector functions of the softmax on paths with bf16 products.

namespace {

// 2^t for t <= about 0, by a polynomial of the fraction of t, highest power first. Exactly 1 at 0,
// exactly 0 at −inf; NaN stays NaN.
template <int TERMS>
inline __m512 Exp2By(const float (&terms)[TERMS], __m512 t) {
  constexpr int kRoundDown = 0x09;
  const __m512 f = _mm512_maskz_reduce_ps(Avx512::kAll, t, kRoundDown);
  __m512 p = _mm512_set1_ps(terms[0]);
  for (int i = 1; i < TERMS; ++i) p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(terms[i]));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(Avx512::kAll, p, t);
}
// Relative error 1.5e-7.
inline __m512 Exp2Near(__m512 t) {
  constexpr float kTerms[] = {1.867130399e-03f, 9.017029777e-03f, 5.579991266e-02f,
                              2.401644439e-01f, 6.931512952e-01f};
  return Exp2By(kTerms, t);
}
// Relative error 3.4e-6, on average 4e-8: for results that are rounded to 8 bits.
inline __m512 Exp2Rough(__m512 t) {
  constexpr float kTerms[] = {1.355574746e-02f, 5.203237012e-02f, 2.413797677e-01f,
                              6.930321455e-01f};
  return Exp2By(kTerms, t);
}

// Reduces each row's 16 lanes with `op`; lane r of the result is row r's.
template <class Op>
inline __m512 AcrossLanes(const float (*lanes)[kTile], const Op& op) {
  __m512 square[kTile];
  Unroll<kTile>([&](int r) { square[r] = _mm512_load_ps(lanes[r]); });
  return AcrossRows<Avx512>(square, op);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_PACKING_INL_H_
