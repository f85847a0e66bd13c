#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_SCORE_MODIFIERS_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_SCORE_MODIFIERS_INL_H_

#include <cstdint>

#include "worker/kernel/cpu/isa/philox_words-inl.h"
#include "worker/kernel/cpu/isa/tile_softmax-inl.h"
#include "worker/kernel/cpu/isa/vector-inl.h"

// Score modifiers and dropout of a TileIsa, as templates over a vector type (vector-inl.h).
// Included by tile_functions-inl.h. Start at ChangeScores (offset, soft cap, ALiBi, bias, bit mask)
// and DropWeights.
namespace annulus {

// Bias and bit mask. Rows of both are read in place: vectors of columns where the keys of a block
// are neighbours.

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

// A bias of −inf hides the pair whatever the score is.
template <class V>
inline typename V::F Biased(typename V::F score, typename V::F bias) {
  return V::IfLess(bias, V::Set(kLowest), V::Set(-__builtin_inff()), V::Add(score, bias));
}

// Adds a bias of `count` columns, from `bias` on, to `count` scores. Touches nothing past either.
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

// Returns V::kLanes bits, from bit `first` of `bits` on, the lowest first. Reads no byte without
// one of them.
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

// Soft cap, ALiBi, and all modifiers in order.

namespace {

// Error at most 2 ulp everywhere; odd to the bit; ±1 at ±infinity; NaN stays NaN.
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

// Dropout: dropped weights become 0.

namespace {

// The counters that keys [begin, end) of a block need, for rows of one sequence. Key k takes word
// word[k] of their output. Words are consecutive where keys are.
struct KeyCounters {
  int begin = 0, end = 0;
  int32_t first_key = 0;
  int count = 0;
  bool in_a_row = true;
  uint32_t first[kKeyBlock + kCountersAtOnce];
  int16_t word[kKeyBlock];

  void Find(const DropRule& rule, int row, KeySpan part) {
    if (count > 0 && begin == part.begin && end == part.end && first_key == rule.first_key[row])
      return;
    begin = part.begin;
    end = part.end;
    first_key = rule.first_key[row];
    count = 0;
    in_a_row = true;
    for (int k = begin; k < end; ++k) {
      const auto key = static_cast<uint32_t>(rule.key[k] - first_key);
      if (count == 0 || first[count - 1] != key >> 2) first[count++] = key >> 2;
      word[k] = static_cast<int16_t>(4 * (count - 1) + static_cast<int>(key & 3));
      in_a_row = in_a_row && word[k] - word[begin] == k - begin;
    }
    for (int i = 0; i < kCountersAtOnce; ++i) first[count + i] = 0;
  }
};

// Bits of dropped words, for a row's counters.
using DroppedWords = uint32_t[kKeyBlock / kCountersAtOnce + 2];

// Bit i: key k + i is dropped.
template <class V>
inline uint32_t DroppedFrom(const DroppedWords& dropped, const KeyCounters& counters, int k) {
  if (counters.in_a_row) {
    const int at = counters.word[k];
    const uint64_t both = dropped[at / 32] | uint64_t{dropped[at / 32 + 1]} << 32;
    return static_cast<uint32_t>(both >> (at % 32));
  }
  uint32_t bits = 0;
  for (int i = 0; i < V::kLanes; ++i) {
    const int at = counters.word[k + i];
    bits |= (dropped[at / 32] >> (at % 32) & 1) << i;
  }
  return bits;
}

template <class V>
void DropWeights(const TileBlock& tile, const DropRule& rule) {
  const PhiloxKeys keys(rule.seed);
  KeyCounters counters;
  DroppedWords dropped = {};
  for (int row = 0; row < tile.rows; ++row) {
    const KeySpan part = WrittenPart<V>(tile, row);
    if (part.begin >= part.end) continue;
    counters.Find(rule, row, part);
    for (int i = 0; i < counters.count; i += kCountersAtOnce) {
      dropped[i / kCountersAtOnce] =
          V::WordsBelow(counters.first + i, rule.counter[row], keys, rule.threshold);
    }
    float* const weights = tile.scores + row * kKeyBlock;
    for (int k = part.begin; k < part.end; k += V::kLanes) {
      V::Store(weights + k,
               V::Choose(DroppedFrom<V>(dropped, counters, k), V::Zero(), V::Load(weights + k)));
    }
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_SCORE_MODIFIERS_INL_H_
