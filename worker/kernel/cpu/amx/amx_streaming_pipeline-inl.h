#ifndef ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_STREAMING_PIPELINE_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_STREAMING_PIPELINE_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/amx/amx_products-inl.h"
#include "worker/kernel/cpu/amx/amx_scores-inl.h"
#include "worker/kernel/cpu/amx/amx_values-inl.h"
#include "worker/kernel/cpu/isa/bf16_formats-inl.h"
#include "worker/kernel/cpu/isa/bf16_softmax-inl.h"

namespace annulus {

// A strip on its way through the flow (amx_streaming_pipeline-inl.h), and the softmax of its rows.

namespace {

// A score above its row's maximum by more than Whole::kSlack weighs more than this, however it is
// rounded; 256 that equal the maximum do not.
constexpr float kMostWeight = 512;

struct StreamingRowBlock {
  static constexpr int kRows = 2 * kTile;
  static constexpr int kWeightChunk = kRows * kChunk;  // Numbers from 32 keys to the next.

  const PackedBlock* block = nullptr;
  int row = 0;
  Bf16* weights = nullptr;  // [32 keys][row][key], room for a strip.
  // The weights that count, and numbers from 32 keys to the next.
  const Bf16* left = nullptr;
  int64_t left_chunk = 0;
  __mmask16 there[2];
  alignas(64) float references[kRows];
  alignas(64) float sums[kRows][kTile];

  // All rows have seen a key.
  void Begin(const TileBlock& tile) {
    left = weights;
    left_chunk = kWeightChunk;
    for (int i = 0; i < 2; ++i) {
      const int count = MinInt(kTile, tile.rows - row - i * kTile);
      there[i] = static_cast<__mmask16>(count > 0 ? (1u << count) - 1 : 0);
      _mm512_store_ps(references + i * kTile,
                      _mm512_maskz_loadu_ps(there[i], tile.max + row + i * kTile));
    }
    for (float* sum : sums) _mm512_store_ps(sum, _mm512_setzero_ps());
  }

  // Adds what the rows weigh to their states; false, and nothing done, when some row's maximum may
  // not stay.
  bool End(const TileBlock& tile) const {
    __m512 of_rows[2];
    __mmask16 above = 0;
    for (int i = 0; i < 2; ++i) {
      of_rows[i] = SumsOf(sums + i * kTile);
      above |=
          _mm512_mask_cmp_ps_mask(there[i], of_rows[i], _mm512_set1_ps(kMostWeight), _CMP_NLE_UQ);
    }
    if (above != 0) return false;
    for (int i = 0; i < 2; ++i) {
      float* at = tile.weight + row + i * kTile;
      const __m512 old = _mm512_maskz_loadu_ps(there[i], at);
      _mm512_mask_storeu_ps(at, there[i], _mm512_add_ps(old, of_rows[i]));
    }
    return true;
  }
};

// Scores of a strip's rows and 64 keys, [16 keys][row][key], of which `row` is weighed next.
struct StreamingPlace {
  static constexpr int kChunkFloats = StreamingRowBlock::kRows * kTile;

  StreamingRowBlock* strip = nullptr;
  float* scores = nullptr;
  Bf16* weights = nullptr;  // Of these keys.
  int row = 0;

  inline __attribute__((always_inline)) void WeighRow(__m512 scale) {
    const int of = row++;
    const auto take = [&](int, int c, __m512 first, __m512 second) {
      Whole::StoreWeights(first, second,
                          weights + of * kChunk + c / 2 * StreamingRowBlock::kWeightChunk, 0);
    };
    const Weighing<Whole> weighing{scale, _mm512_set1_ps(strip->references[of])};
    const __m512 more = WeighFour(ScoreView<kTile, kChunkFloats>{scores}, of, 0, 4, weighing, take);
    float* sum = strip->sums[of];
    _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), more));
  }
};

}  // namespace

// The products of a step of the flow (amx_streaming_pipeline-inl.h). Scores of two steps lie at the
// tile's scores.

