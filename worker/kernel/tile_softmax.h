#ifndef ANNULUS_WORKER_KERNEL_TILE_SOFTMAX_H_
#define ANNULUS_WORKER_KERNEL_TILE_SOFTMAX_H_

#include "worker/kernel/tile_vector.h"

// The softmax of a TileIsa (tile_vector.h).

namespace annulus {
namespace {

// 2^t for t <= about 0; exactly 1 at 0, exactly 0 at −inf; NaN stays NaN. Relative error 3e-8.
template <class V>
inline typename V::F Exp2(typename V::F t) {
  // Adding 1.5 · 2^23 rounds t to an integer in the low bits; 127 makes it the biased exponent.
  const typename V::F magic = V::Set(12582912.0f + 127.0f);
  t = V::Max(V::Set(-127.0f), t);
  const typename V::F biased = V::Add(t, magic);
  const typename V::F f = V::Sub(t, V::Sub(biased, magic));
  typename V::F p = V::Set(1.559467782e-04f);
  p = V::Fma(p, f, V::Set(1.340664341e-03f));
  p = V::Fma(p, f, V::Set(9.617692791e-03f));
  p = V::Fma(p, f, V::Set(5.550310388e-02f));
  p = V::Fma(p, f, V::Set(2.402265221e-01f));
  p = V::Fma(p, f, V::Set(6.931472421e-01f));
  p = V::Fma(p, f, V::Set(1.0f));
  return V::Mul(p, V::ShiftToExponent(biased));
}

inline constexpr float kLog2e = 1.44269504088896340736f;
inline constexpr float kMinusInf = -__builtin_inff();

// One row over scores[begin, end): both multiples of the lanes, begin also of two vectors, so that
// the lane and the accumulator of a key depend on its place in the block only.
template <class V>
inline void SoftmaxRow(const TileBlock& tile, int row, int begin, int end) {
  constexpr int kLanes = V::kLanes;
  float* scores = tile.scores + row * kKeyBlock;
  typename V::F top0 = V::Set(kMinusInf), top1 = top0;
  int k = begin;
  for (; k + 2 * kLanes <= end; k += 2 * kLanes) {
    top0 = V::Max(V::Load(scores + k), top0);
    top1 = V::Max(V::Load(scores + k + kLanes), top1);
  }
  if (k < end) top0 = V::Max(V::Load(scores + k), top0);
  const float block_max = MaxOfLanes<V>(V::Max(top0, top1));
  const float old_max = tile.max[row];
  const float new_max = block_max > old_max ? block_max : old_max;
  // Nothing but −inf so far: any finite reference gives weights of 0.
  const float reference = new_max == kMinusInf ? 0.0f : new_max;
  const typename V::F max = V::Set(reference), log2e = V::Set(kLog2e);
  typename V::F sum0 = V::Zero(), sum1 = V::Zero();
  const auto weigh = [&](float* at) {
    const typename V::F p = Exp2<V>(V::Mul(V::Sub(V::Load(at), max), log2e));
    V::Store(at, p);
    return p;
  };
  for (k = begin; k + 2 * kLanes <= end; k += 2 * kLanes) {
    sum0 = V::Add(sum0, weigh(scores + k));
    sum1 = V::Add(sum1, weigh(scores + k + kLanes));
  }
  if (k < end) sum0 = V::Add(sum0, weigh(scores + k));
  float alpha[kLanes];
  V::Store(alpha, Exp2<V>(V::Set((old_max - reference) * kLog2e)));
  const float block_weight = SumOfLanes<V>(V::Add(sum0, sum1));
  tile.alpha[row] = alpha[0];
  tile.weight[row] = tile.weight[row] * alpha[0] + block_weight;
  // A row whose every score is NaN has a maximum of −inf, which would say "nothing seen".
  const bool lost = block_weight != block_weight && new_max == kMinusInf;
  tile.max[row] = lost ? block_weight : new_max;
}

template <class V>
void Softmax(const TileBlock& tile) {
  for (int row = 0; row < tile.rows; ++row) {
    const KeySpan part = WrittenPart<V>(tile, row);
    if (part.begin < part.end) SoftmaxRow<V>(tile, row, part.begin, part.end);
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_SOFTMAX_H_
