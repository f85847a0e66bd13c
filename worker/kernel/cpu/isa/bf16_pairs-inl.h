#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_PAIRS_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_PAIRS_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/isa/bf16_formats-inl.h"
#include "worker/kernel/cpu/isa/bf16_rounding-inl.h"
#include "worker/kernel/cpu/isa/bf16_row_pairs-inl.h"
#include "worker/kernel/cpu/isa/gradient_functions-inl.h"
#include "worker/kernel/cpu/isa/tile_products-inl.h"

// Products of pairs of bf16 numbers by VDPBF16PS, for the forward and the backward pass. Compiled
// for AVX512-BF16 and included by tile_avx512bf16.cc and unpacked_bf16_pairs-inl.h. Start at
// ScorePairs and AccumulatePairs; kPairGradients is the table of gradients.
namespace annulus {

// The instruction adds two products to a sum where a multiply-add adds one. A pair of bf16 numbers
// takes the place of an fp32 number, so the loops are those of fp32 (tile_products-inl.h) with half
// as many terms. Queries are packed as [row group][pair of dimensions][kRowGroup]. All else is
// packed as for AMX (bf16_packing-inl.h), in panels of four vectors. Weights are rounded as for
// AMX.

namespace {

struct Bf16Pairs : Avx512 {
  static constexpr int kDotRun = 32;  // Pairs.

