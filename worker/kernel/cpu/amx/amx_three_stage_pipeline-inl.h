#ifndef ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_THREE_STAGE_PIPELINE_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_THREE_STAGE_PIPELINE_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/amx/amx_scores-inl.h"
#include "worker/kernel/cpu/amx/amx_values-inl.h"

// The three-stage pipeline of AMX: scores, softmax and values in one, for all formats and masks.
// Compiled for AMX and included by amx_isa-inl.h. Start at ThreeStagePipeline::Run.
//
// The operations are those of score, softmax and accumulate, in three stages that overlap. A row
// block is 16 or 32 rows against a block of keys. At the same time:
// - The AMX unit multiplies the scores of row block i + 1, then the values of row block i − 1.
// - The vector units turn the scores of row block i into weights.
//
// A tile product blocks one of the two vector ports for its duration, so two vectors of weights per
// product are nearly free.

namespace annulus {
namespace {

// Spreads the steps of other work evenly over the pauses between products: one at every n-th pause.
// If there are more steps than pauses: one at each.
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

// Row blocks of a tile that have met a block in this call, in units of 16 rows.
struct BegunRowBlocks {
  bool of[kMostTileRows / kTile] = {};
};

template <class FORMAT, int ROWS>
class ThreeStagePipeline {
 public:
  ThreeStagePipeline(const TileBlock& tile, BegunRowBlocks* begun) : tile_(tile), begun_(*begun) {}

  // Attends to `count` blocks. Returns true if at most a fourth of the row blocks had a row that
  // had a maximum and raised it.
  bool Run(const PackedBlock* blocks, int count) {
    int i = 0;
    for (int b = 0; b < count; ++b) {
      for (int row = 0; row < tile_.rows; row += kRows) {
        RowBlock<ROWS>& next = row_blocks_[i % 3];
        if (!next.Place(tile_, blocks[b], row)) continue;
        next.scores = tile_.scores + i % 3 * (kRows * kKeyBlock);
        Advance(&next, i > 0 ? &row_blocks_[(i + 2) % 3] : nullptr,
                i > 1 ? &row_blocks_[(i + 1) % 3] : nullptr);
        ++i;
      }
    }
    if (i > 0)
      Advance(nullptr, &row_blocks_[(i + 2) % 3], i > 1 ? &row_blocks_[(i + 1) % 3] : nullptr);
    if (i > 0) Advance(nullptr, nullptr, &row_blocks_[(i + 2) % 3]);
    return 4 * raised_ <= i;
  }

 private:
  static constexpr int kRows = ROWS * kTile;
  static constexpr int kTileFloats = kTile * kTile;
  static constexpr int kChunkFloats = ROWS * kTileFloats;

  // Pauses between the products of a row block's sums, and of its scores.
  int64_t AddPauses(const RowBlock<ROWS>& row_block) const {
    return row_block.chunks / 2 * Chunks(tile_.value_dim) * kPauses<ROWS, FORMAT::kValueProducts>;
  }
  int64_t ScorePauses(const RowBlock<ROWS>& row_block) const {
    return row_block.chunks / 2 * Chunks(tile_.head_dim) * kPauses<ROWS, FORMAT::kScoreProducts>;
  }

  // Computes the scores of `next`, the weights of `here` and the sums of `last`; skips each that is
  // nullptr.
  void Advance(RowBlock<ROWS>* next, RowBlock<ROWS>* here, RowBlock<ROWS>* last) {
    const int64_t pauses =
        (next == nullptr ? 0 : ScorePauses(*next)) + (last == nullptr ? 0 : AddPauses(*last));
    const int64_t steps = here == nullptr ? 0 : kRows * ((here->chunks + 3) / 4);
    if (steps <= pauses) return AdvanceBy<1>(next, here, last);
    steps <= 2 * pauses ? AdvanceBy<2>(next, here, last) : AdvanceBy<4>(next, here, last);
  }

  // Advance with STEPS steps of the softmax at a pause.
  template <int STEPS>
  __attribute__((flatten)) void AdvanceBy(RowBlock<ROWS>* next, RowBlock<ROWS>* here,
                                          RowBlock<ROWS>* last) {
    constexpr int kFinds = STEPS > 2 ? 2 : 1;
    const int64_t add_pauses = last == nullptr ? 0 : AddPauses(*last);
    const int64_t score_pauses = next == nullptr ? 0 : ScorePauses(*next);
    WeighPlace place;
    if (here != nullptr) place = {here->scores, 0, here->chunks};
    const int64_t rows = next == nullptr ? 0 : kRows;
    int64_t row = 0;
    Pace weigh(kRows * ((place.chunks + 3) / 4), score_pauses + add_pauses);
    Pace find(rows, add_pauses);
    const __m512 scale = _mm512_set1_ps(tile_.softmax_scale);
    const auto weigh_some = [&]() __attribute__((always_inline)) {
      if (!weigh.Now()) return;
      if (STEPS == 1) return here->template WeighFourAt<FORMAT>(place, scale);
      for (int i = 0; i < STEPS && place.chunks > 0; ++i)
        here->template WeighFourAt<FORMAT>(place, scale);
    };
    if (next != nullptr) ScoreRowBlock<FORMAT>(tile_, *next, weigh_some);
    if (last != nullptr) {
      Add(
          *last, [&]() __attribute__((always_inline)) {
            weigh_some();
            if (!find.Now()) return;
            for (int i = 0; i < kFinds && row < rows; ++i) next->FindLargest(tile_, row++);
          });
    }
    while (place.chunks > 0) here->template WeighFourAt<FORMAT>(place, scale);
    while (row < rows) next->FindLargest(tile_, row++);
    if (here != nullptr) here->End(tile_);
    if (next == nullptr) return;
    bool& begun = begun_.of[next->row / kRows];
    if (next->Begin(tile_, !begun)) ++raised_;
    begun = true;
  }

  template <class Work>
  inline __attribute__((always_inline)) void Add(const RowBlock<ROWS>& last, const Work& work) {
    TileBlock block = tile_;
    block.values = last.block->values;
    block.group_begin = last.block->group_begin;
    block.group_end = last.block->group_end;
    Fence();
    Operands of;
    of.left = reinterpret_cast<const Bf16*>(last.scores);
    of.left_stride = kChunk * sizeof(Bf16);
    of.left_low = kChunkFloats * (sizeof(float) / sizeof(Bf16));
    of.left_chunk = 2 * of.left_low;
    of.left_below = kTileNumbers;
    of.chunks = last.chunks / 2;
    AddAllColumns<FORMAT, ROWS>(block, last.row, last.first / 2, {last.alphas, last.fresh}, of,
                                work);
  }

  const TileBlock& tile_;
  RowBlock<ROWS> row_blocks_[3];
  BegunRowBlocks& begun_;
  int raised_ = 0;  // Row blocks with a row whose maximum rose.
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_THREE_STAGE_PIPELINE_INL_H_
