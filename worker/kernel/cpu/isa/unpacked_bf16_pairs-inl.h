#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_UNPACKED_BF16_PAIRS_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_UNPACKED_BF16_PAIRS_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/isa/bf16_packing-inl.h"
#include "worker/kernel/cpu/isa/bf16_pairs-inl.h"
#include "worker/kernel/cpu/isa/decode_rows-inl.h"

// The unpacked path (decoding) for bf16, by products of pairs (bf16_pairs-inl.h). Compiled for
// AVX512-BF16 and included by tile_avx512bf16.cc. Start at AttendUnpackedPairs and AttendPairs at
// the end. Scores come from ScoreGroup for a whole group of slots, otherwise from
// ScoreUnpackedKeys; values from AddUnpackedValues.
namespace annulus {

// Scores of keys in place.

namespace {

struct UnpackedCall {
  explicit UnpackedCall(const UnpackedRows& unpacked) : rows(unpacked) {
    for (int k = 0; k < kUnpackedKeys; ++k) {
      // After the last row, its address again: no slot sees these keys.
      const int64_t row = MinInt(k, rows.count - 1);
      keys[k] = rows.keys + row * rows.key_stride;
      values[k] = rows.values + row * rows.value_stride;
    }
  }

  const UnpackedRows& rows;
  const std::byte *keys[kUnpackedKeys], *values[kUnpackedKeys];
  bool fetch = true;  // Prefetch: once for all slots.
  bool is_turned = false;
  __m512 turned[kMaxHeadDim / 2];  // One pair of dimensions of all keys each.
};

inline void TurnKeys(UnpackedCall& call) {
  if (call.is_turned) return;
  call.is_turned = true;
  const int dim = call.rows.head_dim;
  for (int d = 0; d < dim; d += kChunk) {
    __m512 square[kUnpackedKeys];
    Unroll<kUnpackedKeys>(
        [&](int k) { square[k] = _mm512_castsi512_ps(LoadPart32(call.keys[k], d, dim)); });
    Avx512::Transpose(square);
    Unroll<kTile>([&](int pair) { call.turned[d / 2 + pair] = square[pair]; });
  }
}

// Prefetches line `n` of the lines of a later call's keys.
inline void FetchLine(const UnpackedCall& call, int n) {
  constexpr int kLine = 64;
  FetchAhead<1>(call.keys[n % kUnpackedKeys] + int64_t{n / kUnpackedKeys} * kLine,
                call.rows.keys_ahead);
}

// Scores by transposed keys. Prefetches a line of keys next to the products of each pair. All at
// once, during the transposition, the prefetches would wait for one another, and memory would idle
// afterwards. There are two sums, of even pairs and of odd ones, for any number of slots, so a
// row's bits do not depend on its neighbours.
template <int SLOTS>
__attribute__((flatten)) void ScoreUnpackedKeys(const UnpackedCall& call, const RowSlot* slots,
                                                float (*scores)[kUnpackedKeys]) {
  constexpr int kSums = 2;
  __m512 sums[SLOTS][kSums];
  Unroll<SLOTS>([&](int s) { Unroll<kSums>([&](int i) { sums[s][i] = Avx512::Zero(); }); });
  for (int pair = 0; pair < (call.rows.head_dim + 1) / 2; pair += kSums) {
    Unroll<kSums>([&](int i) {
      if (call.fetch) FetchLine(call, pair + i);
      const __m512 keys = call.turned[pair + i];
      Unroll<SLOTS>([&](int s) {
        sums[s][i] = Bf16Pairs::AddTerm(
            keys, Avx512::Set(slots[s].query[pair * kUnpackedSlots + i]), sums[s][i]);
      });
    });
  }
  const int lines = Chunks(call.rows.head_dim) * kTile;
  for (int n = (call.rows.head_dim + 1) / 2; call.fetch && n < lines; ++n) FetchLine(call, n);
  const __m512 scale = Avx512::Set(call.rows.score_scale);
  Unroll<SLOTS>([&](int s) {
    Avx512::Store(scores[s], Avx512::Mul(SumOfVectors<Avx512, kSums>(sums[s]), scale));
  });
}

}  // namespace

// Scores of a whole group of query slots (tile_isa.h). A vector has two pairs of dimensions of
// each slot. The CPU broadcasts a key's own two pairs when it loads them, so no key is transposed.

namespace {

inline bool IsWholeGroup(const RowSlot* slots) {
  constexpr int kGap = 2 * (kUnpackedSlots - 1);
  return reinterpret_cast<uintptr_t>(slots[0].query) % sizeof(__m512) == 0 &&
         slots[kUnpackedSlots - 1].query == slots[0].query + kGap;
}

// False for fewer than kUnpackedKeys keys, and for half a pair of pairs.
inline bool ScoresGroups(const UnpackedRows& rows) {
  return rows.count == kUnpackedKeys && rows.head_dim % 4 == 0;
}

// of[k] has two sums of each slot for key k → scores of each slot, in the order of keys.
inline void StoreGroupScores(const __m512 (&of)[kUnpackedKeys], __m512 scale,
                             float (*scores)[kUnpackedKeys]) {
  constexpr __mmask16 kAll = Avx512::kAll;
  __m512 twos[kUnpackedKeys / 2];  // In each quarter, its two slots by two keys.
  Unroll<kUnpackedKeys / 2>([&](int i) {
    const __m512 even = _mm512_maskz_shuffle_ps(kAll, of[2 * i], of[2 * i + 1], 0x88);
    const __m512 odd = _mm512_maskz_shuffle_ps(kAll, of[2 * i], of[2 * i + 1], 0xdd);
    twos[i] = Avx512::Mul(Avx512::Add(even, odd), scale);
  });
  Unroll<2>([&](int second) {
    __m512 fours[4];  // In each quarter, four keys of one of its slots.
    Unroll<4>([&](int i) {
      fours[i] = second ? _mm512_maskz_shuffle_ps(kAll, twos[2 * i], twos[2 * i + 1], 0xdd)
                        : _mm512_maskz_shuffle_ps(kAll, twos[2 * i], twos[2 * i + 1], 0x88);
    });
    const __m512 low = Avx512::Lanes<0x88>(fours[0], fours[1]);
    const __m512 low_odd = Avx512::Lanes<0xdd>(fours[0], fours[1]);
    const __m512 high = Avx512::Lanes<0x88>(fours[2], fours[3]);
    const __m512 high_odd = Avx512::Lanes<0xdd>(fours[2], fours[3]);
    // Quarters 0 and 2 of each, then 1 and 3: keys of slots 0, 4, 2 and 6, or of the next ones.
    Avx512::Store(scores[0 + second], Avx512::Lanes<0x88>(low, high));
    Avx512::Store(scores[4 + second], Avx512::Lanes<0xdd>(low, high));
    Avx512::Store(scores[2 + second], Avx512::Lanes<0x88>(low_odd, high_odd));
    Avx512::Store(scores[6 + second], Avx512::Lanes<0xdd>(low_odd, high_odd));
  });
}

// Adds the products of two pairs of each key.
inline void AddGroupProducts(const std::byte* keys, int64_t stride, __m512 query,
                             __m512 (&sums)[kUnpackedKeys]) {
  Unroll<kUnpackedKeys>([&](int k) {
    double pairs;
    __builtin_memcpy(&pairs, keys + k % 4 * stride, sizeof(pairs));
    sums[k] = Bf16Pairs::AddTerm(_mm512_castpd_ps(_mm512_set1_pd(pairs)), query, sums[k]);
    if (k % 4 == 3) keys += 4 * stride;
  });
}

// The same bits as ScoreUnpackedKeys.
__attribute__((flatten)) inline void ScoreGroup(const UnpackedCall& call, const float* queries,
                                                float (*scores)[kUnpackedKeys]) {
  constexpr int kLinePairs = 16;
  __m512 sums[kUnpackedKeys];
  Unroll<kUnpackedKeys>([&](int k) { sums[k] = Avx512::Zero(); });
  const int64_t stride = call.rows.key_stride;
  const int64_t ahead = call.fetch ? call.rows.keys_ahead : 0;
  for (int first = 0; 2 * first < call.rows.head_dim; first += kLinePairs) {
    const std::byte* line = call.rows.keys + first * sizeof(float);
    const std::byte* fetched = line;
    const int end = MinInt(kLinePairs, call.rows.head_dim / 2 - first);
    for (int pair = 0; pair < end; pair += 2, queries += 2 * kUnpackedSlots) {
      const std::byte* keys = line + pair * sizeof(float);
      // Without this, the compiler holds one address per key in a register.
      asm("" : "+r"(keys));
      Unroll<2>([&](int i) { FetchAhead<1>(fetched + i * stride, ahead); });
      fetched += 2 * stride;
      AddGroupProducts(keys, stride, Avx512::Load(queries), sums);
    }
    for (int k = end; k < kUnpackedKeys; ++k, fetched += stride) FetchAhead<1>(fetched, ahead);
  }
  StoreGroupScores(sums, Avx512::Set(call.rows.score_scale), scores);
}

}  // namespace

// All slots of a call. Slots that share their keys take longer to multiply than memory takes to
// deliver: pairs halve that work, and no number is widened. ScoreUnpackedKeys has one key per lane,
// so that it sums nothing across lanes. For that the keys of a call are transposed, once for all
// slots.

namespace {

inline constexpr int kUnpackedPairs = kUnpackedKeys / 2;  // Pairs of neighbouring keys.

// Rounded weights and rescale factors of some slots.
template <int SLOTS>
struct PairWeights {
  alignas(64) float pairs[SLOTS][kUnpackedPairs];
  float alphas[SLOTS];
};

// `low` and `high` hold columns of pairs in alternating runs of four, as the CPU interleaves two
// rows.
inline __m512 FirstColumns(__m512 low, __m512 high) {
  const __m512i from = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  return _mm512_permutex2var_ps(low, from, high);
}
inline __m512 LastColumns(__m512 low, __m512 high) {
  const __m512i from =
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  return _mm512_permutex2var_ps(low, from, high);
}

// `seen`: the bits of the keys to use, read only if SLOTS is 1. Values of other keys may be NaN or
// infinite.
template <int SLOTS>
__attribute__((flatten)) void AddUnpackedValues(const UnpackedCall& call,
                                                const PairWeights<SLOTS>& weights,
                                                const RowSlot* slots, uint32_t seen) {
  const int dim = call.rows.value_dim;
  for (int column = 0; column < dim; column += kChunk) {
    __m512 low[SLOTS], high[SLOTS];
    Unroll<SLOTS>([&](int s) { low[s] = high[s] = Avx512::Zero(); });
    for (int p = 0; p < kUnpackedPairs; ++p) {
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
void AttendPairs(UnpackedCall& call, RowSlot* slots) {
  alignas(64) float scores[SLOTS][kUnpackedKeys];
  PairWeights<SLOTS> weights;
  if (SLOTS == kUnpackedSlots && ScoresGroups(call.rows) && IsWholeGroup(slots)) {
    ScoreGroup(call, slots[0].query, scores);
  } else {
    TurnKeys(call);
    ScoreUnpackedKeys<SLOTS>(call, slots, scores);
  }
  call.fetch = false;
  bool all_seen = true;
  for (int s = 0; s < SLOTS; ++s) {
    weights.alphas[s] = WeighScores<Avx512>(slots[s], scores[s]);
    const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(Avx512::Load(scores[s])));
    _mm256_store_si256(reinterpret_cast<__m256i*>(weights.pairs[s]), rounded);
    all_seen = all_seen && slots[s].seen == kSeesAll;
  }
  if (all_seen) return AddUnpackedValues<SLOTS>(call, weights, slots, kSeesAll);
  for (int s = 0; s < SLOTS; ++s) {
    PairWeights<1> one;
    one.alphas[0] = weights.alphas[s];
    __builtin_memcpy(one.pairs[0], weights.pairs[s], sizeof(one.pairs[0]));
    AddUnpackedValues<1>(call, one, &slots[s], slots[s].seen);
  }
}

void AttendUnpackedPairs(const UnpackedRows& rows, RowSlot* slots, int count) {
  UnpackedCall call(rows);
  for (; count >= kUnpackedSlots; count -= kUnpackedSlots, slots += kUnpackedSlots)
    AttendPairs<kUnpackedSlots>(call, slots);
  if (count >= 4) AttendPairs<4>(call, slots), count -= 4, slots += 4;
  if (count >= 2) AttendPairs<2>(call, slots), count -= 2, slots += 2;
  if (count > 0) AttendPairs<1>(call, slots);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_UNPACKED_BF16_PAIRS_INL_H_
