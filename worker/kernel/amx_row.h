#ifndef ANNULUS_WORKER_KERNEL_AMX_ROW_H_
#define ANNULUS_WORKER_KERNEL_AMX_ROW_H_

#include <immintrin.h>

#include "worker/kernel/amx_values.h"

// Weights times values of one row, of a block with NaN or infinite values.

namespace annulus {
namespace {

// The row alone in a tile of zeros, and of the values only what it sees: the same sums in the same
// order, because what is left out would have been multiplied by zero.
template <class FORMAT>
void AccumulateRowAmx(const TileBlock& row, const KeySpan* spans, int count) {
  const TileUse use;
  constexpr int kParts = FORMAT::kParts;
  alignas(64) Bf16 weights[kTile][kKeyBlock * kParts] = {};
  alignas(64) Bf16 seen[kKeyBlock] = {};
  for (int i = 0; i < count; ++i) {
    for (int key = spans[i].begin; key < spans[i].end; ++key) seen[FORMAT::PlaceOf(key)] = 0xffff;
  }
  const int first = spans[0].begin / kChunk;
  const int chunks = (spans[count - 1].end + kChunk - 1) / kChunk - first;
  const auto keep_seen = [](Bf16* at, __m512i mask) {
    _mm512_storeu_si512(at, _mm512_and_si512(_mm512_loadu_si512(at), mask));
  };
  for (int key = first * kChunk; key < (first + chunks) * kChunk; key += kChunk) {
    Bf16* to = &weights[0][key * kParts];
    RoundWeights<FORMAT>(row.scores, key, 0, kKeyBlock, to, kChunk);
    for (int p = 0; p < kParts; ++p) keep_seen(to + p * kChunk, _mm512_loadu_si512(seen + key));
  }
  alignas(64) Bf16 values[kKeyChunks][kParts * kTileNumbers];
  const __m512 alpha = _mm512_set1_ps(*row.alpha);
  for (int column = 0; column < row.value_dim; column += kTile) {
    const float* from = row.values + column / kTile * (sizeof(values) / sizeof(float));
    __builtin_memcpy(values, from, sizeof(values));
    for (int pair = first * kTile; pair < (first + chunks) * kTile; ++pair) {
      int mask;
      __builtin_memcpy(&mask, seen + 2 * pair, sizeof(mask));
      Bf16* to = values[pair / kTile] + pair % kTile * kChunk;
      for (int p = 0; p < kParts; ++p) keep_seen(to + p * kTileNumbers, _mm512_set1_epi32(mask));
    }
    Fence();
    alignas(64) float block[kTile * kTile];
    Operands of;
    of.left_chunk = kParts * kChunk;
    of.left = &weights[0][first * kChunk * kParts];
    of.left_stride = sizeof(weights[0]);
    of.left_low = kChunk;
    of.right = values[first];
    of.chunks = chunks;
    const Product out{block, kTile, 0, 0};
    Products<1, FORMAT::kValueProducts> products;
    float* sums = row.sums + column;
    if (FORMAT::kInPlace) {
      _mm512_store_ps(block, _mm512_mul_ps(_mm512_loadu_ps(sums), alpha));
      Fence();
      products.template Multiply<1, Start::kOut>(of, out, NoWork());
      products.Finish();
      _mm512_storeu_ps(sums, _mm512_load_ps(block));
      continue;
    }
    products.template Multiply<1, Start::kZero>(of, out, NoWork());
    products.Finish();
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_loadu_ps(sums), alpha, _mm512_load_ps(block)));
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_ROW_H_
