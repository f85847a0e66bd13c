#ifndef ANNULUS_WORKER_KERNEL_GRADIENT_PAIRS_H_
#define ANNULUS_WORKER_KERNEL_GRADIENT_PAIRS_H_

#include <immintrin.h>

#include "worker/kernel/bf16_pairs.h"
#include "worker/kernel/gradient_functions.h"
#include "worker/kernel/row_pairs.h"

// Gradients by AVX-512's products of pairs of bf16 numbers (bf16_pairs.h).

namespace annulus {
namespace {

// As [panel of columns][kTileRows][panel], of which pairs take the first half.
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
      const __m512i mask = _mm512_set1_epi32(static_cast<int>(SeenOfPair(seen, pair)));
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

#endif  // ANNULUS_WORKER_KERNEL_GRADIENT_PAIRS_H_
