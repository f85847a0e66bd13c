#ifndef ANNULUS_WORKER_KERNEL_ROW_PAIRS_H_
#define ANNULUS_WORKER_KERNEL_ROW_PAIRS_H_

#include <immintrin.h>

#include "worker/kernel/amx_rounding.h"
#include "worker/kernel/gradient_isa.h"

// Rows 2p and 2p + 1 of a tile as pairs of bf16 numbers, over which gradients of keys and values
// are summed.

namespace annulus {
namespace {

constexpr int kRowPairs = kTileRows / 2;

inline int PairsOfRows(int rows) { return (rows + 1) / 2; }

// Rounds weights as [panel of PANEL keys][kRowPairs][PANEL]: zeros for rows and, in vectors that
// hold some of the product's keys, for other keys that are not there.
template <int PANEL>
void RoundRowPairs(const OuterProduct& p, int pairs) {
  for (int pair = 0; pair < pairs; ++pair) {
    const float* even = p.weights + int64_t{2} * pair * kKeyBlock;
    float* out = p.rounded + pair * PANEL;
    for (int key = p.key_begin / kTile * kTile; key < p.key_end; key += kTile) {
      const uint32_t before = (1u << (p.key_end - key < kTile ? p.key_end - key : kTile)) - 1;
      const uint32_t skip = key < p.key_begin ? (1u << (p.key_begin - key)) - 1 : 0;
      const auto part = [&](int row) {
        const __mmask16 there = static_cast<__mmask16>(row < p.rows ? before & ~skip : 0);
        return PlainNan(_mm512_maskz_loadu_ps(there, even + (row & 1) * kKeyBlock + key));
      };
      Whole::StoreWeights(
          part(2 * pair), part(2 * pair + 1),
          reinterpret_cast<Bf16*>(out + key / PANEL * (kRowPairs * PANEL) + key % PANEL), 0);
    }
  }
}

// Calls store(pair, column, 16 columns of a pair of rows) for `pairs` pairs and all columns in
// order; returns whether all numbers are finite. Rows and columns that are missing are 0.
template <class Store>
inline __attribute__((always_inline)) bool ForEachRowPair(const QueryRows& rows, int pairs,
                                                          const Store& store) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __m512i largest = _mm512_setzero_si512();
  const auto load = [&](int row, int column) {
    if (row >= rows.count) return _mm512_setzero_si512();
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

// Of two rows' numbers in a pair, those that are kept.
inline uint32_t KeptOfPair(const uint8_t* kept, int pair) {
  return (kept[2 * pair] != 0 ? 0xffffu : 0) | (kept[2 * pair + 1] != 0 ? 0xffff0000u : 0);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_ROW_PAIRS_H_
