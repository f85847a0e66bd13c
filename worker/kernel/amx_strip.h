#ifndef ANNULUS_WORKER_KERNEL_AMX_STRIP_H_
#define ANNULUS_WORKER_KERNEL_AMX_STRIP_H_

#include <immintrin.h>

#include "worker/kernel/amx_softmax.h"
#include "worker/kernel/tile_isa.h"

// A strip of rows against one block of keys, and the softmax of its scores in small steps.

namespace annulus {
namespace {

// When to do a step of other work: at every n-th pause between products, so that they are spread
// evenly; at every one where there are more steps than pauses.
class Pace {
 public:
  Pace(int64_t steps, int64_t pauses) {
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
  int first = 0, chunks = 0;  // Of 16 keys: those that some row sees, from a multiple of 4 on.
  bool masked = false;        // Some row does not see some of them.
  float* scores = nullptr;
  __mmask16 seeing[ROWS];
  alignas(64) float references[kRows], alphas[kRows], maxima[kRows];
  alignas(64) float largest[kRows][kTile], sums[kRows][kTile];

  // Sets what the rows from `from` on see; false when that is nothing.
  bool Place(const TileBlock& tile, int from) {
    row = from;
    first = 0;
    chunks = kKeyBlock / kTile;
    masked = false;
    if (tile.row_begin == nullptr) return true;
    int begin = kKeyBlock, end = 0, most_begin = 0, least_end = kKeyBlock;
    for (int r = row; r < MinInt(tile.rows, row + kRows); ++r) {
      begin = MinInt(begin, tile.row_begin[r]);
      end = end > tile.row_end[r] ? end : tile.row_end[r];
      most_begin = most_begin > tile.row_begin[r] ? most_begin : tile.row_begin[r];
      least_end = MinInt(least_end, tile.row_end[r]);
    }
    if (begin >= end) return false;
    first = begin / (4 * kTile) * 4;
    chunks = RoundUp(end, kChunk) / kTile - first;
    masked = most_begin > first * kTile || least_end < (first + chunks) * kTile;
    return true;
  }

  // Of the row's scores, which are masked. Before Begin.
  inline __attribute__((always_inline)) void FindLargest(int64_t of) {
    _mm512_store_ps(largest[of], LargestOf(View{scores + of * kTile}, 0, {0, chunks}));
  }
  void Mask(const TileBlock& tile) {
    for (int r = 0; r < MinInt(kRows, tile.rows - row); ++r)
      MaskRow(View{scores + r * kTile}, tile, row + r);
  }
  void MaskRow(View view, const TileBlock& tile, int of) const {
    const __m512i begin = _mm512_set1_epi32(tile.row_begin[of] - first * kTile);
    const __m512i end = _mm512_set1_epi32(tile.row_end[of] - first * kTile);
    __m512i key = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int c = 0; c < chunks; ++c) {
      const __mmask16 sees =
          _mm512_cmpge_epi32_mask(key, begin) & _mm512_cmplt_epi32_mask(key, end);
      _mm512_mask_store_ps(view.At(0, c), static_cast<__mmask16>(~sees), _mm512_set1_ps(kMinusInf));
      key = _mm512_add_epi32(key, _mm512_set1_epi32(kTile));
    }
  }

  // Raises the rows' maxima.
  void Begin(const TileBlock& tile) {
    for (int i = 0; i < ROWS; ++i) {
      const int of = row + i * kTile, count = MinInt(kTile, tile.rows - of);
      seeing[i] = static_cast<__mmask16>(count > 0 ? (1u << count) - 1 : 0);
      RowStates states(tile, of, seeing[i]);
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