namespace {

constexpr int kFlowSteps = 4;                                                   // Of a strip.
constexpr int kFlowFloats = StreamingRowBlock::kRows * kKeyBlock / kFlowSteps;  // Scores of a step.

// DIMS chunks of 32 dimensions, of queries and of values.
template <int DIMS>
class StreamingProducts {
 public:
  explicit StreamingProducts(const TileBlock& tile) : tile_(tile) {}

  // Where scores of 32 keys go: the first or the second of a step.
  Product ScoresOf(int step, int half) const {
    return {tile_.scores + (step % 2) * kFlowFloats + half * (kFlowFloats / 2), kTile,
            StreamingPlace::kChunkFloats, kTile * kTile};
  }
  // The sums that the tiles hold when a step ends, if any.
  Product Sums() const { return SumsAt(sums_); }

  // The step's scores; the last of them stay in the tiles. What these held goes to `to`.
  template <class Work>
  inline __attribute__((always_inline)) void Score(const StreamingRowBlock& strip, int step,
                                                   const Product& to, const Work& work) {
    const Bf16* left = reinterpret_cast<const Bf16*>(tile_.queries) + strip.row / kTile * kGroup;
    const Bf16* right = reinterpret_cast<const Bf16*>(strip.block->keys) + step * 4 * kGroup;
    ScoreHalf(left, right, to, work);
    ScoreHalf(left, right + 2 * kGroup, ScoresOf(step, 0), work);
  }

  // A quarter of what the strip's sums take: 32 columns of values, or those of a part of the keys.
  // The sums stay in the tiles. What these held goes to `to`.
  template <class Work>
  inline __attribute__((always_inline)) void Add(const StreamingRowBlock& strip, int step,
                                                 const Product& to, const Work& work) {
    constexpr int kParts = kFlowSteps / DIMS, kPart = kKeyChunks / kParts;
    constexpr int64_t kBeside = kKeyChunks * kTileNumbers;
    const int column = step / kParts, chunk = step % kParts * kPart;
    const Bf16* left = strip.left + chunk * strip.left_chunk;
    const Bf16* right = reinterpret_cast<const Bf16*>(strip.block->values) + column * 2 * kBeside +
                        chunk * kTileNumbers;
    sums_ = tile_.sums + int64_t{strip.row} * tile_.sum_stride + column * kChunk;
    const Product sums = SumsAt(sums_);
    MultiplyFourTiles<true>(left, kTileNumbers, right, kBeside, to, sums, work);
    Unroll<kPart - 1>([&](int) __attribute__((always_inline)) {
      left += strip.left_chunk;
      right += kTileNumbers;
      MultiplyFourTiles<false>(left, kTileNumbers, right, kBeside, to, sums, work);
    });
  }

 private:
  static constexpr int64_t kGroup = int64_t{DIMS} * kTileNumbers;  // Of 16 rows or keys.

  // Sums of 32 rows and columns from `first` on.
  Product SumsAt(float* first) const {
    return {first, tile_.sum_stride, kTile, kTile * tile_.sum_stride};
  }

  // Scores of 32 keys.
  template <class Work>
  static inline __attribute__((always_inline)) void ScoreHalf(const Bf16* left, const Bf16* right,
                                                              const Product& to, const Work& work) {
    const Product zero{const_cast<float*>(kZeros), kTile, 0, 0};
    MultiplyFourTiles<true>(left, kGroup, right, kGroup, to, zero, work);
    Unroll<DIMS - 1>([&](int c) __attribute__((always_inline)) {
      const int64_t at = (c + 1) * kTileNumbers;
      MultiplyFourTiles<false>(left + at, kGroup, right + at, kGroup, to, zero, work);
    });
  }

  const TileBlock& tile_;
  float* sums_ = nullptr;
};

}  // namespace

