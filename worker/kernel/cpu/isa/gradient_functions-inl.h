#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_GRADIENT_FUNCTIONS_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_GRADIENT_FUNCTIONS_INL_H_

#include "worker/kernel/cpu/isa/gradient_isa.h"
#include "worker/kernel/cpu/isa/tile_packing-inl.h"
#include "worker/kernel/cpu/isa/tile_products-inl.h"
#include "worker/kernel/cpu/isa/tile_softmax-inl.h"
#include "worker/kernel/cpu/isa/vector-inl.h"

// The fp32 loops of the backward pass: the functions of a GradientIsa as templates over a vector
// type (vector-inl.h). Included by tile_functions-inl.h, bf16_pairs-inl.h and amx_gradients-inl.h.
// Start at kGradientIsa at the end, and at Weigh, AddOuter and PackRows.
namespace annulus {

// Functions on pairs (query row, key).

namespace {

// exp(x) · 2^more; +inf from 2^128 on. An LSE that is not the row's own may make x any number.
template <class V>
inline typename V::F ExpOfAny(typename V::F x, typename V::F more) {
  const typename V::F t = V::Fma(x, V::Set(kLog2e), more);
  return Exp2<V>(V::Sub(V::Zero(), V::Max(V::Set(-128.0f), V::Sub(V::Zero(), t))));
}

template <class V>
void Weigh(const GradientTile& tile) {
  const typename V::F scale = V::Set(tile.scale), weight_scale = V::Set(tile.weight_scale);
  for (int row = 0; row < tile.rows; ++row) {
    const KeySpan part = WrittenPart<V>(tile, row);
    const typename V::F minus_lse = V::Set(-tile.lse[row]), delta = V::Set(tile.delta[row]);
    const typename V::F minus_rest = V::Set(-tile.lse_rest[row] * kLog2e);
    float* weights = tile.weights + row * kKeyBlock;
    float* d_scores = tile.d_scores + row * kKeyBlock;
    for (int k = part.begin; k < part.end; k += V::kLanes) {
      const typename V::F weight =
          ExpOfAny<V>(V::Fma(V::Load(weights + k), weight_scale, minus_lse), minus_rest);
      const typename V::F d_score = V::Mul(weight, V::Sub(V::Load(d_scores + k), delta));
      V::Store(weights + k, weight);
      V::Store(d_scores + k, V::Mul(d_score, scale));
    }
  }
}

template <class V>
void Uncap(const GradientTile& tile, const ScoreRule& rule) {
  const typename V::F high = V::Set(rule.per_cap_high), low = V::Set(rule.per_cap_low);
  for (int row = 0; row < tile.rows; ++row) {
    const KeySpan part = WrittenPart<V>(tile, row);
    const typename V::F delta = V::Set(tile.delta[row]), one = V::Set(1.0f);
    const float* scores = tile.weights + row * kKeyBlock;
    float* d_scores = tile.d_scores + row * kKeyBlock;
    for (int k = part.begin; k < part.end; k += V::kLanes) {
      const typename V::F score = V::Load(scores + k);
      const typename V::F t = V::Fma(score, high, V::Mul(score, low));
      const typename V::F slope = V::Sub(one, V::Mul(t, t));
      V::Store(d_scores + k, V::Mul(V::Sub(V::Load(d_scores + k), delta), slope));
    }
  }
}

// numbers = join(numbers, others), in the part that `weigh` writes.
template <class V, class Join>
inline void JoinNumbers(const GradientTile& tile, const float* others, float* numbers,
                        const Join& join) {
  for (int row = 0; row < tile.rows; ++row) {
    const KeySpan part = WrittenPart<V>(tile, row);
    for (int k = row * kKeyBlock + part.begin; k < row * kKeyBlock + part.end; k += V::kLanes)
      V::Store(numbers + k, join(V::Load(numbers + k), V::Load(others + k)));
  }
}

template <class V>
void AddNumbers(const GradientTile& tile, const float* more, float* numbers) {
  JoinNumbers<V>(tile, more, numbers, V::Add);
}

template <class V>
void MultiplyNumbers(const GradientTile& tile, const float* by, float* numbers) {
  JoinNumbers<V>(tile, by, numbers, V::Mul);
}

template <class V>
void ClearHiddenNumbers(const GradientTile& tile, const float* pairs, float* numbers) {
  const typename V::F lowest = V::Set(-__FLT_MAX__);
  JoinNumbers<V>(tile, pairs, numbers, [&](typename V::F number, typename V::F pair) {
    return V::IfLess(pair, lowest, V::Zero(), number);
  });
}

}  // namespace

// Functions on rows.

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

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_GRADIENT_FUNCTIONS_INL_H_
