#ifndef ANNULUS_WORKER_KERNEL_LYING_PAIR_SCORES_H_
#define ANNULUS_WORKER_KERNEL_LYING_PAIR_SCORES_H_

#include <immintrin.h>

#include "worker/kernel/amx_packing.h"
#include "worker/kernel/bf16_pairs.h"
#include "worker/kernel/tile_row_scores.h"

// Scores of keys of bf16 as they lie, by products of pairs (lying_pairs.h).

namespace annulus {
namespace {

struct LyingCall {
  explicit LyingCall(const LyingRows& lying) : rows(lying) {
    for (int k = 0; k < kLyingKeys; ++k) {
      // Behind the last row it stands in: nobody sees the key.
      const int64_t row = MinInt(k, rows.count - 1);
      keys[k] = rows.keys + row * rows.key_stride;
      values[k] = rows.values + row * rows.value_stride;
    }
  }

  const LyingRows& rows;
  const std::byte *keys[kLyingKeys], *values[kLyingKeys];
  bool fetch = true;  // Once for all slots.
  bool is_turned = false;
  __m512 turned[kMaxHeadDim / 2];  // A pair of dimensions of all keys each.
};

inline void TurnKeys(LyingCall& call) {
  if (call.is_turned) return;
  call.is_turned = true;
  const int dim = call.rows.head_dim;
  for (int d = 0; d < dim; d += kChunk) {
    __m512 square[kLyingKeys];
    Unroll<kLyingKeys>(
        [&](int k) { square[k] = _mm512_castsi512_ps(LoadPart32(call.keys[k], d, dim)); });
    Avx512::Transpose(square);
    Unroll<kTile>([&](int pair) { call.turned[d / 2 + pair] = square[pair]; });
  }
}

// Number `n` of the lines that the keys of a call take, of those that come later.
inline void FetchLine(const LyingCall& call, int n) {
  constexpr int kLine = 64;
  FetchAhead<1>(call.keys[n % kLyingKeys] + int64_t{n / kLyingKeys} * kLine, call.rows.keys_ahead);
}

// Asks for a line of keys beside the products of each pair: all at once, while keys are turned,
// they would wait for one another, and memory would idle meanwhile. In two sums, of even pairs and
// of odd ones, for any number of slots: a row has the same bits whatever its neighbours.
template <int SLOTS>
__attribute__((flatten)) void ScoreLyingKeys(const LyingCall& call, const RowSlot* slots,
                                             float (*scores)[kLyingKeys]) {
  constexpr int kSums = 2;
  __m512 sums[SLOTS][kSums];
  Unroll<SLOTS>([&](int s) { Unroll<kSums>([&](int i) { sums[s][i] = Avx512::Zero(); }); });
  for (int pair = 0; pair < (call.rows.head_dim + 1) / 2; pair += kSums) {
    Unroll<kSums>([&](int i) {
      if (call.fetch) FetchLine(call, pair + i);
      const __m512 keys = call.turned[pair + i];
      Unroll<SLOTS>([&](int s) {
        sums[s][i] = Bf16Pairs::AddTerm(keys, Avx512::Set(slots[s].query[pair * kLyingSlots + i]),
                                        sums[s][i]);
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
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_LYING_PAIR_SCORES_H_
