#ifndef ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_SCORES_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_SCORES_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/amx/amx_products-inl.h"
#include "worker/kernel/cpu/isa/bf16_formats-inl.h"
#include "worker/kernel/cpu/isa/bf16_rounding-inl.h"
#include "worker/kernel/cpu/isa/bf16_softmax-inl.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

// Scores by AMX, and a row block's softmax in small steps. Compiled for AMX and included by
// amx_values-inl.h and both pipelines. Start at ScoreAmx (a whole tile) and RowBlock (a stage of
// the pipelines).
namespace annulus {

// Scores of a whole tile.

namespace {

// scores = scale · queries · keys.
template <int ROWS, int KEYS, class Series>
void ScoreTiles(const Operands& of, float scale, float* scores, Series& products) {
  products.template Multiply<KEYS, Start::kZero>(of, {scores, kKeyBlock, kTile, kTile * kKeyBlock},
                                                 NoWork());
  if (scale == 1) return;
  products.Finish();
  const __m512 factor = _mm512_set1_ps(scale);
  for (int r = 0; r < ROWS * kTile; ++r) {
    for (int k = 0; k < KEYS; ++k) {
      float* at = scores + r * kKeyBlock + k * kTile;
      _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), factor));
    }
  }
}

// The operands for queries from `row` on, times keys.
template <class FORMAT>
Operands QueriesAndKeys(const TileBlock& tile, int row) {
  const int chunks = Chunks(tile.head_dim);
  Operands of;
  of.left =
      reinterpret_cast<const Bf16*>(tile.queries) + int64_t{row} * chunks * kChunk * FORMAT::kParts;
  of.left_stride = kChunk * sizeof(Bf16);
  of.left_chunk = FORMAT::kParts * kTileNumbers;
  of.left_low = kTileNumbers;
  of.left_below = of.right_beside = chunks * of.left_chunk;
  of.chunks = chunks;
  return of;
}
template <class FORMAT>
const Bf16* KeysFrom(const TileBlock& tile, int key) {
  return reinterpret_cast<const Bf16*>(tile.keys) +
         int64_t{key} * Chunks(tile.head_dim) * kChunk * FORMAT::kParts;
}

template <class FORMAT, int ROWS>
void ScoreRows(const TileBlock& tile, int row) {
  const Hull hull = HullOf(tile, row, MinInt(tile.rows, row + ROWS * kTile));
  Operands of = QueriesAndKeys<FORMAT>(tile, row);
  float* scores = tile.scores + int64_t{row} * kKeyBlock;
  Products<ROWS, FORMAT::kScoreProducts> products;
  for (int key = hull.begin / kTile * kTile; key < hull.end; key += 2 * kTile) {
    of.right = KeysFrom<FORMAT>(tile, key);
    key + kTile < hull.end ? ScoreTiles<ROWS, 2>(of, tile.score_scale, scores + key, products)
                           : ScoreTiles<ROWS, 1>(of, tile.score_scale, scores + key, products);
  }
  products.Finish();
}

template <class FORMAT>
void ScoreAmx(const TileBlock& tile) {
  const TileUse use;
  Fence();
  for (int row = 0; row < tile.rows; row += 2 * kTile) {
    tile.rows - row > kTile ? ScoreRows<FORMAT, 2>(tile, row) : ScoreRows<FORMAT, 1>(tile, row);
  }
  FORMAT::MendScores(tile);
}

}  // namespace

// A row block against one block of keys, and the softmax of its scores in small steps.

namespace {

// The place of the next softmax step: row after row, then the next four chunks of each row.
struct WeighPlace {
  float* at = nullptr;
  int64_t row = 0, chunks = 0;  // `chunks`: the number left, with this one.
};

// A row block: ROWS · 16 rows. Scores are stored tile by tile, [16 keys][row][key]. Rounded weights
// overwrite them: those of each two tiles take the place of the first tile's scores, low parts that
// of the second's.
template <int ROWS>
struct RowBlock {
  static constexpr int kRows = ROWS * kTile;
  static constexpr int kChunkFloats = kRows * kTile;
  using View = ScoreView<kTile, kChunkFloats>;

  const PackedBlock* block = nullptr;
  int row = 0;
  // Chunks of 16 keys: those that some row sees, from a multiple of 4 on.
  int first = 0, chunks = 0;
  // Some row sees only part of the chunks before and from these on.
  int whole_begin = 0, whole_end = 0;
  float* scores = nullptr;
  __mmask16 seeing[ROWS];
  bool fresh = false;  // No row had sums before this block.
  alignas(64) float references[kRows], alphas[kRows], maxima[kRows];
  alignas(64) float largest[kRows][kTile], sums[kRows][kTile];

  // Sets the hulls of the rows from `from` on in a block. Returns false if no row sees a key.
  bool Place(const TileBlock& tile, const PackedBlock& of, int from) {
    block = &of;
    row = from;
    first = whole_begin = 0;
    chunks = whole_end = kKeyBlock / kTile;
    if (of.row_begin == nullptr) return true;
    int begin = kKeyBlock, end = 0, most_begin = 0, least_end = kKeyBlock;
    for (int r = row; r < MinInt(tile.rows, row + kRows); ++r) {
      begin = MinInt(begin, of.row_begin[r]);
      end = end > of.row_end[r] ? end : of.row_end[r];
      most_begin = most_begin > of.row_begin[r] ? most_begin : of.row_begin[r];
      least_end = MinInt(least_end, of.row_end[r]);
    }
    if (begin >= end) return false;
    first = begin / (4 * kTile) * 4;
    chunks = RoundUp(end, kChunk) / kTile - first;
    whole_begin = MinInt(chunks, RoundUp(most_begin, kTile) / kTile - first);
    whole_end = MinInt(chunks, least_end / kTile - first);
    if (whole_end < whole_begin) whole_end = whole_begin;
    return true;
  }

