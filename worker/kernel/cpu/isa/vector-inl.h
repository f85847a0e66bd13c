#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_VECTOR_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_VECTOR_INL_H_

#include <utility>

#include "worker/kernel/cpu/isa/tile_isa.h"

// The vector layer of a TileIsa: its functions are templates over a vector type V. Only the
// tile_*.cc files include this, each compiled for its own instruction set. So everything here has
// internal linkage and uses no inline function from elsewhere. Otherwise the linker might pick a
// function compiled for a newer CPU for an older one.
//
// V has these members:
// - kLanes; kPanelVectors: vectors of a panel; F: a vector of floats.
// - Zero, Set, Load, Store, LoadBf16, LoadFp16 (unaligned).
// - Add, Sub, Mul, Div; Fma(a, b, c) = a·b + c.
// - AddTerm(a, b, c): one term of the sums of matrix products; kDotRun: terms per run, after which
//   a run's sum is added to those of earlier runs.
// - Max(a, b): b if either is NaN.
// - IfLess(a, b, x, y): x where a < b, else y.
// - Choose(bits, x, y): x where bit i of `bits` is 1, else y.
// - Distance(n, at): |n − at[i]| of integers, as floats.
// - WordsBelow: as WordsBelowOneByOne (philox_words-inl.h).
// - ShiftToExponent(a): the bits of a, shifted left by 23, as floats.
// - Transpose(rows): swaps rows[i][j] and rows[j][i].

namespace annulus {
namespace {

template <class V>
inline constexpr int kPanel = V::kLanes* V::kPanelVectors;

// Calls fn(0) … fn(COUNT − 1) without a loop, so that arrays with these indexes become registers.
template <class Fn, int... I>
inline __attribute__((always_inline)) void UnrollOver(std::integer_sequence<int, I...>,
                                                      const Fn& fn) {
  (fn(I), ...);
}
template <int COUNT, class Fn>
inline __attribute__((always_inline)) void Unroll(const Fn& fn) {
  UnrollOver(std::make_integer_sequence<int, COUNT>(), fn);
}

inline int MinInt(int a, int b) { return a < b ? a : b; }

// Keys of the block that `score` writes for a row and `softmax` or `weigh` reads; none if its row
// group sees none. For a TileBlock or a GradientTile.
template <class V, class Tile>
inline KeySpan WrittenPart(const Tile& tile, int row) {
  const int begin = tile.group_begin[row / kRowGroup], end = tile.group_end[row / kRowGroup];
  if (begin >= end) return {};
  return {static_cast<int16_t>(begin / kPanel<V> * kPanel<V>),
          static_cast<int16_t>((end + V::kLanes - 1) / V::kLanes * V::kLanes)};
}

template <class V>
inline float MaxOfLanes(typename V::F v) {
  float lane[V::kLanes];
  V::Store(lane, v);
  for (int width = V::kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lane[i] = lane[i] > lane[i + width] ? lane[i] : lane[i + width];
  return lane[0];
}

template <class V>
inline float SumOfLanes(typename V::F v) {
  float lane[V::kLanes];
  V::Store(lane, v);
  for (int width = V::kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  return lane[0];
}

// Reduces the lanes of each row with `join`; lane r of the result is row r's.
template <class V, class Join>
inline typename V::F AcrossRows(typename V::F (&rows)[V::kLanes], const Join& join) {
  V::Transpose(rows);
  for (int width = V::kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) rows[i] = join(rows[i], rows[i + width]);
  return rows[0];
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_VECTOR_INL_H_
