#ifndef ANNULUS_WORKER_KERNEL_LYING_GROUP_SCORES_H_
#define ANNULUS_WORKER_KERNEL_LYING_GROUP_SCORES_H_

#include <immintrin.h>

#include "worker/kernel/lying_pair_scores.h"

// Scores of a whole group of query slots (lying_rows.h), whose vectors hold two pairs of dimensions
// of each slot. A key's own two pairs are what the CPU repeats when it loads them, so that no key
// is turned.

namespace annulus {
namespace {

inline bool IsWholeGroup(const RowSlot* slots) {
  constexpr int kGap = 2 * (kLyingSlots - 1);
  return reinterpret_cast<uintptr_t>(slots[0].query) % sizeof(__m512) == 0 &&
         slots[kLyingSlots - 1].query == slots[0].query + kGap;
}

// Not keys that are fewer than they could be, nor half a pair of pairs.
inline bool ScoresGroups(const LyingRows& rows) {
  return rows.count == kLyingKeys && rows.head_dim % 4 == 0;
}

// of[k]: of key k two sums of each slot → scores of each slot, in the order of keys.
inline void StoreGroupScores(const __m512 (&of)[kLyingKeys], __m512 scale,
                             float (*scores)[kLyingKeys]) {
  constexpr __mmask16 kAll = Avx512::kAll;
  __m512 twos[kLyingKeys / 2];  // In each quarter, of its two slots by two keys.
  Unroll<kLyingKeys / 2>([&](int i) {
    const __m512 even = _mm512_maskz_shuffle_ps(kAll, of[2 * i], of[2 * i + 1], 0x88);
    const __m512 odd = _mm512_maskz_shuffle_ps(kAll, of[2 * i], of[2 * i + 1], 0xdd);
    twos[i] = Avx512::Mul(Avx512::Add(even, odd), scale);
  });
  Unroll<2>([&](int second) {
    __m512 fours[4];  // In each quarter, of one of its slots four keys.
    Unroll<4>([&](int i) {
      fours[i] = second ? _mm512_maskz_shuffle_ps(kAll, twos[2 * i], twos[2 * i + 1], 0xdd)
                        : _mm512_maskz_shuffle_ps(kAll, twos[2 * i], twos[2 * i + 1], 0x88);
    });
    const __m512 low = Avx512::Lanes<0x88>(fours[0], fours[1]);
    const __m512 low_odd = Avx512::Lanes<0xdd>(fours[0], fours[1]);
    const __m512 high = Avx512::Lanes<0x88>(fours[2], fours[3]);
    const __m512 high_odd = Avx512::Lanes<0xdd>(fours[2], fours[3]);
    // Quarters 0 and 2 of each, then 1 and 3: keys of slots 0, 4, 2 and 6, or the next ones.
    Avx512::Store(scores[0 + second], Avx512::Lanes<0x88>(low, high));
    Avx512::Store(scores[4 + second], Avx512::Lanes<0xdd>(low, high));
    Avx512::Store(scores[2 + second], Avx512::Lanes<0x88>(low_odd, high_odd));
    Avx512::Store(scores[6 + second], Avx512::Lanes<0xdd>(low_odd, high_odd));
  });
}

// Two pairs of each key.
inline void AddGroupProducts(const std::byte* keys, int64_t stride, __m512 query,
                             __m512 (&sums)[kLyingKeys]) {
  Unroll<kLyingKeys>([&](int k) {
    double pairs;
    __builtin_memcpy(&pairs, keys + k % 4 * stride, sizeof(pairs));
    sums[k] = Bf16Pairs::AddTerm(_mm512_castpd_ps(_mm512_set1_pd(pairs)), query, sums[k]);
    if (k % 4 == 3) keys += 4 * stride;
  });
}

// The same bits as ScoreLyingKeys.
__attribute__((flatten)) inline void ScoreGroup(const LyingCall& call, const float* queries,
                                                float (*scores)[kLyingKeys]) {
  constexpr int kLinePairs = 16;
  __m512 sums[kLyingKeys];
  Unroll<kLyingKeys>([&](int k) { sums[k] = Avx512::Zero(); });
  const int64_t stride = call.rows.key_stride;
  const int64_t ahead = call.fetch ? call.rows.keys_ahead : 0;
  for (int first = 0; 2 * first < call.rows.head_dim; first += kLinePairs) {
    const std::byte* line = call.rows.keys + first * sizeof(float);
    const std::byte* fetched = line;
    const int end = MinInt(kLinePairs, call.rows.head_dim / 2 - first);
    for (int pair = 0; pair < end; pair += 2, queries += 2 * kLyingSlots) {
      const std::byte* keys = line + pair * sizeof(float);
      // Else the compiler has an address in a register for each key.
      asm("" : "+r"(keys));
      Unroll<2>([&](int i) { FetchAhead<1>(fetched + i * stride, ahead); });
      fetched += 2 * stride;
      AddGroupProducts(keys, stride, Avx512::Load(queries), sums);
    }
    for (int k = end; k < kLyingKeys; ++k, fetched += stride) FetchAhead<1>(fetched, ahead);
  }
  StoreGroupScores(sums, Avx512::Set(call.rows.score_scale), scores);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_LYING_GROUP_SCORES_H_
