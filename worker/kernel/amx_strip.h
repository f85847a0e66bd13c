#ifndef ANNULUS_WORKER_KERNEL_AMX_STRIP_H_
#define ANNULUS_WORKER_KERNEL_AMX_STRIP_H_

#include <immintrin.h>

#include "worker/kernel/amx_softmax.h"
#include "worker/kernel/tile_isa.h"

// A strip of rows against one block of keys, and the softmax of its scores in small steps.

namespace annulus {
namespace {

// When to do a step of other work: at every n-th pause between products, so that at most one is
// done at a pause and they are spread evenly.
class Turns {
 public:
  Turns(int64_t steps, int64_t pauses) {
    if (steps > 0) every_ = left_ = pauses > steps ? (pauses + steps - 1) / steps : 1;
  }
  inline __attribute__((always_inline)) bool Now() {
    if (--left_ != 0) return false;
    left_ = every_;
    return true;
  }

 private:
  int64_t every_ = 0, left_ = 0;
};

// Where the next step of weighing is: row after row, then the next four chunks of each.
struct WeighPlace {
  float* at = nullptr;
  int64_t row = 0, chunks = 0;  // That are left, with this one.
};

// ROWS · 16 rows. Their scores lie tile by tile, [16 keys][row][key], and their weights, rounded,
// where those of the first of each two tiles were, low parts where the second's were.
template <int ROWS>
struct Strip {
  static constexpr int kRows = ROWS * kTile;
  static constexpr int kChunkFloats = kRows * kTile;
  using View = ScoreView<kTile, kChunkFloats>;

  const PackedBlock* block = nullptr;
  int row = 0;
  float* scores = nullptr;
  __mmask16 seeing[ROWS];
  alignas(64) float references[kRows], alphas[kRows], maxima[kRows];
  alignas(64) float largest[kRows][kTile], sums[kRows][kTile];

  // A row's scores, all `chunks` of them. Before Begin.
  inline __attribute__((always_inline)) void FindLargest(int64_t of, int chunks) {
    _mm512_store_ps(largest[of], LargestOf(View{scores + of * kTile}, 0, {0, chunks}));
  }

  // Raises the rows' maxima.
  void Begin(const TileBlock& tile) {
    for (int i = 0; i < ROWS; ++i) {
      const int first = row + i * kTile, count = MinInt(kTile, tile.rows - first);
      seeing[i] = static_cast<__mmask16>(count > 0 ? (1u << count) - 1 : 0);
      RowStates states(tile, first, seeing[i]);
      RaiseStates(largest + i * kTile, _mm512_set1_ps(tile.softmax_scale), states);
      _mm512_store_ps(references + i * kTile, states.reference);
      _mm512_store_ps(alphas + i * kTile, states.alpha);
      _mm512_store_ps(maxima + i * kTile, states.max);
    }
    for (float* sum : sums) _mm512_store_ps(sum, _mm512_setzero_ps());
  }

  template <class FORMAT>
  inline __attribute__((always_inline)) void WeighFourAt(WeighPlace& place, __m512 scale) {
    const View view{place.at};
    const auto take = [&](int r, int c, __m512 first, __m512 second) {
      FORMAT::StoreWeights(first, second, reinterpret_cast<Bf16*>(view.At(r, c)),
                           kChunkFloats * (sizeof(float) / sizeof(Bf16)));
    };
    const Weighing weighing{scale, _mm512_set1_ps(references[place.row])};
    float* sum = sums[place.row];
    const __m512 more = WeighFour(view, 0, 0, place.chunks >= 4 ? 4 : 2, weighing, take);
    _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), more));
    place.at += kTile;
    if (++place.row < kRows) return;
    place.row = 0;
    place.chunks -= 4;
    place.at += 3 * kChunkFloats;
  }

  // Stores the rows' state. No other strip of these rows has begun since Begin.
  void End(const TileBlock& tile) const {
    for (int i = 0; i < ROWS; ++i) {
      RowStates states(tile, row + i * kTile, seeing[i]);
      states.max = _mm512_load_ps(maxima + i * kTile);
      states.alpha = _mm512_load_ps(alphas + i * kTile);
      states.End(tile, row + i * kTile, SumsOf(sums + i * kTile));
    }
  }
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_STRIP_H_
