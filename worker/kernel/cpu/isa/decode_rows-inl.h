#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_DECODE_ROWS_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_DECODE_ROWS_INL_H_

#include <cstdint>
#include <cstring>

#include "worker/kernel/cpu/isa/tile_softmax-inl.h"
#include "worker/kernel/cpu/isa/vector-inl.h"

// The unpacked path (decoding): few query slots attend to keys and values in place. Templates over
// a vector type (vector-inl.h) with kUnpackedKeys lanes, for all types. Included by
// tile_functions-inl.h and unpacked_bf16_pairs-inl.h. Start at AttendRows at the end: it multiplies
// keys (MultiplyKeys), runs the softmax (WeighScores), then adds values (AddRowValues).
namespace annulus {

// Scores and weights of keys in place.

namespace {

template <DataType TYPE>
inline constexpr int kElementBytes = TYPE == DataType::kFp32 ? 4 : 2;

template <class V, DataType TYPE>
inline __attribute__((always_inline)) typename V::F LoadVector(const std::byte* at) {
  if constexpr (TYPE == DataType::kFp32) return V::Load(reinterpret_cast<const float*>(at));
  if constexpr (TYPE == DataType::kBf16) return V::LoadBf16(at);
  if constexpr (TYPE == DataType::kFp16) return V::LoadFp16(at);
}

// Loads the first `count` numbers of a vector, with zeros after them.
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
  alignas(64) float at[kUnpackedKeys][V::kLanes];
};

// The products of keys [first, first + kKeys) with SLOTS slots.
template <class V, DataType TYPE, int SLOTS>
__attribute__((flatten)) void MultiplyKeys(const UnpackedRows& rows, const std::byte* const* keys,
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

// Adds in pairs, halves first.
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
  for (int first = 0; first < kUnpackedKeys; first += V::kLanes) {
    typename V::F square[V::kLanes];
    Unroll<V::kLanes>([&](int i) { square[i] = V::Load(products.at[first + i]); });
    V::Transpose(square);
    V::Store(scores + first, SumOfVectors<V, V::kLanes>(square));
  }
}

// Online softmax: scores → weights, and updates the slot's maximum and weights. Returns the rescale
// factor of its sums.
template <class V>
inline float WeighScores(RowSlot& slot, float* scores) {
  const typename V::F unseen = V::Set(kMinusInf);
  typename V::F top = unseen;
  for (int k = 0; k < kUnpackedKeys; k += V::kLanes) {
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
  // All scores were −inf so far: any finite reference gives weights of 0.
  const typename V::F reference = V::Set(slot.max == kMinusInf ? 0.0f : slot.max);
  for (int k = 0; k < kUnpackedKeys; k += V::kLanes) {
    const typename V::F weight =
        Exp2<V>(V::Mul(V::Sub(V::Load(scores + k), reference), V::Set(kLog2e)));
    V::Store(scores + k, weight);
    V::Store(slot.weights + k, V::Fma(V::Load(slot.weights + k), V::Set(alpha), weight));
  }
  return alpha;
}

}  // namespace

// Weights times values in place.

namespace {

// The values of some keys, and the weights and rescale factors of SLOTS slots.
template <int SLOTS>
struct WeighedValues {
  const std::byte* at[kUnpackedKeys];
  int count = 0;
  int64_t ahead = 0;
  alignas(64) float weights[SLOTS][kUnpackedKeys];
  float alphas[SLOTS];
};

// Adds VECTORS vectors of columns. The last one has only `some` numbers if `some` is not 0. The
// total of these keys is added to a slot's sums once: fewer roundings of a long sum.
template <class V, DataType TYPE, int SLOTS, int VECTORS>
__attribute__((flatten)) void AddValues(const WeighedValues<SLOTS>& values, int column, int some,
                                        const RowSlot* slots) {
  constexpr int kBytes = V::kLanes * kElementBytes<TYPE>;
  typename V::F sums[SLOTS][VECTORS], numbers[VECTORS];
  Unroll<SLOTS>([&](int s) { Unroll<VECTORS>([&](int v) { sums[s][v] = V::Zero(); }); });
  for (int k = 0; k < values.count; ++k) {
    const std::byte* from = values.at[k] + int64_t{column} * kElementBytes<TYPE>;
    FetchAhead<VECTORS * kBytes>(from, values.ahead);
    Unroll<VECTORS>([&](int v) {
      numbers[v] = some == 0 ? LoadVector<V, TYPE>(from + v * kBytes)
                             : LoadSome<V, TYPE>(from + v * kBytes, some);
    });
    Unroll<SLOTS>([&](int s) {
      const typename V::F weight = V::Set(values.weights[s][k]);
      Unroll<VECTORS>([&](int v) { sums[s][v] = V::Fma(weight, numbers[v], sums[s][v]); });
    });
  }
  Unroll<SLOTS>([&](int s) {
    const typename V::F alpha = V::Set(values.alphas[s]);
    Unroll<VECTORS>([&](int v) {
      float* at = slots[s].sums + column + v * V::kLanes;
      V::Store(at, V::Fma(V::Load(at), alpha, sums[s][v]));
    });
  });
}

template <class V, DataType TYPE, int SLOTS>
inline void AddRowValues(const WeighedValues<SLOTS>& values, int dim, const RowSlot* slots) {
  constexpr int kVectors = 4;
  int column = 0;
  for (; column + kVectors * V::kLanes <= dim; column += kVectors * V::kLanes)
    AddValues<V, TYPE, SLOTS, kVectors>(values, column, 0, slots);
  for (; column + V::kLanes <= dim; column += V::kLanes)
    AddValues<V, TYPE, SLOTS, 1>(values, column, 0, slots);
  if (column < dim) AddValues<V, TYPE, SLOTS, 1>(values, column, dim - column, slots);
}

// For one slot, adds only the values of keys that it sees: a masked value may be NaN or infinite.
template <class V, DataType TYPE, int SLOTS>
void AddSeenValues(const WeighedValues<SLOTS>& all, int index, int dim, const RowSlot& slot) {
  WeighedValues<1> seen;
  for (int k = 0; k < kUnpackedKeys; ++k) {
    if ((slot.seen >> k & 1) == 0) continue;
    seen.at[seen.count] = all.at[k];
    seen.weights[0][seen.count++] = all.weights[index][k];
  }
  seen.alphas[0] = all.alphas[index];
  AddRowValues<V, TYPE, 1>(seen, dim, &slot);
}

}  // namespace

// All slots of a call against its keys. Each byte is read once, and nothing is packed. The loop is
// bound by memory. So it prefetches the data of a few calls ahead into L2 between multiplications,
// evenly spread: a burst of prefetches would keep memory busy only for the time of the burst.

namespace {

// TileIsa::few_slots of paths that multiply vectors.
inline constexpr int kFewSlots = 16;

template <class V, DataType TYPE, int SLOTS>
void AttendSlots(const UnpackedRows& rows, RowSlot* slots) {
  const std::byte* keys[kUnpackedKeys];
  WeighedValues<SLOTS> values;
  values.count = kUnpackedKeys;
  values.ahead = rows.values_ahead;
  for (int k = 0; k < kUnpackedKeys; ++k) {
    // After the last row, its address again: no slot sees these keys.
    const int64_t row = MinInt(k, rows.count - 1);
    keys[k] = rows.keys + row * rows.key_stride;
    values.at[k] = rows.values + row * rows.value_stride;
  }
  LaneProducts<V> products[SLOTS];
  for (int first = 0; first < kUnpackedKeys; first += 4)
    MultiplyKeys<V, TYPE, SLOTS>(rows, keys, slots, first, products);
  bool all_seen = true;
  for (int s = 0; s < SLOTS; ++s) {
    AddLanes<V>(products[s], values.weights[s]);
    values.alphas[s] = WeighScores<V>(slots[s], values.weights[s]);
    all_seen = all_seen && slots[s].seen == kSeesAll;
  }
  if (all_seen) return AddRowValues<V, TYPE, SLOTS>(values, rows.value_dim, slots);
  for (int s = 0; s < SLOTS; ++s)
    AddSeenValues<V, TYPE, SLOTS>(values, s, rows.value_dim, slots[s]);
}

template <class V, DataType TYPE>
void AttendRowsOf(const UnpackedRows& rows, RowSlot* slots, int count) {
  for (; count >= 4; count -= 4, slots += 4) AttendSlots<V, TYPE, 4>(rows, slots);
  for (; count >= 2; count -= 2, slots += 2) AttendSlots<V, TYPE, 2>(rows, slots);
  if (count > 0) AttendSlots<V, TYPE, 1>(rows, slots);
}

template <class V>
void AttendRows(const UnpackedRows& rows, RowSlot* slots, int count) {
  if (rows.dtype == DataType::kFp32) return AttendRowsOf<V, DataType::kFp32>(rows, slots, count);
  if (rows.dtype == DataType::kBf16) return AttendRowsOf<V, DataType::kBf16>(rows, slots, count);
  AttendRowsOf<V, DataType::kFp16>(rows, slots, count);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_DECODE_ROWS_INL_H_
