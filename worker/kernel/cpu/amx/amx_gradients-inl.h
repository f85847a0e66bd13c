#ifndef ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_GRADIENTS_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_GRADIENTS_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/amx/amx_products-inl.h"
#include "worker/kernel/cpu/isa/bf16_row_pairs-inl.h"
#include "worker/kernel/cpu/isa/gradient_functions-inl.h"

// Gradients by AMX. Compiled for AMX and included by tile_amx.cc. Start at AddOuterAmx and
// PackRowsAmx; kAmxGradients is the table.
//
// Sums over rows are computed transposed, sumsᵀ = rightᵀ · weights. Pairs of rows of weights are
// then a right matrix without repacking, and the tile's rows are transposed instead.

namespace annulus {
namespace {

constexpr int kRowChunks = kTileRows / kChunk;
static_assert(kTileRows % kChunk == 0);

inline int RowChunksOf(int rows) { return (rows + kChunk - 1) / kChunk; }

// Packs as [16 columns][chunk of 32 rows][AMX tile: one row per column].
inline bool PackRowsAmx(const QueryRows& rows, float* out) {
  __m512 square[2][kTile];
  const int pairs = RowChunksOf(rows.count) * kTile;
  return ForEachRowPair(rows, pairs, [&](int pair, int column, __m512i numbers) {
    __m512(&tile)[kTile] = square[column / kTile % 2];
    tile[pair % kTile] = _mm512_castsi512_ps(numbers);
    if (pair % kTile < kTile - 1) return;
    Avx512::Transpose(tile);
    float* to = out + (column / kTile * kRowChunks + pair / kTile) * (kTile * kTile);
    for (int c = 0; c < kTile; ++c) _mm512_storeu_ps(to + c * kTile, tile[c]);
  });
}

inline void KeepSeenAmx(const float* packed, int dim, const uint8_t* seen, float* out) {
  alignas(64) uint32_t masks[kRowPairs];
  for (int pair = 0; pair < kRowPairs; ++pair) masks[pair] = VisibleOfPair(seen, pair);
  const int vectors = (dim + kTile - 1) / kTile * kRowChunks * kTile;
  for (int i = 0; i < vectors; ++i) {
    const __m512i mask = _mm512_load_si512(masks + i / kTile % kRowChunks * kTile);
    _mm512_storeu_si512(out + i * kTile,
                        _mm512_and_si512(_mm512_loadu_si512(packed + i * kTile), mask));
  }
}

// Sums of 16 or 32 columns.
template <int COLUMNS>
void AddOuterColumns(const OuterProduct& p, int column) {
  Operands of;
  of.left = reinterpret_cast<const Bf16*>(p.right + column * (kRowChunks * kTile));
  of.left_stride = kChunk * sizeof(Bf16);
  of.left_chunk = kTileNumbers;
  of.left_below = kRowChunks * kTileNumbers;
  of.right_beside = kRowChunks * kTileNumbers;
  of.chunks = RowChunksOf(p.rows);
  float* sums = p.sums + int64_t{column} * kKeyBlock;
  Products<COLUMNS, 1> products;
  for (int key = p.key_begin / kTile * kTile; key < p.key_end; key += 2 * kTile) {
    of.right = reinterpret_cast<const Bf16*>(p.rounded + key * kRowPairs);
    const Product out = {sums + key, kKeyBlock, kTile, kTile * kKeyBlock};
    key + kTile < p.key_end ? products.template Multiply<2, Start::kOut>(of, out, NoWork())
                            : products.template Multiply<1, Start::kOut>(of, out, NoWork());
  }
  products.Finish();
}

inline void AddOuterTiles(const OuterProduct& p) {
  RoundRowPairs<kTile>(p, RowChunksOf(p.rows) * kTile);
  const TileUse use;
  Fence();
  for (int column = 0; column < p.dim; column += 2 * kTile)
    p.dim - column > kTile ? AddOuterColumns<2>(p, column) : AddOuterColumns<1>(p, column);
}

inline void AddOuterAmx(const OuterProduct& p) {
  if (p.key_end - p.key_begin != 1) return AddOuterTiles(p);
  alignas(64) float others[kMaxHeadDim][kTile];
  float* const at = p.sums + p.key_begin / kTile * kTile;
  for (int c = 0; c < p.dim; ++c)
    _mm512_store_ps(others[c], _mm512_loadu_ps(at + int64_t{c} * kKeyBlock));
  AddOuterTiles(p);
  const auto but_one = static_cast<__mmask16>(~(1u << p.key_begin % kTile));
  for (int c = 0; c < p.dim; ++c)
    _mm512_mask_storeu_ps(at + int64_t{c} * kKeyBlock, but_one, _mm512_load_ps(others[c]));
}

inline void SumsOfKeysAmx(const float* sums, int key, int dim, float* out, int stride) {
  for (int column = 0; column < dim; column += kTile) {
    __m512 square[kTile];
    Unroll<kTile>(
        [&](int c) { square[c] = _mm512_loadu_ps(sums + int64_t{column + c} * kKeyBlock + key); });
    Avx512::Transpose(square);
    Unroll<kTile>([&](int k) { _mm512_storeu_ps(out + k * stride + column, square[k]); });
  }
}

inline constexpr GradientIsa kAmxGradients = {
    Uncap<Avx512>, AddNumbers<Avx512>, MultiplyNumbers<Avx512>, ClearHiddenNumbers<Avx512>,
    PackRowsAmx,   KeepSeenAmx,        Weigh<Avx512>,           AddOuterAmx,
    SumsOfKeysAmx};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_GRADIENTS_INL_H_
