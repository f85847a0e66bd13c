#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_ROW_PAIRS_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_ROW_PAIRS_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/isa/bf16_rounding-inl.h"
#include "worker/kernel/cpu/isa/gradient_isa.h"

// Rows 2p and 2p + 1 of a tile as pairs of bf16 numbers: gradients of keys and values are sums over
// such pairs.

namespace annulus {
namespace {

constexpr int kRowPairs = kTileRows / 2;

inline int PairsOfRows(int rows) { return (rows + 1) / 2; }

// Rounds weights as [panel of PANEL keys][kRowPairs][PANEL]. Missing rows become zeros. So do other
// keys in vectors that hold some of the product's keys.
template <int PANEL>
void RoundRowPairs(const OuterProduct& p, int pairs) {
  const auto row_of = [&](int place) { return place < p.rows ? p.weights_row[place] : -1; };
  for (int pair = 0; pair < pairs; ++pair) {
    const int even = row_of(2 * pair), odd = row_of(2 * pair + 1);
    float* out = p.rounded + pair * PANEL;
    for (int key = p.key_begin / kTile * kTile; key < p.key_end; key += kTile) {
      const uint32_t before = (1u << (p.key_end - key < kTile ? p.key_end - key : kTile)) - 1;
      const uint32_t skip = key < p.key_begin ? (1u << (p.key_begin - key)) - 1 : 0;
      const auto there = static_cast<__mmask16>(before & ~skip);
      const auto part = [&](int row) {
        if (row < 0) return _mm512_setzero_ps();
        return PlainNan(_mm512_maskz_loadu_ps(there, p.weights + int64_t{row} * kKeyBlock + key));
      };
      float* to = out + key / PANEL * (kRowPairs * PANEL) + key % PANEL;
      Whole::StoreWeights(part(even), part(odd), reinterpret_cast<Bf16*>(to), 0);
    }
  }
}

// Calls store(pair, column, 16 columns of a pair of rows) for `pairs` pairs and all columns in
// order. Returns true if all numbers are finite. Missing rows and columns are 0.
template <class Store>
inline __attribute__((always_inline)) bool ForEachRowPair(const QueryRows& rows, int pairs,
                                                          const Store& store) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __m512i largest = _mm512_setzero_si512();
  const auto load = [&](int row, int column) {
    if (row >= rows.count || rows.row[row] == nullptr) return _mm512_setzero_si512();
    const __m512i part = LoadPart32(rows.row[row], column, rows.dim);
    largest = _mm512_max_epu16(largest, _mm512_and_si512(part, exponent));
    return part;
  };
  for (int column = 0; column < rows.dim; column += kChunk) {
    for (int pair = 0; pair < pairs; ++pair) {
      const __m512i even = load(2 * pair, column), odd = load(2 * pair + 1, column);
      store(pair, column, InTurn(even, odd, 0));
      if (column + kTile < rows.dim) store(pair, column + kTile, InTurn(even, odd, kTile));
    }
  }
  return _mm512_cmpeq_epi16_mask(largest, exponent) == 0;
}

// A mask of the bits of two rows' numbers in a pair: set for rows with seen[row] != 0.
inline uint32_t VisibleOfPair(const uint8_t* seen, int pair) {
  return (seen[2 * pair] != 0 ? 0xffffu : 0) | (seen[2 * pair + 1] != 0 ? 0xffff0000u : 0);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_ROW_PAIRS_INL_H_
