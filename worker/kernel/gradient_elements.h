#ifndef ANNULUS_WORKER_KERNEL_GRADIENT_ELEMENTS_H_
#define ANNULUS_WORKER_KERNEL_GRADIENT_ELEMENTS_H_

#include "worker/kernel/gradient_isa.h"
#include "worker/kernel/tile_softmax.h"
#include "worker/kernel/tile_vector.h"

// The functions of a GradientIsa that go from pair to pair, as templates over a vector type
// (tile_vector.h).

namespace annulus {
namespace {

// exp(x) · 2^more, which is +inf from 2^128 on: an LSE that is not the row's own may make any
// number of x.
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

// numbers = join(numbers, others) in the part that `weigh` makes.
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
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_GRADIENT_ELEMENTS_H_