  // Masks the scores of a row and finds its largest. Call before Begin.
  inline __attribute__((always_inline)) void FindLargest(const TileBlock& tile, int64_t of) {
    const View view{scores + of * kTile};
    if (whole_begin > 0 || whole_end < chunks) MaskRow(view, tile, row + static_cast<int>(of));
    _mm512_store_ps(largest[of], LargestOf(view, 0, {0, chunks}));
  }
  void MaskRow(View view, const TileBlock& tile, int of) const {
    if (of >= tile.rows) return;
    const __m512i keys = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i begin = _mm512_set1_epi32(block->row_begin[of] - first * kTile);
    const __m512i end = _mm512_set1_epi32(block->row_end[of] - first * kTile);
    for (int c = 0; c < chunks; ++c) {
      if (c == whole_begin) c = whole_end;
      if (c == chunks) return;
      const __m512i key = _mm512_add_epi32(keys, _mm512_set1_epi32(c * kTile));
      const __mmask16 hidden =
          _mm512_cmplt_epi32_mask(key, begin) | _mm512_cmpge_epi32_mask(key, end);
      float* at = view.At(0, c);
      _mm512_store_ps(at,
                      _mm512_mask_blend_ps(hidden, _mm512_load_ps(at), _mm512_set1_ps(kMinusInf)));
    }
  }

  // Raises the rows' maxima. Returns true if some row had a maximum and it rose. `first`: none of
  // the rows has met a block in this call. Rows that have met one have sums. These may be NaN even
  // if all scores of the row were −inf.
  bool Begin(const TileBlock& tile, bool first) {
    fresh = first && BeginSums(tile, row, MinInt(kRows, tile.rows - row));
    bool raised = false;
    for (int i = 0; i < ROWS; ++i) {
      const int of = row + i * kTile, count = MinInt(kTile, tile.rows - of);
      seeing[i] = static_cast<__mmask16>(count > 0 ? (1u << count) - 1 : 0);
      RowStates states(tile, of, seeing[i]);
      raised |= RaiseStates(largest + i * kTile, _mm512_set1_ps(tile.softmax_scale), states);
      _mm512_store_ps(references + i * kTile, states.reference);
      _mm512_store_ps(alphas + i * kTile, states.alpha);
      _mm512_store_ps(maxima + i * kTile, states.max);
    }
    for (float* sum : sums) _mm512_store_ps(sum, _mm512_setzero_ps());
    return raised;
  }

  template <class FORMAT>
  inline __attribute__((always_inline)) void WeighFourAt(WeighPlace& place, __m512 scale) {
    const View view{place.at};
    const auto take = [&](int r, int c, __m512 first, __m512 second) {
      FORMAT::StoreWeights(first, second, reinterpret_cast<Bf16*>(view.At(r, c)),
                           kChunkFloats * (sizeof(float) / sizeof(Bf16)));
    };
    float* sum = sums[place.row];
    const Weighing<FORMAT> weighing{scale, _mm512_set1_ps(references[place.row])};
    const __m512 more = WeighFour(view, 0, 0, place.chunks >= 4 ? 4 : 2, weighing, take);
    _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), more));
    place.at += kTile;
    if (++place.row < kRows) return;
    place.row = 0;
    place.chunks -= 4;
    place.at += 3 * kChunkFloats;
  }

  // Stores the rows' state. Requires: no other row block of these rows has begun since Begin.
  void End(const TileBlock& tile) const {
    for (int i = 0; i < ROWS; ++i) {
      RowStates states(tile, row + i * kTile, seeing[i]);
      states.max = _mm512_load_ps(maxima + i * kTile);
      states.alpha = _mm512_load_ps(alphas + i * kTile);
      states.End(tile, row + i * kTile, SumsOf(sums + i * kTile));
    }
  }
};

// The scores of a row block. Calls work() between products.
template <class FORMAT, int ROWS, class Work>
inline __attribute__((always_inline)) void ScoreRowBlock(const TileBlock& tile,
                                                         const RowBlock<ROWS>& row_block,
                                                         const Work& work) {
  constexpr int kTileFloats = kTile * kTile, kChunkFloats = RowBlock<ROWS>::kChunkFloats;
  TileBlock block = tile;
  block.keys = row_block.block->keys;
  Operands of = QueriesAndKeys<FORMAT>(block, row_block.row);
  of.right = KeysFrom<FORMAT>(block, row_block.first * kTile);
  Products<ROWS, FORMAT::kScoreProducts> products;
  Product out{row_block.scores, kTile, kChunkFloats, kTileFloats};
  Fence();
  for (int pair = 0; pair < row_block.chunks / 2; ++pair, out.first += 2 * kChunkFloats) {
    products.template Multiply<2, Start::kZero>(of, out, work);
    of.right += 2 * of.right_beside;
  }
  products.Finish();
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_SCORES_INL_H_
