#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_SOFTMAX_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_SOFTMAX_INL_H_

#include "worker/kernel/cpu/isa/vector-inl.h"

// The online softmax of a TileIsa (vector-inl.h).

namespace annulus {
namespace {

// 2^t for t <= about 0. Exactly 1 at 0, exactly 0 at −inf; NaN stays NaN. Relative error 3e-8.
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

// The largest scores of a row, per lane. The part begins at a multiple of two vectors, so that the
// lane and the accumulator of a key depend only on its place in the block.
template <class V>
inline typename V::F LargestScores(const float* scores, KeySpan part) {
  constexpr int kLanes = V::kLanes;
  typename V::F top0 = V::Set(kMinusInf), top1 = top0;
  int k = part.begin;
  for (; k + 2 * kLanes <= part.end; k += 2 * kLanes) {
    top0 = V::Max(V::Load(scores + k), top0);
    top1 = V::Max(V::Load(scores + k + kLanes), top1);
  }
  if (k < part.end) top0 = V::Max(V::Load(scores + k), top0);
  return V::Max(top0, top1);
}

// Turns scores into weights. Returns their sums, per lane.
template <class V>
inline typename V::F Weigh(float* scores, KeySpan part, typename V::F reference) {
  constexpr int kLanes = V::kLanes;
  const typename V::F log2e = V::Set(kLog2e);
  typename V::F sum0 = V::Zero(), sum1 = V::Zero();
  const auto weigh = [&](float* at) {
    const typename V::F p = Exp2<V>(V::Mul(V::Sub(V::Load(at), reference), log2e));
    V::Store(at, p);
    return p;
  };
  int k = part.begin;
  for (; k + 2 * kLanes <= part.end; k += 2 * kLanes) {
    sum0 = V::Add(sum0, weigh(scores + k));
    sum1 = V::Add(sum1, weigh(scores + k + kLanes));
  }
  if (k < part.end) sum0 = V::Add(sum0, weigh(scores + k));
  return V::Add(sum0, sum1);
}

// Processes as many rows as there are lanes, of which `count` exist. Work that is done once per row
// is done for all at once, and no row waits for another's maximum. A row that sees no key keeps its
// state.
template <class V>
inline void SoftmaxRows(const TileBlock& tile, int row, int count) {
  constexpr int kLanes = V::kLanes;
  KeySpan part[kLanes] = {};
  typename V::F rows[kLanes];
  for (int r = 0; r < kLanes; ++r) {
    if (r < count) part[r] = WrittenPart<V>(tile, row + r);
    rows[r] = LargestScores<V>(tile.scores + (row + r) * kKeyBlock, part[r]);
  }
  const auto max = [](typename V::F a, typename V::F b) { return V::Max(a, b); };
  const typename V::F old_max = V::Load(tile.max + row);
  const typename V::F new_max = V::Max(AcrossRows<V>(rows, max), old_max);
  // All scores were −inf so far: any finite reference gives weights of 0.
  const typename V::F least = V::Set(-__FLT_MAX__);
  const typename V::F reference = V::IfLess(new_max, least, V::Zero(), new_max);
  float references[kLanes];
  V::Store(references, reference);
  for (int r = 0; r < kLanes; ++r) {
    rows[r] = Weigh<V>(tile.scores + (row + r) * kKeyBlock, part[r], V::Set(references[r]));
  }
  const auto add = [](typename V::F a, typename V::F b) { return V::Add(a, b); };
  const typename V::F block_weight = AcrossRows<V>(rows, add);
  const typename V::F alpha = Exp2<V>(V::Mul(V::Sub(old_max, reference), V::Set(kLog2e)));
  V::Store(tile.alpha + row, alpha);
  V::Store(tile.weight + row, V::Fma(V::Load(tile.weight + row), alpha, block_weight));
  // A row whose every score is NaN has a maximum of −inf, which would mean "has seen no key". Its
  // weight is NaN, and becomes its maximum.
  const typename V::F seen = V::Add(new_max, block_weight);
  V::Store(tile.max + row, V::IfLess(new_max, least, seen, new_max));
}

template <class V>
void Softmax(const TileBlock& tile) {
  for (int row = 0; row < tile.rows; row += V::kLanes) {
    SoftmaxRows<V>(tile, row, MinInt(V::kLanes, tile.rows - row));
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_SOFTMAX_INL_H_
