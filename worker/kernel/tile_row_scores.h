#ifndef ANNULUS_WORKER_KERNEL_TILE_ROW_SCORES_H_
#define ANNULUS_WORKER_KERNEL_TILE_ROW_SCORES_H_

#include <cstdint>
#include <cstring>

#include "worker/kernel/tile_softmax.h"
#include "worker/kernel/tile_vector.h"

// Scores and weights of keys as they lie in rows (tile_rows.h).

namespace annulus {
namespace {

template <DataType TYPE>
inline constexpr int kElementBytes = TYPE == DataType::kFp32 ? 4 : 2;

template <class V, DataType TYPE>
inline __attribute__((always_inline)) typename V::F LoadVector(const std::byte* at) {
  if constexpr (TYPE == DataType::kFp32) return V::Load(reinterpret_cast<const float*>(at));
  if constexpr (TYPE == DataType::kBf16) return V::LoadBf16(at);
  if constexpr (TYPE == DataType::kFp16) return V::LoadFp16(at);
}

// The first `count` numbers of a vector, zeros behind them.
template <class V, DataType TYPE>
inline typename V::F LoadSome(const std::byte* at, int count) {
  alignas(64) std::byte some[V::kLanes * kElementBytes<TYPE>] = {};
  std::memcpy(some, at, static_cast<size_t>(count) * kElementBytes<TYPE>);
  return LoadVector<V, TYPE>(some);
}

template <int BYTES>
inline __attribute__((always_inline)) void FetchAhead(const std::byte* at, int64_t ahead) {
  constexpr int kLine = 64, kSecondCache = 2;
  const auto first = reinterpret_cast<intptr_t>(at) + ahead;
  Unroll<(BYTES + kLine - 1) / kLine>([&](int i) {
    __builtin_prefetch(reinterpret_cast<const void*>(first + i * kLine), 0, kSecondCache);
  });
}

// A slot's products with each key, lane by lane.
template <class V>
struct LaneProducts {
  alignas(64) float at[kLyingKeys][V::kLanes];
};

// Of keys [first, first + kKeys) and SLOTS slots.
template <class V, DataType TYPE, int SLOTS>
__attribute__((flatten)) void MultiplyKeys(const LyingRows& rows, const std::byte* const* keys,
                                           const RowSlot* slots, int first,
                                           LaneProducts<V>* products) {
  constexpr int kKeys = 4, kBytes = kElementBytes<TYPE>;
  typename V::F sums[SLOTS][kKeys], numbers[kKeys];
  Unroll<SLOTS>([&](int s) { Unroll<kKeys>([&](int k) { sums[s][k] = V::Zero(); }); });
  const auto add = [&](int d) {
    Unroll<SLOTS>([&](int s) {
      const typename V::F query = V::Load(slots[s].query + d);
      Unroll<kKeys>([&](int k) { sums[s][k] = V::Fma(query, numbers[k], sums[s][k]); });
    });
  };
  int d = 0;
  for (; d + V::kLanes <= rows.head_dim; d += V::kLanes) {
    const int64_t at = int64_t{d} * kBytes;
    if (at % 64 == 0) {
      Unroll<kKeys>([&](int k) { FetchAhead<1>(keys[first + k] + at, rows.keys_ahead); });
    }
    Unroll<kKeys>([&](int k) { numbers[k] = LoadVector<V, TYPE>(keys[first + k] + at); });
    add(d);
  }
  if (d < rows.head_dim) {
    Unroll<kKeys>([&](int k) {
      numbers[k] = LoadSome<V, TYPE>(keys[first + k] + int64_t{d} * kBytes, rows.head_dim - d);
    });
    add(d);
  }
  Unroll<SLOTS>([&](int s) {
    Unroll<kKeys>([&](int k) { V::Store(products[s].at[first + k], sums[s][k]); });
  });
}

// By halves.
template <class V, int COUNT>
inline __attribute__((always_inline)) typename V::F SumOfVectors(const typename V::F* of) {
  if constexpr (COUNT == 1) {
    return of[0];
  } else {
    return V::Add(SumOfVectors<V, COUNT / 2>(of), SumOfVectors<V, COUNT / 2>(of + COUNT / 2));
  }
}

template <class V>
__attribute__((flatten)) void AddLanes(const LaneProducts<V>& products, float* scores) {
  for (int first = 0; first < kLyingKeys; first += V::kLanes) {
    typename V::F square[V::kLanes];
    Unroll<V::kLanes>([&](int i) { square[i] = V::Load(products.at[first + i]); });
    V::Transpose(square);
    V::Store(scores + first, SumOfVectors<V, V::kLanes>(square));
  }
}

// Scores → weights, with the slot's maximum and weights brought up to date. Returns the factor for
// its sums.
template <class V>
inline float WeighScores(RowSlot& slot, float* scores) {
  const typename V::F unseen = V::Set(kMinusInf);
  typename V::F top = unseen;
  for (int k = 0; k < kLyingKeys; k += V::kLanes) {
    const typename V::F seen = V::Choose(slot.seen >> k, V::Load(scores + k), unseen);
    V::Store(scores + k, seen);
    top = V::Max(seen, top);
  }
  float alpha = 1;
  if (V::AnyLess(V::Set(slot.max), top)) {
    const float largest = MaxOfLanes<V>(top);
    float factors[V::kLanes];
    V::Store(factors, Exp2<V>(V::Set((slot.max - largest) * kLog2e)));
    alpha = factors[0];
    slot.max = largest;
  }
  // Nothing but −inf so far: any finite reference gives weights of 0.
  const typename V::F reference = V::Set(slot.max == kMinusInf ? 0.0f : slot.max);
  for (int k = 0; k < kLyingKeys; k += V::kLanes) {
    const typename V::F weight =
        Exp2<V>(V::Mul(V::Sub(V::Load(scores + k), reference), V::Set(kLog2e)));
    V::Store(scores + k, weight);
    V::Store(slot.weights + k, V::Fma(V::Load(slot.weights + k), V::Set(alpha), weight));
  }
  return alpha;
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_ROW_SCORES_H_
