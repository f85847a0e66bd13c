#ifndef ANNULUS_WORKER_KERNEL_AMX_FLOW_H_
#define ANNULUS_WORKER_KERNEL_AMX_FLOW_H_

#include <immintrin.h>

#include "worker/kernel/amx_flow_products.h"
#include "worker/kernel/amx_flow_strip.h"
#include "worker/kernel/amx_strip_scores.h"
#include "worker/kernel/amx_sums.h"

// Strips of whole blocks whose rows' maxima stay, as most do after the first block: scores are
// weighed as soon as they are there, 64 keys at a time, so that they never leave the first cache.
// The same operations as in AMX's other stages (amx_attend.h), in the same order within a row.
//
// A strip takes four steps. In each, 32 rows are multiplied with 64 keys to scores, then a quarter
// of the values with the weights of the strip before to sums; between products of tiles, the scores
// of the step before and then the step's own are weighed. A row whose weights add up to more than
// kMostWeight may have a score above its bound: its strip is done again, scores first.

namespace annulus {
namespace {

// DIMS chunks of 32 dimensions, of queries and of values.
template <int DIMS>
class AttendFlow {
 public:
  static bool Serves(const TileBlock& tile) {
    return tile.slack == Whole::kSlack && tile.rows > kTile && Chunks(tile.head_dim) == DIMS &&
           tile.value_dim == DIMS * kChunk;
  }

  // All rows of the tile have seen a score that is a number.
  explicit AttendFlow(const TileBlock& tile)
      : tile_(tile), products_(tile), scale_(_mm512_set1_ps(tile.softmax_scale)) {
    constexpr int kStripFloats = kRows * kKeyBlock;
    float* free = tile.scores + 2 * kFlowFloats;
    for (int i = 0; i < 2; ++i, free += kStripFloats / 2)
      strips_[i].weights = reinterpret_cast<Bf16*>(free);
    again_.scores = free;
  }

  // Attends to blocks without a mask; returns to how many: after one in which a fourth of all
  // strips had to be done again it ends early, and `calm` is set to false.
  int Run(const PackedBlock* blocks, int count, bool* calm) {
    FlowStrip* last = nullptr;
    int b = 0;
    for (int i = 0; b < count && *calm; ++b) {
      const int before = agains_;
      for (int row = 0; row < tile_.rows; row += kRows, ++i) {
        FlowStrip& next = strips_[i % 2];
        next.block = &blocks[b];
        next.row = row;
        last == nullptr ? First(next) : Advance(next, *last);
        last = &next;
      }
      *calm = 4 * kRows * (agains_ - before) <= tile_.rows;
    }
    Last(*last);
    return b;
  }

 private:
  static constexpr int kRows = FlowStrip::kRows, kSteps = kFlowSteps;
  // Pauses are after every two products; a step has 32 rows to weigh.
  static constexpr int kAtPause = 4 / DIMS;

  inline __attribute__((always_inline)) void WeighSome() {
    Unroll<kAtPause>([&](int) __attribute__((always_inline)) { place_.WeighRow(scale_); });
  }
  void WeighNext(FlowStrip& strip, int step) {
    place_ = {&strip, products_.ScoresOf(step, 0).first,
              strip.weights + step * 2 * FlowStrip::kWeightChunk, 0};
  }

  // The strip once more, and its state. Tiles are free.
  __attribute__((noinline)) void DoAgain(FlowStrip& strip) {
    ++agains_;
    again_.Place(tile_, *strip.block, strip.row);
    ScoreStrip<Whole>(tile_, again_, NoWork());
    for (int r = 0; r < kRows; ++r) again_.FindLargest(tile_, r);
    again_.Begin(tile_, /*first=*/false);
    WeighPlace place{again_.scores, 0, again_.chunks};
    while (place.chunks > 0) again_.WeighFourAt<Whole>(place, scale_);
    again_.End(tile_);
    TileBlock of = tile_;
    of.group_begin = strip.block->group_begin;
    of.group_end = strip.block->group_end;
    ScaleSums(of, strip.row, MinInt(tile_.rows, strip.row + kRows), again_.alphas);
    strip.left = reinterpret_cast<const Bf16*>(again_.scores);
    strip.left_chunk = 2 * FlowStrip::kWeightChunk;
    Fence();
  }

  // Step 0 ends with the end of the strip before, whose scores have been weighed by then.
  __attribute__((flatten)) void Advance(FlowStrip& next, FlowStrip& last) {
    const auto weigh = [&]() __attribute__((always_inline)) { WeighSome(); };
#pragma GCC unroll 1
    for (int step = 0; step < kSteps; ++step) {
      Fence();
      products_.Score(next, step, products_.Sums(), weigh);
      Fence();
      const Product scores = products_.ScoresOf(step, 1);
      if (step == 0) {
        if (__builtin_expect(!last.End(tile_), 0)) {
          StoreFourTiles(scores);
          DoAgain(last);
          LoadFourTiles(scores);
        }
        next.Begin(tile_);
      }
      WeighNext(next, step);
      Fence();
      products_.Add(last, step, scores, weigh);
    }
    Fence();
  }
  __attribute__((noinline)) void First(FlowStrip& next) {
    next.Begin(tile_);
    for (int step = 0; step < kSteps; ++step) {
      Fence();
      products_.Score(next, step, Product(), NoWork());
      StoreFourTiles(products_.ScoresOf(step, 1));
      WeighNext(next, step);
      while (place_.row < (step + 1 < kSteps ? kRows : kTile)) place_.WeighRow(scale_);
    }
  }
  __attribute__((noinline)) void Last(FlowStrip& last) {
    while (place_.row < kRows) place_.WeighRow(scale_);
    if (products_.Sums().first != nullptr) StoreFourTiles(products_.Sums());
    if (!last.End(tile_)) DoAgain(last);
    for (int step = 0; step < kSteps; ++step) {
      Fence();
      products_.Add(last, step, Product(), NoWork());
      StoreFourTiles(products_.Sums());
    }
  }

  const TileBlock& tile_;
  FlowProducts<DIMS> products_;
  const __m512 scale_;
  FlowStrip strips_[2];
  Strip<2> again_;
  FlowPlace place_;
  int agains_ = 0;
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_FLOW_H_
