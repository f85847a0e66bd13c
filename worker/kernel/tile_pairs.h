#ifndef ANNULUS_WORKER_KERNEL_TILE_PAIRS_H_
#define ANNULUS_WORKER_KERNEL_TILE_PAIRS_H_

#include <cstdint>

#include "worker/kernel/tile_vector.h"

// Bias and bit mask of a TileIsa (tile_vector.h). Rows are read as they came: vectors of columns
// side by side wherever the keys of a block are neighbours.

namespace annulus {
namespace {

inline constexpr float kLowest = -3.402823466e+38f;

struct BiasOfFp32 {
  static constexpr int kBytes = 4;
  template <class V>
  static typename V::F Load(const std::byte* at) {
    return V::Load(reinterpret_cast<const float*>(at));
  }
};
struct BiasOfBf16 {
  static constexpr int kBytes = 2;
  template <class V>
  static typename V::F Load(const std::byte* at) {
    return V::LoadBf16(at);
  }
};
struct BiasOfFp16 {
  static constexpr int kBytes = 2;
  template <class V>
  static typename V::F Load(const std::byte* at) {
    return V::LoadFp16(at);
  }
};

// What −inf hides stays hidden whatever the score was.
template <class V>
inline typename V::F Biased(typename V::F score, typename V::F bias) {
  return V::IfLess(bias, V::Set(kLowest), V::Set(-__builtin_inff()), V::Add(score, bias));
}

// `count` scores and the bias of as many columns, from `bias` on; nothing past either is touched.
template <class V, class TYPE>
inline void AddBias(const std::byte* bias, int count, float* scores) {
  constexpr int kLanes = V::kLanes;
  int k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    V::Store(scores + k, Biased<V>(V::Load(scores + k),
                                   TYPE::template Load<V>(bias + int64_t{k} * TYPE::kBytes)));
  }
  if (k == count) return;
  alignas(64) std::byte columns[kLanes * TYPE::kBytes] = {};
  alignas(64) float part[kLanes] = {};
  __builtin_memcpy(columns, bias + int64_t{k} * TYPE::kBytes, (count - k) * TYPE::kBytes);
  __builtin_memcpy(part, scores + k, (count - k) * sizeof(float));
  V::Store(part, Biased<V>(V::Load(part), TYPE::template Load<V>(columns)));
  __builtin_memcpy(scores + k, part, (count - k) * sizeof(float));
}

// As many bits as there are lanes, from bit `first` of `bits` on, the lowest first; no byte without
// one of them is read.
template <class V>
inline uint32_t BitsOfLanes(const std::byte* bits, int64_t first) {
  constexpr int kBytes = V::kLanes < 8 ? 1 : V::kLanes / 8;
  const int shift = static_cast<int>(first % 8);
  const std::byte* const at = bits + first / 8;
  uint32_t word = 0;
  __builtin_memcpy(&word, at, kBytes);
  if (shift + V::kLanes > 8 * kBytes) word |= static_cast<uint32_t>(at[kBytes]) << (8 * kBytes);
  return word >> shift;
}

template <class V>
inline void HideBits(const std::byte* bits, int64_t first, int count, float* scores) {
  constexpr int kLanes = V::kLanes;
  const typename V::F hidden = V::Set(-__builtin_inff());
  int k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    const uint32_t word = BitsOfLanes<V>(bits, first + k);
    V::Store(scores + k, V::Choose(word, V::Load(scores + k), hidden));
  }
  for (; k < count; ++k) {
    const int64_t bit = first + k;
    if ((static_cast<uint32_t>(bits[bit / 8]) >> (bit % 8) & 1) == 0) scores[k] = -__builtin_inff();
  }
}

template <class V, class TYPE>
inline void JoinRow(const PairRule& rule, const PairRule::Row& row, KeySpan part, float* scores) {
  const int begin = part.begin > row.begin ? part.begin : row.begin;
  const int end = part.end < row.end ? part.end : row.end;
  for (int r = 0; r < rule.run_count; ++r) {
    const PairRule::Run& run = rule.runs[r];
    const int from = run.begin > begin ? run.begin : begin;
    const int count = (run.end < end ? run.end : end) - from;
    if (count <= 0) continue;
    const int64_t column = run.key + (from - run.begin) - row.first_key;
    if (row.bias != nullptr)
      AddBias<V, TYPE>(row.bias + column * TYPE::kBytes, count, scores + from);
    if (row.bits != nullptr) HideBits<V>(row.bits, column, count, scores + from);
  }
}

template <class V, class TYPE>
inline void JoinRows(const TileBlock& tile, const PairRule& rule) {
  for (int row = 0; row < tile.rows; ++row) {
    JoinRow<V, TYPE>(rule, rule.row[row], WrittenPart<V>(tile, row), tile.scores + row * kKeyBlock);
  }
}

template <class V>
void JoinPairs(const TileBlock& tile, const PairRule& rule) {
  if (rule.dtype == DataType::kBf16) return JoinRows<V, BiasOfBf16>(tile, rule);
  if (rule.dtype == DataType::kFp16) return JoinRows<V, BiasOfFp16>(tile, rule);
  JoinRows<V, BiasOfFp32>(tile, rule);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_PAIRS_H_
