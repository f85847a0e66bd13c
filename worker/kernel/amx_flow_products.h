#ifndef ANNULUS_WORKER_KERNEL_AMX_FLOW_PRODUCTS_H_
#define ANNULUS_WORKER_KERNEL_AMX_FLOW_PRODUCTS_H_

#include <immintrin.h>

#include "worker/kernel/amx_flow_strip.h"
#include "worker/kernel/amx_four_tiles.h"

// The products of a step of the flow (amx_flow.h). Scores of two steps lie at the tile's scores.

namespace annulus {
namespace {

constexpr int kFlowSteps = 4;                                           // Of a strip.
constexpr int kFlowFloats = FlowStrip::kRows * kKeyBlock / kFlowSteps;  // Scores of a step.

// DIMS chunks of 32 dimensions, of queries and of values.
template <int DIMS>
class FlowProducts {
 public:
  explicit FlowProducts(const TileBlock& tile) : tile_(tile) {}

  // Where scores of 32 keys go: the first or the second of a step.
  Product ScoresOf(int step, int half) const {
    return {tile_.scores + (step % 2) * kFlowFloats + half * (kFlowFloats / 2), kTile,
            FlowPlace::kChunkFloats, kTile * kTile};
  }
  // The sums that the tiles hold when a step ends, if any.
  Product Sums() const { return SumsAt(sums_); }

  // The step's scores; the last of them stay in the tiles. What these held goes to `to`.
  template <class Work>
  inline __attribute__((always_inline)) void Score(const FlowStrip& strip, int step,
                                                   const Product& to, const Work& work) {
    const Bf16* left = reinterpret_cast<const Bf16*>(tile_.queries) + strip.row / kTile * kGroup;
    const Bf16* right = reinterpret_cast<const Bf16*>(strip.block->keys) + step * 4 * kGroup;
    ScoreHalf(left, right, to, work);
    ScoreHalf(left, right + 2 * kGroup, ScoresOf(step, 0), work);
  }

  // A quarter of what the strip's sums take: 32 columns of values, or those of a part of the keys.
  // The sums stay in the tiles. What these held goes to `to`.
  template <class Work>
  inline __attribute__((always_inline)) void Add(const FlowStrip& strip, int step,
                                                 const Product& to, const Work& work) {
    constexpr int kParts = kFlowSteps / DIMS, kPart = kKeyChunks / kParts;
    constexpr int64_t kBeside = kKeyChunks * kTileNumbers;
    const int column = step / kParts, chunk = step % kParts * kPart;
    const Bf16* left = strip.left + chunk * strip.left_chunk;
    const Bf16* right = reinterpret_cast<const Bf16*>(strip.block->values) + column * 2 * kBeside +
                        chunk * kTileNumbers;
    sums_ = tile_.sums + int64_t{strip.row} * tile_.sum_stride + column * kChunk;
    const Product sums = SumsAt(sums_);
    MultiplyFourTiles<true>(left, kTileNumbers, right, kBeside, to, sums, work);
    Unroll<kPart - 1>([&](int) __attribute__((always_inline)) {
      left += strip.left_chunk;
      right += kTileNumbers;
      MultiplyFourTiles<false>(left, kTileNumbers, right, kBeside, to, sums, work);
    });
  }

 private:
  static constexpr int64_t kGroup = int64_t{DIMS} * kTileNumbers;  // Of 16 rows or keys.

  // Sums of 32 rows and columns from `first` on.
  Product SumsAt(float* first) const {
    return {first, tile_.sum_stride, kTile, kTile * tile_.sum_stride};
  }

  // Scores of 32 keys.
  template <class Work>
  static inline __attribute__((always_inline)) void ScoreHalf(const Bf16* left, const Bf16* right,
                                                              const Product& to, const Work& work) {
    const Product zero{const_cast<float*>(kZeros), kTile, 0, 0};
    MultiplyFourTiles<true>(left, kGroup, right, kGroup, to, zero, work);
    Unroll<DIMS - 1>([&](int c) __attribute__((always_inline)) {
      const int64_t at = (c + 1) * kTileNumbers;
      MultiplyFourTiles<false>(left + at, kGroup, right + at, kGroup, to, zero, work);
    });
  }

  const TileBlock& tile_;
  float* sums_ = nullptr;
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_FLOW_PRODUCTS_H_
