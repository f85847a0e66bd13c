#ifndef ANNULUS_WORKER_KERNEL_TILE_ROW_VALUES_H_
#define ANNULUS_WORKER_KERNEL_TILE_ROW_VALUES_H_

#include <cstdint>

#include "worker/kernel/tile_row_scores.h"
#include "worker/kernel/tile_vector.h"

// Weights times values as they lie in rows (tile_rows.h).

namespace annulus {
namespace {

// The values of some keys, and what SLOTS slots make of them.
template <int SLOTS>
struct WeighedValues {
  const std::byte* at[kLyingKeys];
  int count = 0;
  int64_t ahead = 0;
  alignas(64) float weights[SLOTS][kLyingKeys];
  float alphas[SLOTS];
};

// VECTORS vectors of columns; of the last one only `some` numbers, where that is not 0. What the
// keys add up to is added to a slot's sums once: fewer roundings of a long sum.
template <class V, DataType TYPE, int SLOTS, int VECTORS>
__attribute__((flatten)) void AddValues(const WeighedValues<SLOTS>& values, int column, int some,
                                        const RowSlot* slots) {
  constexpr int kBytes = V::kLanes * kElementBytes<TYPE>;
  typename V::F sums[SLOTS][VECTORS], numbers[VECTORS];
  Unroll<SLOTS>([&](int s) { Unroll<VECTORS>([&](int v) { sums[s][v] = V::Zero(); }); });
  for (int k = 0; k < values.count; ++k) {
    const std::byte* from = values.at[k] + int64_t{column} * kElementBytes<TYPE>;
    FetchAhead<VECTORS * kBytes>(from, values.ahead);
    Unroll<VECTORS>([&](int v) {
      numbers[v] = some == 0 ? LoadVector<V, TYPE>(from + v * kBytes)
                             : LoadSome<V, TYPE>(from + v * kBytes, some);
    });
    Unroll<SLOTS>([&](int s) {
      const typename V::F weight = V::Set(values.weights[s][k]);
      Unroll<VECTORS>([&](int v) { sums[s][v] = V::Fma(weight, numbers[v], sums[s][v]); });
    });
  }
  Unroll<SLOTS>([&](int s) {
    const typename V::F alpha = V::Set(values.alphas[s]);
    Unroll<VECTORS>([&](int v) {
      float* at = slots[s].sums + column + v * V::kLanes;
      V::Store(at, V::Fma(V::Load(at), alpha, sums[s][v]));
    });
  });
}

template <class V, DataType TYPE, int SLOTS>
inline void AddRowValues(const WeighedValues<SLOTS>& values, int dim, const RowSlot* slots) {
  constexpr int kVectors = 4;
  int column = 0;
  for (; column + kVectors * V::kLanes <= dim; column += kVectors * V::kLanes)
    AddValues<V, TYPE, SLOTS, kVectors>(values, column, 0, slots);
  for (; column + V::kLanes <= dim; column += V::kLanes)
    AddValues<V, TYPE, SLOTS, 1>(values, column, 0, slots);
  if (column < dim) AddValues<V, TYPE, SLOTS, 1>(values, column, dim - column, slots);
}

// For one slot, of the keys that it sees: an unseen value may be NaN or infinite.
template <class V, DataType TYPE, int SLOTS>
void AddSeenValues(const WeighedValues<SLOTS>& all, int index, int dim, const RowSlot& slot) {
  WeighedValues<1> seen;
  for (int k = 0; k < kLyingKeys; ++k) {
    if ((slot.seen >> k & 1) == 0) continue;
    seen.at[seen.count] = all.at[k];
    seen.weights[0][seen.count++] = all.weights[index][k];
  }
  seen.alphas[0] = all.alphas[index];
  AddRowValues<V, TYPE, 1>(seen, dim, &slot);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_ROW_VALUES_H_
