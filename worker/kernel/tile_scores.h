#ifndef ANNULUS_WORKER_KERNEL_TILE_SCORES_H_
#define ANNULUS_WORKER_KERNEL_TILE_SCORES_H_

#include "worker/kernel/tile_pairs.h"
#include "worker/kernel/tile_softmax.h"
#include "worker/kernel/tile_vector.h"

// Soft cap, ALiBi and what follows them of a TileIsa (tile_vector.h).

namespace annulus {
namespace {

// Within 2 ulp everywhere; odd to the bit; ±1 at ±infinity; NaN stays NaN.
template <class V>
inline typename V::F Tanh(typename V::F x) {
  const typename V::F one = V::Set(1.0f), zero = V::Zero();
  const typename V::F magnitude = V::Max(x, V::Sub(zero, x));
  // Far from 0: 1 − 2 / (exp(2|x|) + 1), by the exponential that does not overflow.
  const typename V::F e = Exp2<V>(V::Mul(magnitude, V::Set(-2 * kLog2e)));
  const typename V::F far = V::Sub(one, V::Div(V::Add(e, e), V::Add(one, e)));
  // Near 0, where that would cancel: an odd polynomial.
  const typename V::F square = V::Mul(x, x);
  typename V::F p = V::Set(-5.70498872745e-3f);
  p = V::Fma(p, square, V::Set(2.06390887954e-2f));
  p = V::Fma(p, square, V::Set(-5.37397155531e-2f));
  p = V::Fma(p, square, V::Set(1.33314422036e-1f));
  p = V::Fma(p, square, V::Set(-3.33332819422e-1f));
  const typename V::F near = V::Fma(V::Mul(p, square), x, x);
  const typename V::F signed_far = V::IfLess(x, zero, V::Sub(zero, far), far);
  return V::IfLess(magnitude, V::Set(0.625f), near, signed_far);
}

template <class V, bool CAP, bool ALIBI>
inline void ChangeRow(const ScoreRule& rule, int row, int begin, int end, float* scores) {
  const typename V::F cap = V::Set(rule.cap), high = V::Set(rule.per_cap_high),
                      low = V::Set(rule.per_cap_low);
  const typename V::F slope = V::Set(ALIBI ? -rule.slope[row] : 0.0f);
  const int32_t position = ALIBI ? rule.position[row] : 0;
  for (int k = begin; k < end; k += V::kLanes) {
    typename V::F score = V::Load(scores + k);
    if constexpr (CAP) score = V::Mul(cap, Tanh<V>(V::Fma(score, high, V::Mul(score, low))));
    if constexpr (ALIBI) score = V::Fma(slope, V::Distance(position, rule.key + k), score);
    V::Store(scores + k, score);
  }
}

template <class V, bool CAP, bool ALIBI>
void ChangeRows(const TileBlock& tile, const ScoreRule& rule) {
  for (int row = 0; row < tile.rows; ++row) {
    const KeySpan part = WrittenPart<V>(tile, row);
    ChangeRow<V, CAP, ALIBI>(rule, row, part.begin, part.end, tile.scores + row * kKeyBlock);
  }
}

template <class V>
void AddOffsets(const TileBlock& tile, const float* offset) {
  for (int row = 0; row < tile.rows; ++row) {
    const KeySpan part = WrittenPart<V>(tile, row);
    const typename V::F more = V::Set(offset[row]);
    float* scores = tile.scores + row * kKeyBlock;
    for (int k = part.begin; k < part.end; k += V::kLanes) {
      V::Store(scores + k, V::Add(V::Load(scores + k), more));
    }
  }
}

template <class V>
void ChangeScores(const TileBlock& tile, const ScoreRule& rule) {
  if (rule.offset != nullptr) AddOffsets<V>(tile, rule.offset);
  const bool cap = rule.cap != 0, alibi = rule.slope != nullptr;
  if (cap && alibi) ChangeRows<V, true, true>(tile, rule);
  if (cap && !alibi) ChangeRows<V, true, false>(tile, rule);
  if (!cap && alibi) ChangeRows<V, false, true>(tile, rule);
  if (rule.pairs != nullptr) JoinPairs<V>(tile, *rule.pairs);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_SCORES_H_
