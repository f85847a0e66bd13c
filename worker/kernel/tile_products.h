#ifndef ANNULUS_WORKER_KERNEL_TILE_PRODUCTS_H_
#define ANNULUS_WORKER_KERNEL_TILE_PRODUCTS_H_

#include <cstdint>

#include "worker/kernel/tile_panels.h"
#include "worker/kernel/tile_vector.h"

// The two matrix products of a TileIsa (tile_vector.h).

namespace annulus {
namespace {

// The panel is the outer loop: it stays in a near cache while all row groups pass.
template <class V>
void Score(const TileBlock& tile) {
  for (int begin = 0; begin < kKeyBlock; begin += kPanel<V>) {
    const float* keys = tile.keys + int64_t{begin} * tile.head_dim;
    for (int row = 0, group = 0; row < tile.rows; row += kRowGroup, ++group) {
      const int end = tile.group_end[group];
      if (begin >= end || begin + kPanel<V> <= tile.group_begin[group]) continue;
      const int rows = MinInt(kRowGroup, tile.rows - row);
      WithPanelFunctions<V>(VectorsOf<V>(end - begin), [&](const auto& functions) {
        functions.score[rows - 1](tile.queries + row * tile.head_dim, keys, tile.head_dim,
                                  tile.scores + row * kKeyBlock + begin,
                                  NextPanel::Of<V>(keys, tile.head_dim, group));
      });
    }
  }
}

// Rows [row, row + rows) and a panel of columns.
template <class V>
inline void AccumulateRows(const TileBlock& tile, int row, int rows, int column,
                           const KeySpan* spans, int count) {
  const float* values = tile.values + int64_t{column} * kKeyBlock;
  const ValuePanel p = {tile.scores + row * kKeyBlock,
                        values,
                        spans,
                        count,
                        tile.alpha + row,
                        tile.sums + int64_t{row} * tile.sum_stride + column,
                        tile.sum_stride,
                        NextPanel::Of<V>(values, kKeyBlock, row / kRowGroup)};
  WithPanelFunctions<V>(VectorsOf<V>(tile.value_dim - column),
                        [&](const auto& functions) { functions.accumulate[rows - 1](p); });
}

template <class V>
void Accumulate(const TileBlock& tile) {
  for (int column = 0; column < tile.value_dim; column += kPanel<V>) {
    for (int row = 0, group = 0; row < tile.rows; row += kRowGroup, ++group) {
      const KeySpan keys = {tile.group_begin[group], tile.group_end[group]};
      if (keys.begin >= keys.end) continue;
      AccumulateRows<V>(tile, row, MinInt(kRowGroup, tile.rows - row), column, &keys, 1);
    }
  }
}

// One sum over all spans, as above: what lies between would have been multiplied by 0.
template <class V>
void AccumulateRow(const TileBlock& row, const KeySpan* spans, int count) {
  for (int column = 0; column < row.value_dim; column += kPanel<V>) {
    AccumulateRows<V>(row, 0, 1, column, spans, count);
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_PRODUCTS_H_
