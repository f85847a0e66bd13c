#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_PRODUCTS_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_PRODUCTS_INL_H_

#include <cstdint>

#include "worker/kernel/cpu/isa/vector-inl.h"

// The two matrix products of a TileIsa, as templates over a vector type (vector-inl.h). Included by
// tile_functions-inl.h, gradient_functions-inl.h and bf16_pairs-inl.h. Start at Score and
// Accumulate at the end; the micro-kernels are ScorePanel and AccumulatePanel.
namespace annulus {

// The accumulators of a micro-kernel.

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

// Prefetches of the products.

namespace {

inline constexpr int kLineFloats = 16;

// Panels are contiguous in the order of reading, and each is far larger than the rows of a row
// group. So while the loop reads a panel, it prefetches the next one, wherever that lies. Each row
// group prefetches its part: one line every kAskEvery steps.
template <class V>
inline constexpr int kAskEvery = kTileRows / kRowGroup* kLineFloats /
                                 (kPanel<V> > kLineFloats ? kPanel<V> : kLineFloats);

class NextPanel {
 public:
  // The part after the panel at `panel`, which has `steps` steps, for row group number `group`.
  template <class V>
  static NextPanel Of(const float* panel, int steps, int group) {
    const int64_t lines = int64_t{steps / kAskEvery<V>} * (group % (kTileRows / kRowGroup));
    const int64_t floats = int64_t{steps} * kPanel<V> + lines * kLineFloats;
    return NextPanel(reinterpret_cast<uintptr_t>(panel) + floats * sizeof(float));
  }
  void AskForLine() {
    __builtin_prefetch(reinterpret_cast<const void*>(line_), /*rw=*/0, /*locality=*/3);
    line_ += kLineFloats * sizeof(float);
  }

 private:
  explicit NextPanel(uintptr_t line) : line_(line) {}
  uintptr_t line_;  // May point past the buffer: it is never read.
};

}  // namespace

// The micro-kernels: one row group and one panel.

namespace {

// ROWS query rows × VECTORS vectors of keys: one panel, or its first part. Products are summed in
// runs of V::kDotRun dimensions, and runs in order. With runs of 32 in fp32, the rounding error is
// half that of one long chain at 128 dimensions, for 3 % of the time. Marked flatten, like every
// function with Sums: one lambda that is not inlined takes twice the time of the products.
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
  const float* values;   // [kKeyBlock][panel], or pairs (bf16_pairs-inl.h)
  const KeySpan* spans;  // The keys, or pairs, to use: the others count as weight 0.
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

// The functions for VECTORS vectors, indexed by row count − 1.
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

// The matrix products.

namespace {

// The panel is the outer loop: it stays in a near cache for all row groups.
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

// Rows [row, row + rows) and one panel of columns.
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

// One sum over all spans, as above: the keys between them would be multiplied by 0.
template <class V>
void AccumulateRow(const TileBlock& row, const KeySpan* spans, int count) {
  for (int column = 0; column < row.value_dim; column += kPanel<V>) {
    AccumulateRows<V>(row, 0, 1, column, spans, count);
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_PRODUCTS_INL_H_
