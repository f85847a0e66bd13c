#ifndef ANNULUS_WORKER_KERNEL_TILE_SUMS_H_
#define ANNULUS_WORKER_KERNEL_TILE_SUMS_H_

#include "worker/kernel/tile_vector.h"

// The accumulators of a micro-kernel (tile_vector.h).

namespace annulus {
namespace {

template <class V, int ROWS, int VECTORS>
struct Sums {
  typename V::F at[ROWS][VECTORS];

  template <class Fn>
  inline __attribute__((always_inline)) void ForEach(const Fn& fn) {
    Unroll<ROWS>([&](int r) { Unroll<VECTORS>([&](int v) { fn(r, v, at[r][v]); }); });
  }
  void Clear() {
    ForEach([](int, int, typename V::F& sum) { sum = V::Zero(); });
  }
  // Adds (a[r · a_stride], …) ⊗ (b[0], …).
  inline __attribute__((always_inline)) void AddOuter(const float* a, int a_stride,
                                                      const float* b) {
    typename V::F right[VECTORS];
    Unroll<VECTORS>([&](int v) { right[v] = V::Load(b + v * V::kLanes); });
    Unroll<ROWS>([&](int r) {
      const typename V::F left = V::Set(a[r * a_stride]);
      Unroll<VECTORS>([&](int v) { at[r][v] = V::AddTerm(left, right[v], at[r][v]); });
    });
  }
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_SUMS_H_