// RowBlocks of whole blocks whose rows' maxima stay, as most do after the first block: scores are
// weighed as soon as they are there, 64 keys at a time, so that they never leave the first cache.
// The same operations as in AMX's other stages (amx_three_stage_pipeline-inl.h), in the same order
// within a row.
//
// A strip takes four steps. In each, 32 rows are multiplied with 64 keys to scores, then a quarter
// of the values with the weights of the strip before to sums; between products of tiles, the scores
// of the step before and then the step's own are weighed. A row whose weights add up to more than
// kMostWeight may have a score above its bound: its strip is done again, scores first.

namespace {

// DIMS chunks of 32 dimensions, of queries and of values.
template <int DIMS>
class StreamingPipeline {
 public:
  static bool Serves(const TileBlock& tile) {
    return tile.slack == Whole::kSlack && tile.rows > kTile && Chunks(tile.head_dim) == DIMS &&
           tile.value_dim == DIMS * kChunk;
  }

  // All rows of the tile have seen a score that is a number.
  explicit StreamingPipeline(const TileBlock& tile)
      : tile_(tile), products_(tile), scale_(_mm512_set1_ps(tile.softmax_scale)) {
    constexpr int kRowBlockFloats = kRows * kKeyBlock;
    float* free = tile.scores + 2 * kFlowFloats;
    for (int i = 0; i < 2; ++i, free += kRowBlockFloats / 2)
      strips_[i].weights = reinterpret_cast<Bf16*>(free);
    again_.scores = free;
  }

  // Attends to blocks without a mask; returns to how many: after one in which a fourth of all
  // strips had to be done again it ends early, and `calm` is set to false.
  int Run(const PackedBlock* blocks, int count, bool* calm) {
    StreamingRowBlock* last = nullptr;
    int b = 0;
    for (int i = 0; b < count && *calm; ++b) {
      const int before = agains_;
      for (int row = 0; row < tile_.rows; row += kRows, ++i) {
        StreamingRowBlock& next = strips_[i % 2];
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
  static constexpr int kRows = StreamingRowBlock::kRows, kSteps = kFlowSteps;
  // Pauses are after every two products; a step has 32 rows to weigh.
  static constexpr int kAtPause = 4 / DIMS;

  inline __attribute__((always_inline)) void WeighSome() {
    Unroll<kAtPause>([&](int) __attribute__((always_inline)) { place_.WeighRow(scale_); });
  }
  void WeighNext(StreamingRowBlock& strip, int step) {
    place_ = {&strip, products_.ScoresOf(step, 0).first,
              strip.weights + step * 2 * StreamingRowBlock::kWeightChunk, 0};
  }

  // The strip once more, and its state. Tiles are free.
  __attribute__((noinline)) void DoAgain(StreamingRowBlock& strip) {
    ++agains_;
    again_.Place(tile_, *strip.block, strip.row);
    ScoreRowBlock<Whole>(tile_, again_, NoWork());
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
    strip.left_chunk = 2 * StreamingRowBlock::kWeightChunk;
    Fence();
  }

  // Step 0 ends with the end of the strip before, whose scores have been weighed by then.
  __attribute__((flatten)) void Advance(StreamingRowBlock& next, StreamingRowBlock& last) {
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
  __attribute__((noinline)) void First(StreamingRowBlock& next) {
    next.Begin(tile_);
    for (int step = 0; step < kSteps; ++step) {
      Fence();
      products_.Score(next, step, Product(), NoWork());
      StoreFourTiles(products_.ScoresOf(step, 1));
      WeighNext(next, step);
      while (place_.row < (step + 1 < kSteps ? kRows : kTile)) place_.WeighRow(scale_);
    }
  }
  __attribute__((noinline)) void Last(StreamingRowBlock& last) {
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
  StreamingProducts<DIMS> products_;
  const __m512 scale_;
  StreamingRowBlock strips_[2];
  RowBlock<2> again_;
  StreamingPlace place_;
  int agains_ = 0;
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_STREAMING_PIPELINE_INL_H_
