#ifndef ANNULUS_WORKER_KERNEL_GRADIENT_FUNCTIONS_H_
#define ANNULUS_WORKER_KERNEL_GRADIENT_FUNCTIONS_H_

#include "worker/kernel/gradient_elements.h"
#include "worker/kernel/gradient_isa.h"
#include "worker/kernel/tile_packing.h"
#include "worker/kernel/tile_products.h"
#include "worker/kernel/tile_vector.h"

// The functions of a GradientIsa as templates over a vector type (tile_vector.h).

namespace annulus {
namespace {

template <class V>
bool PackRows(const QueryRows& rows, float* out) {
  typename V::F poison = V::Zero();  // Becomes NaN with the first value that is not finite.
  for (int column = 0; column < rows.dim; column += kPanel<V>, out += kTileRows * kPanel<V>) {
    for (int i = 0; i < rows.count; ++i) {
      for (int c = 0; c < kPanel<V>; c += V::kLanes) {
        const typename V::F value = column + c < rows.dim
                                        ? LoadPart<V>(rows.dtype, rows.row[i], column + c, rows.dim)
                                        : V::Zero();
        poison = V::Fma(value, V::Zero(), poison);
        V::Store(out + i * kPanel<V> + c, value);
      }
    }
  }
  return SumOfLanes<V>(poison) == 0.0f;
}

template <class V>
void KeepSeen(const float* packed, int dim, const uint8_t* seen, float* out) {
  const int64_t count = int64_t{(dim + kPanel<V> - 1) / kPanel<V>} * kTileRows * kPanel<V>;
  for (int64_t at = 0; at < count; at += V::kLanes) {
    const bool keep = seen[at / kPanel<V> % kTileRows] != 0;
    V::Store(out + at, keep ? V::Load(packed + at) : V::Zero());
  }
}

// ROWS keys × VECTORS vectors of columns. The tile's own sum is built first and added once.
template <class V, int ROWS, int VECTORS>
__attribute__((flatten)) void OuterPanel(const OuterProduct& p, int key, int column) {
  Sums<V, ROWS, VECTORS> tile;
  tile.Clear();
  const float* weights = p.weights + key;
  const float* right = p.right + int64_t{column} * kTileRows;
  for (int i = 0; i < p.rows; ++i, weights += p.weight_stride, right += kPanel<V>)
    tile.AddOuter(weights, 1, right);
  tile.ForEach([&](int r, int v, typename V::F& sum) {
    float* at = p.sums + int64_t{key + r} * p.sum_stride + column + v * V::kLanes;
    V::Store(at, V::Add(V::Load(at), sum));
  });
}

template <class V, int VECTORS>
void OuterColumn(const OuterProduct& p, int column) {
  int key = p.key_begin;
  for (; key + kRowGroup <= p.key_end; key += kRowGroup)
    OuterPanel<V, kRowGroup, VECTORS>(p, key, column);
  for (; key < p.key_end; ++key) OuterPanel<V, 1, VECTORS>(p, key, column);
}

template <class V>
void AddOuter(const OuterProduct& p) {
  for (int column = 0; column < p.dim; column += kPanel<V>) {
    const int vectors = VectorsOf<V>(p.dim - column);
    if constexpr (V::kPanelVectors > 2) {
      if (vectors == 4) {
        OuterColumn<V, 4>(p, column);
        continue;
      }
      if (vectors == 3) {
        OuterColumn<V, 3>(p, column);
        continue;
      }
    }
    vectors == 1 ? OuterColumn<V, 1>(p, column) : OuterColumn<V, 2>(p, column);
  }
}

template <class V>
inline constexpr GradientIsa kGradientIsa = {
    Uncap<V>,    AddNumbers<V>, MultiplyNumbers<V>, ClearHiddenNumbers<V>,
    PackRows<V>, KeepSeen<V>,   Weigh<V>,           AddOuter<V>,
    nullptr};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_GRADIENT_FUNCTIONS_H_
