#ifndef ANNULUS_WORKER_KERNEL_TILE_PANELS_H_
#define ANNULUS_WORKER_KERNEL_TILE_PANELS_H_

#include <cstdint>

#include "worker/kernel/next_panel.h"
#include "worker/kernel/tile_sums.h"
#include "worker/kernel/tile_vector.h"

// The micro-kernels of the matrix products of a TileIsa (tile_vector.h): a row group and a panel.

namespace annulus {
namespace {

// ROWS query rows × VECTORS vectors of keys: one panel, or its first part. Products are summed in
// runs of V::kDotRun dimensions, runs then in order: with 32 of fp32, half the rounding error of
// one long chain at 128 dimensions, for 3 % of the time. Flat, as everything that holds Sums: one
// lambda that is called costs twice the time of the products.
template <class V, int ROWS, int VECTORS>
__attribute__((flatten)) void ScorePanel(const float* q, const float* k, int dim, float* scores,
                                         NextPanel next) {
  for (int begin = 0; begin < dim; begin += V::kDotRun) {
    Sums<V, ROWS, VECTORS> run;
    run.Clear();
    const int end = MinInt(dim, begin + V::kDotRun);
    for (int d = begin; d < end;) {
      next.AskForLine();
      for (const int stop = MinInt(end, d + kAskEvery<V>); d < stop; ++d) {
        run.AddOuter(q, 1, k);
        q += kRowGroup;
        k += kPanel<V>;
      }
    }
    run.ForEach([&](int r, int v, typename V::F& sum) {
      float* at = scores + r * kKeyBlock + v * V::kLanes;
      V::Store(at, begin == 0 ? sum : V::Add(V::Load(at), sum));
    });
  }
}

struct ValuePanel {
  const float* weights;  // [ROWS][kKeyBlock]
  const float* values;   // [kKeyBlock][panel], or pairs (bf16_pairs.h)
  const KeySpan* spans;  // The keys, or pairs, to take: a weight that is left out counts as 0.
  int span_count;
  const float* alpha;
  float* sums;
  int sum_stride;
  NextPanel next;
};

// The block's own sum is built first and added once: fewer roundings of a long sum.
template <class V, int ROWS, int VECTORS>
__attribute__((flatten)) void AccumulatePanel(const ValuePanel& p) {
  Sums<V, ROWS, VECTORS> block;
  block.Clear();
  NextPanel next = p.next;
  for (int s = 0; s < p.span_count; ++s) {
    const float* values = p.values + p.spans[s].begin * kPanel<V>;
    for (int k = p.spans[s].begin; k < p.spans[s].end;) {
      next.AskForLine();
      for (const int stop = MinInt(p.spans[s].end, k + kAskEvery<V>); k < stop; ++k) {
        block.AddOuter(p.weights + k, kKeyBlock, values);
        values += kPanel<V>;
      }
    }
  }
  block.ForEach([&](int r, int v, typename V::F& sum) {
    float* at = p.sums + r * p.sum_stride + v * V::kLanes;
    V::Store(at, V::Fma(V::Load(at), V::Set(p.alpha[r]), sum));
  });
}

// The functions for VECTORS vectors, by row count − 1.
template <class V, int VECTORS>
struct PanelFunctions {
  decltype(&ScorePanel<V, 1, 1>) score[kRowGroup] = {
      ScorePanel<V, 1, VECTORS>, ScorePanel<V, 2, VECTORS>, ScorePanel<V, 3, VECTORS>,
      ScorePanel<V, 4, VECTORS>, ScorePanel<V, 5, VECTORS>, ScorePanel<V, 6, VECTORS>};
  decltype(&AccumulatePanel<V, 1, 1>) accumulate[kRowGroup] = {
      AccumulatePanel<V, 1, VECTORS>, AccumulatePanel<V, 2, VECTORS>,
      AccumulatePanel<V, 3, VECTORS>, AccumulatePanel<V, 4, VECTORS>,
      AccumulatePanel<V, 5, VECTORS>, AccumulatePanel<V, 6, VECTORS>};
};
template <class V, int VECTORS>
inline constexpr PanelFunctions<V, VECTORS> kPanelFunctions;

// Calls fn with the functions for `vectors` vectors.
template <class V, class Fn>
inline void WithPanelFunctions(int vectors, const Fn& fn) {
  if constexpr (V::kPanelVectors > 2) {
    if (vectors == 3) return fn(kPanelFunctions<V, 3>);
    if (vectors == 4) return fn(kPanelFunctions<V, 4>);
  }
  return vectors == 1 ? fn(kPanelFunctions<V, 1>) : fn(kPanelFunctions<V, 2>);
}

template <class V>
inline int VectorsOf(int elements) {
  return MinInt(V::kPanelVectors, (elements + V::kLanes - 1) / V::kLanes);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_PANELS_H_
