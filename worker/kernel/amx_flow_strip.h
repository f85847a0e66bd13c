#ifndef ANNULUS_WORKER_KERNEL_AMX_FLOW_STRIP_H_
#define ANNULUS_WORKER_KERNEL_AMX_FLOW_STRIP_H_

#include <immintrin.h>

#include "worker/kernel/amx_formats.h"
#include "worker/kernel/amx_softmax.h"

// A strip on its way through the flow (amx_flow.h), and the softmax of its rows.

namespace annulus {
namespace {

// A score above its row's maximum by more than Whole::kSlack weighs more than this, however it is
// rounded; 256 that equal the maximum do not.
constexpr float kMostWeight = 512;

struct FlowStrip {
  static constexpr int kRows = 2 * kTile;
  static constexpr int kWeightChunk = kRows * kChunk;  // Numbers from 32 keys to the next.

  const PackedBlock* block = nullptr;
  int row = 0;
  Bf16* weights = nullptr;  // [32 keys][row][key], room for a strip.
  // The weights that count, and numbers from 32 keys to the next.
  const Bf16* left = nullptr;
  int64_t left_chunk = 0;
  __mmask16 there[2];
  alignas(64) float references[kRows];
  alignas(64) float sums[kRows][kTile];

  // All rows have seen a key.
  void Begin(const TileBlock& tile) {
    left = weights;
    left_chunk = kWeightChunk;
    for (int i = 0; i < 2; ++i) {
      const int count = MinInt(kTile, tile.rows - row - i * kTile);
      there[i] = static_cast<__mmask16>(count > 0 ? (1u << count) - 1 : 0);
      _mm512_store_ps(references + i * kTile,
                      _mm512_maskz_loadu_ps(there[i], tile.max + row + i * kTile));
    }
    for (float* sum : sums) _mm512_store_ps(sum, _mm512_setzero_ps());
  }

  // Adds what the rows weigh to their states; false, and nothing done, when some row's maximum may
  // not stay.
  bool End(const TileBlock& tile) const {
    __m512 of_rows[2];
    __mmask16 above = 0;
    for (int i = 0; i < 2; ++i) {
      of_rows[i] = SumsOf(sums + i * kTile);
      above |=
          _mm512_mask_cmp_ps_mask(there[i], of_rows[i], _mm512_set1_ps(kMostWeight), _CMP_NLE_UQ);
    }
    if (above != 0) return false;
    for (int i = 0; i < 2; ++i) {
      float* at = tile.weight + row + i * kTile;
      const __m512 old = _mm512_maskz_loadu_ps(there[i], at);
      _mm512_mask_storeu_ps(at, there[i], _mm512_add_ps(old, of_rows[i]));
    }
    return true;
  }
};

// Scores of a strip's rows and 64 keys, [16 keys][row][key], of which `row` is weighed next.
struct FlowPlace {
  static constexpr int kChunkFloats = FlowStrip::kRows * kTile;

  FlowStrip* strip = nullptr;
  float* scores = nullptr;
  Bf16* weights = nullptr;  // Of these keys.
  int row = 0;

  inline __attribute__((always_inline)) void WeighRow(__m512 scale) {
    const int of = row++;
    const auto take = [&](int, int c, __m512 first, __m512 second) {
      Whole::StoreWeights(first, second, weights + of * kChunk + c / 2 * FlowStrip::kWeightChunk,
                          0);
    };
    const Weighing<Whole> weighing{scale, _mm512_set1_ps(strip->references[of])};
    const __m512 more = WeighFour(ScoreView<kTile, kChunkFloats>{scores}, of, 0, 4, weighing, take);
    float* sum = strip->sums[of];
    _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), more));
  }
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_FLOW_STRIP_H_