  static F AddTerm(F a, F b, F sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

inline int PairsOf(int dim) { return Chunks(dim) * kTile; }

// Stores whole vectors in the place of kRowGroup pairs, as PackQueries does.
inline void PackQueryPairs(const QueryRows& rows, double scale, float* out) {
  const __m512i sign = _mm512_set1_epi16(static_cast<int16_t>(scale < 0 ? 0x8000 : 0));
  for (int begin = 0; begin < rows.count; begin += kRowGroup) {
    for (int d = 0; d < rows.dim; d += kChunk, out += kTile * kRowGroup) {
      __m512 square[kTile];
      Unroll<kTile>([&](int r) {
        const bool there = r < kRowGroup && begin + r < rows.count;
        square[r] = there ? _mm512_castsi512_ps(_mm512_xor_si512(
                                LoadPart32(rows.row[begin + r], d, rows.dim), sign))
                          : _mm512_setzero_ps();
      });
      Avx512::Transpose(square);
      Unroll<kTile>([&](int pair) { _mm512_storeu_ps(out + pair * kRowGroup, square[pair]); });
    }
  }
}

// scores = scale · queries · keys.
inline void ScorePairs(const TileBlock& tile) {
  TileBlock pairs = tile;
  pairs.head_dim = PairsOf(tile.head_dim);
  Score<Bf16Pairs>(pairs);
  if (tile.score_scale == 1) return;
  const __m512 factor = _mm512_set1_ps(tile.score_scale);
  for (int row = 0; row < tile.rows; ++row) {
    const KeySpan part = WrittenPart<Avx512>(tile, row);
    float* scores = tile.scores + int64_t{row} * kKeyBlock;
    for (int key = part.begin; key < part.end; key += kTile)
      _mm512_storeu_ps(scores + key, _mm512_mul_ps(_mm512_loadu_ps(scores + key), factor));
  }
}

// Adds rounded weights of rows [row, row + rows) times the pairs of values in `hull`, one panel of
// columns.
inline void AddValues(const TileBlock& tile, int row, int rows, Hull hull, const float* values,
                      int column) {
  const KeySpan pairs = {static_cast<int16_t>(hull.begin / kChunk * kTile),
                         static_cast<int16_t>((hull.end + kChunk - 1) / kChunk * kTile)};
  const ValuePanel p = {tile.scores + int64_t{row} * kKeyBlock,
                        values,
                        &pairs,
                        1,
                        tile.alpha + row,
                        tile.sums + int64_t{row} * tile.sum_stride + column,
                        tile.sum_stride,
                        NextPanel::Of<Bf16Pairs>(values, kKeyPairs, row / kRowGroup)};
  WithPanelFunctions<Bf16Pairs>(VectorsOf<Bf16Pairs>(tile.value_dim - column),
                                [&](const auto& functions) { functions.accumulate[rows - 1](p); });
}

inline void AccumulatePairs(const TileBlock& tile) {
  for (int row = 0; row < tile.rows; row += kRowGroup) {
    const int end = MinInt(tile.rows, row + kRowGroup);
    const Hull hull = HullOf(tile, row, end);
    for (int r = row; r < end && hull.begin < hull.end; ++r) RoundRow<Whole>(tile, r, hull);
  }
  for (int column = 0; column < tile.value_dim; column += kPanel<Bf16Pairs>) {
    for (int row = 0; row < tile.rows; row += kRowGroup) {
      const int rows = MinInt(kRowGroup, tile.rows - row);
      const Hull hull = HullOf(tile, row, row + rows);
      if (hull.begin >= hull.end) continue;
      AddValues(tile, row, rows, hull, tile.values + int64_t{column} * kKeyPairs, column);
    }
  }
}

// Uses only the values that the row sees. The sum is the same, because the others would be
// multiplied by zero.
inline void AccumulateRowPairs(const TileBlock& row, const KeySpan* spans, int count) {
  constexpr int kColumns = kPanel<Bf16Pairs>;
  const Hull hull{spans[0].begin, spans[count - 1].end};
  alignas(64) Bf16 seen[kKeyBlock] = {};
  for (int i = 0; i < count; ++i) {
    for (int key = spans[i].begin; key < spans[i].end; ++key) seen[PlaceBeside(key)] = 0xffff;
  }
  auto* weights = reinterpret_cast<Bf16*>(row.scores);
  for (int key = hull.begin / kChunk * kChunk; key < hull.end; key += kChunk) {
    RoundWeights<Whole>(row.scores, key, 0, kKeyBlock, weights + key, 0);
    _mm512_storeu_si512(weights + key, _mm512_and_si512(_mm512_loadu_si512(weights + key),
                                                        _mm512_load_si512(seen + key)));
  }
  alignas(64) float values[kKeyPairs * kColumns];
  for (int column = 0; column < row.value_dim; column += kColumns) {
    const float* from = row.values + int64_t{column} * kKeyPairs;
    const int end = (hull.end + kChunk - 1) / kChunk * kTile;
    for (int pair = hull.begin / kChunk * kTile; pair < end; ++pair) {
      int mask;
      __builtin_memcpy(&mask, seen + 2 * pair, sizeof(mask));
      for (int i = pair * kColumns; i < (pair + 1) * kColumns; i += kTile)
        _mm512_store_si512(values + i,
                           _mm512_and_si512(_mm512_loadu_si512(from + i), _mm512_set1_epi32(mask)));
    }
    AddValues(row, 0, 1, hull, values, column);
  }
}

}  // namespace

// Gradients by products of pairs of bf16 numbers.

namespace {

// Packs as [panel of columns][kTileRows][panel]; pairs take the first half.
inline bool PackRowPairs(const QueryRows& rows, float* out) {
  constexpr int kColumns = kPanel<Bf16Pairs>;
  return ForEachRowPair(rows, PairsOfRows(rows.count), [&](int pair, int column, __m512i numbers) {
    const int panel = column / kColumns;
    _mm512_storeu_si512(out + panel * (kTileRows * kColumns) + pair * kColumns + column % kColumns,
                        numbers);
  });
}

inline void KeepSeenPairs(const float* packed, int dim, const uint8_t* seen, float* out) {
  constexpr int kColumns = kPanel<Bf16Pairs>;
  for (int column = 0; column < dim; column += kColumns) {
    for (int pair = 0; pair < kRowPairs; ++pair) {
      const __m512i mask = _mm512_set1_epi32(static_cast<int>(VisibleOfPair(seen, pair)));
      const int64_t at = int64_t{column} * kTileRows + pair * kColumns;
      for (int c = 0; c < kColumns; c += kTile)
        _mm512_storeu_si512(out + at + c,
                            _mm512_and_si512(_mm512_loadu_si512(packed + at + c), mask));
    }
  }
}

inline void AddOuterPairs(const OuterProduct& p) {
  OuterProduct pairs = p;
  pairs.rows = PairsOfRows(p.rows);
  RoundRowPairs<kPairStride>(p, pairs.rows);
  pairs.weights = p.rounded;
  pairs.weight_stride = kPairStride;
  AddOuter<Bf16Pairs>(pairs);
}

inline constexpr GradientIsa kPairGradients = {
    Uncap<Avx512>, AddNumbers<Avx512>, MultiplyNumbers<Avx512>, ClearHiddenNumbers<Avx512>,
    PackRowPairs,  KeepSeenPairs,      Weigh<Avx512>,           AddOuterPairs,
    nullptr};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_BF16_PAIRS_INL_H_
