#ifndef ANNULUS_WORKER_KERNEL_AMX_VALUES_H_
#define ANNULUS_WORKER_KERNEL_AMX_VALUES_H_

#include <immintrin.h>

#include "worker/kernel/amx_rounding.h"
#include "worker/kernel/amx_scores.h"
#include "worker/kernel/amx_sums.h"

// Weights times values by AMX.

namespace annulus {
namespace {

template <class FORMAT, int ROWS>
void AccumulateRows(const TileBlock& tile, int row) {
  const Hull hull = HullOf(tile, row, MinInt(tile.rows, row + ROWS * kTile));
  if (hull.begin >= hull.end) return;
  for (int r = 0; r < ROWS * kTile; ++r) RoundRow<FORMAT>(tile, row + r, hull);
  Fence();
  const int first = hull.begin / kChunk;
  Operands of;
  of.left_chunk = FORMAT::kParts * kChunk;
  of.left =
      reinterpret_cast<const Bf16*>(tile.scores + int64_t{row} * kKeyBlock) + first * of.left_chunk;
  of.left_stride = kKeyBlock * sizeof(float);
  of.left_low = kChunk;
  of.left_below = kTile * kKeyBlock * (sizeof(float) / sizeof(Bf16));
  of.chunks = (hull.end + kChunk - 1) / kChunk - first;
  AddAllColumns<FORMAT, ROWS>(tile, row, first, {tile.alpha + row, /*fresh=*/false}, of, NoWork());
}

template <class FORMAT>
void AccumulateAmx(const TileBlock& tile) {
  const TileUse use;
  for (int row = 0; row < tile.rows; row += 2 * kTile) {
    tile.rows - row > kTile ? AccumulateRows<FORMAT, 2>(tile, row)
                            : AccumulateRows<FORMAT, 1>(tile, row);
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_VALUES_H_
