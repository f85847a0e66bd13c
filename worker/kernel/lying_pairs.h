#ifndef ANNULUS_WORKER_KERNEL_LYING_PAIRS_H_
#define ANNULUS_WORKER_KERNEL_LYING_PAIRS_H_

#include <immintrin.h>

#include "worker/kernel/lying_group_scores.h"
#include "worker/kernel/lying_pair_scores.h"

// Few query slots against keys and values of bf16 as they lie (tile_rows.h), by products of pairs
// (bf16_pairs.h). Slots that share their keys multiply more than memory brings meanwhile: pairs are
// half the work, and no number is widened. Scores have a key in each lane, so that none is summed
// across lanes: for that the keys of a call are transposed, once for all slots.

namespace annulus {
namespace {

inline constexpr int kLyingPairs = kLyingKeys / 2;  // Neighbouring keys.

// Weights, rounded, of some slots, whose sums are multiplied by their alphas.
template <int SLOTS>
struct PairWeights {
  alignas(64) float pairs[SLOTS][kLyingPairs];
  float alphas[SLOTS];
};

// Columns of pairs lie by fours in turn in `low` and `high`, as the CPU interleaves two rows.
inline __m512 FirstColumns(__m512 low, __m512 high) {
  const __m512i from = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  return _mm512_permutex2var_ps(low, from, high);
}
inline __m512 LastColumns(__m512 low, __m512 high) {
  const __m512i from =
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  return _mm512_permutex2var_ps(low, from, high);
}

// `seen`: of one slot alone, whose unseen values may be NaN or infinite.
template <int SLOTS>
__attribute__((flatten)) void AddLyingValues(const LyingCall& call,
                                             const PairWeights<SLOTS>& weights,
                                             const RowSlot* slots, uint32_t seen) {
  const int dim = call.rows.value_dim;
  for (int column = 0; column < dim; column += kChunk) {
    __m512 low[SLOTS], high[SLOTS];
    Unroll<SLOTS>([&](int s) { low[s] = high[s] = Avx512::Zero(); });
    for (int p = 0; p < kLyingPairs; ++p) {
      __m512i row[2];
      Unroll<2>([&](int i) {
        const std::byte* values = call.values[2 * p + i];
        FetchAhead<1>(values + int64_t{column} * sizeof(Bf16), call.rows.values_ahead);
        row[i] = LoadPart32(values, column, dim);
        if (SLOTS == 1 && (seen >> (2 * p + i) & 1) == 0) row[i] = _mm512_setzero_si512();
      });
      const __m512 firsts = _mm512_castsi512_ps(_mm512_unpacklo_epi16(row[0], row[1]));
      const __m512 lasts = _mm512_castsi512_ps(_mm512_unpackhi_epi16(row[0], row[1]));
      Unroll<SLOTS>([&](int s) {
        const __m512 weight = Avx512::Set(weights.pairs[s][p]);
        low[s] = Bf16Pairs::AddTerm(firsts, weight, low[s]);
        high[s] = Bf16Pairs::AddTerm(lasts, weight, high[s]);
      });
    }
    Unroll<SLOTS>([&](int s) {
      const __m512 alpha = Avx512::Set(weights.alphas[s]);
      float* sums = slots[s].sums + column;
      Avx512::Store(sums, Avx512::Fma(Avx512::Load(sums), alpha, FirstColumns(low[s], high[s])));
      if (column + kTile >= dim) return;
      Avx512::Store(sums + kTile,
                    Avx512::Fma(Avx512::Load(sums + kTile), alpha, LastColumns(low[s], high[s])));
    });
  }
}

template <int SLOTS>
void AttendPairs(LyingCall& call, RowSlot* slots) {
  alignas(64) float scores[SLOTS][kLyingKeys];
  PairWeights<SLOTS> weights;
  if (SLOTS == kLyingSlots && ScoresGroups(call.rows) && IsWholeGroup(slots)) {
    ScoreGroup(call, slots[0].query, scores);
  } else {
    TurnKeys(call);
    ScoreLyingKeys<SLOTS>(call, slots, scores);
  }
  call.fetch = false;
  bool all_seen = true;
  for (int s = 0; s < SLOTS; ++s) {
    weights.alphas[s] = WeighScores<Avx512>(slots[s], scores[s]);
    const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(Avx512::Load(scores[s])));
    _mm256_store_si256(reinterpret_cast<__m256i*>(weights.pairs[s]), rounded);
    all_seen = all_seen && slots[s].seen == kSeesAll;
  }
  if (all_seen) return AddLyingValues<SLOTS>(call, weights, slots, kSeesAll);
  for (int s = 0; s < SLOTS; ++s) {
    PairWeights<1> one;
    one.alphas[0] = weights.alphas[s];
    __builtin_memcpy(one.pairs[0], weights.pairs[s], sizeof(one.pairs[0]));
    AddLyingValues<1>(call, one, &slots[s], slots[s].seen);
  }
}

void AttendLyingPairs(const LyingRows& rows, RowSlot* slots, int count) {
  LyingCall call(rows);
  for (; count >= kLyingSlots; count -= kLyingSlots, slots += kLyingSlots)
    AttendPairs<kLyingSlots>(call, slots);
  if (count >= 4) AttendPairs<4>(call, slots), count -= 4, slots += 4;
  if (count >= 2) AttendPairs<2>(call, slots), count -= 2, slots += 2;
  if (count > 0) AttendPairs<1>(call, slots);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_LYING_PAIRS_H_
