#ifndef ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_STREAMING_PIPELINE_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_STREAMING_PIPELINE_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/amx/amx_products-inl.h"
#include "worker/kernel/cpu/amx/amx_scores-inl.h"
#include "worker/kernel/cpu/amx/amx_values-inl.h"
#include "worker/kernel/cpu/isa/bf16_formats-inl.h"
#include "worker/kernel/cpu/isa/bf16_softmax-inl.h"

// The streaming pipeline of bf16 on AMX, for blocks without masks. Compiled for AMX and included by
// amx_isa-inl.h. Start at StreamingPipeline::Run; the row block in flight is StreamingRowBlock, the
// products of a step are StreamingProducts.
namespace annulus {

// A row block in the streaming pipeline, and the softmax of its rows.

namespace {

// The limit for a row's sum of weights. A score above its row's maximum by more than Whole::kSlack
// weighs more than this, however it is rounded. 256 scores equal to the maximum weigh less.
constexpr float kMostWeight = 512;

struct StreamingRowBlock {
  static constexpr int kRows = 2 * kTile;
  // bf16 numbers from the weights of 32 keys to the next 32.
  static constexpr int kWeightChunk = kRows * kChunk;

  const PackedBlock* block = nullptr;
  int row = 0;
  Bf16* weights = nullptr;  // [32 keys][row][key]; room for a row block.
  // The weights to use in Add, and the bf16 numbers from 32 keys to the next 32.
  const Bf16* left = nullptr;
  int64_t left_chunk = 0;
  __mmask16 there[2];
  alignas(64) float references[kRows];
  alignas(64) float sums[kRows][kTile];

  // Starts a block. Requires: all rows have seen a key.
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

  // Adds the rows' weights to their state. Returns false, and changes nothing, if some row's
  // maximum may not stay.
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

// Scores of a row block's rows and 64 keys, [16 keys][row][key]. `row` is the next row to weigh.
struct StreamingPlace {
  static constexpr int kChunkFloats = StreamingRowBlock::kRows * kTile;

  StreamingRowBlock* row_block = nullptr;
  float* scores = nullptr;
  Bf16* weights = nullptr;  // The weights of these keys.
  int row = 0;

  inline __attribute__((always_inline)) void WeighRow(__m512 scale) {
    const int of = row++;
    const auto take = [&](int, int c, __m512 first, __m512 second) {
      Whole::StoreWeights(first, second,
                          weights + of * kChunk + c / 2 * StreamingRowBlock::kWeightChunk, 0);
    };
    const Weighing<Whole> weighing{scale, _mm512_set1_ps(row_block->references[of])};
    const __m512 more = WeighFour(ScoreView<kTile, kChunkFloats>{scores}, of, 0, 4, weighing, take);
    float* sum = row_block->sums[of];
    _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), more));
  }
};

}  // namespace

// The products of a step of the streaming pipeline. The scores of two steps are in the tile's score
// buffer.

namespace {

constexpr int kStreamingSteps = 4;  // Steps of a row block.
constexpr int kStreamingFloats =
    StreamingRowBlock::kRows * kKeyBlock / kStreamingSteps;  // Scores of a step.

// DIMS: chunks of 32 dimensions, of queries and of values.
template <int DIMS>
class StreamingProducts {
 public:
  explicit StreamingProducts(const TileBlock& tile) : tile_(tile) {}

  // The destination of the scores of 32 keys: the first or the second half of a step.
  Product ScoresOf(int step, int half) const {
    return {tile_.scores + (step % 2) * kStreamingFloats + half * (kStreamingFloats / 2), kTile,
            StreamingPlace::kChunkFloats, kTile * kTile};
  }
  // The sums that are in the tiles when a step ends, if any.
  Product Sums() const { return SumsAt(sums_); }

  // Computes the step's scores; the last of them stay in the tiles. The earlier content of the
  // tiles goes to `to`.
  template <class Work>
  inline __attribute__((always_inline)) void Score(const StreamingRowBlock& row_block, int step,
                                                   const Product& to, const Work& work) {
    const Bf16* left =
        reinterpret_cast<const Bf16*>(tile_.queries) + row_block.row / kTile * kGroup;
    const Bf16* right = reinterpret_cast<const Bf16*>(row_block.block->keys) + step * 4 * kGroup;
    ScoreHalf(left, right, to, work);
    ScoreHalf(left, right + 2 * kGroup, ScoresOf(step, 0), work);
  }

  // Adds a quarter of the row block's weights times values: 32 columns of values, or those of a
  // part of the keys. The sums stay in the tiles. The earlier content of the tiles goes to `to`.
  template <class Work>
  inline __attribute__((always_inline)) void Add(const StreamingRowBlock& row_block, int step,
                                                 const Product& to, const Work& work) {
    constexpr int kParts = kStreamingSteps / DIMS, kPart = kKeyChunks / kParts;
    constexpr int64_t kBeside = kKeyChunks * kTileNumbers;
    const int column = step / kParts, chunk = step % kParts * kPart;
    const Bf16* left = row_block.left + chunk * row_block.left_chunk;
    const Bf16* right = reinterpret_cast<const Bf16*>(row_block.block->values) +
                        column * 2 * kBeside + chunk * kTileNumbers;
    sums_ = tile_.sums + int64_t{row_block.row} * tile_.sum_stride + column * kChunk;
    const Product sums = SumsAt(sums_);
    MultiplyFourTiles<true>(left, kTileNumbers, right, kBeside, to, sums, work);
    Unroll<kPart - 1>([&](int) __attribute__((always_inline)) {
      left += row_block.left_chunk;
      right += kTileNumbers;
      MultiplyFourTiles<false>(left, kTileNumbers, right, kBeside, to, sums, work);
    });
  }

 private:
  static constexpr int64_t kGroup = int64_t{DIMS} * kTileNumbers;  // Numbers of 16 rows or keys.

  // Sums of 32 rows and columns from `first` on.
  Product SumsAt(float* first) const {
    return {first, tile_.sum_stride, kTile, kTile * tile_.sum_stride};
  }

  // The scores of 32 keys.
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

// Serves row blocks against blocks without masks whose rows' maxima stay, as most do after the
// first block. Scores become weights at once, 64 keys at a time, so that they never leave the L1
// cache. Within a row, the operations and their order are those of the three-stage pipeline
// (amx_three_stage_pipeline-inl.h).
//
// A row block takes four steps. In each:
// - 32 rows are multiplied with 64 keys to scores.
// - A quarter of the values is multiplied with the weights of the row block before, and added to
//   its sums.
// - Between products of tiles, the vector units turn scores into weights: those of the step before,
//   then the step's own.
//
// A row whose weights add up to more than kMostWeight may have a score above its bound. Its row
// block is then computed again, scores first.

namespace {

// DIMS: chunks of 32 dimensions, of queries and of values.
template <int DIMS>
class StreamingPipeline {
 public:
  static bool Serves(const TileBlock& tile) {
    return tile.slack == Whole::kSlack && tile.rows > kTile && Chunks(tile.head_dim) == DIMS &&
           tile.value_dim == DIMS * kChunk;
  }

  // Requires: all rows of the tile have seen a score that is a number.
  explicit StreamingPipeline(const TileBlock& tile)
      : tile_(tile), products_(tile), scale_(_mm512_set1_ps(tile.softmax_scale)) {
    constexpr int kRowBlockFloats = kRows * kKeyBlock;
    float* free = tile.scores + 2 * kStreamingFloats;
    for (int i = 0; i < 2; ++i, free += kRowBlockFloats / 2)
      row_blocks_[i].weights = reinterpret_cast<Bf16*>(free);
    again_.scores = free;
  }

  // Attends to blocks without masks and returns their number. It ends early, and sets `calm` to
  // false, after a block in which more than a fourth of all row blocks had to be computed again.
  int Run(const PackedBlock* blocks, int count, bool* calm) {
    StreamingRowBlock* last = nullptr;
    int b = 0;
    for (int i = 0; b < count && *calm; ++b) {
      const int before = agains_;
      for (int row = 0; row < tile_.rows; row += kRows, ++i) {
        StreamingRowBlock& next = row_blocks_[i % 2];
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
  static constexpr int kRows = StreamingRowBlock::kRows, kSteps = kStreamingSteps;
  // A pause comes after every two products; a step has 32 rows to weigh.
  static constexpr int kAtPause = 4 / DIMS;

  inline __attribute__((always_inline)) void WeighSome() {
    Unroll<kAtPause>([&](int) __attribute__((always_inline)) { place_.WeighRow(scale_); });
  }
  void WeighNext(StreamingRowBlock& row_block, int step) {
    place_ = {&row_block, products_.ScoresOf(step, 0).first,
              row_block.weights + step * 2 * StreamingRowBlock::kWeightChunk, 0};
  }

  // Computes the row block again, with its state. Requires: the tiles are free.
  __attribute__((noinline)) void DoAgain(StreamingRowBlock& row_block) {
    ++agains_;
    again_.Place(tile_, *row_block.block, row_block.row);
    ScoreRowBlock<Whole>(tile_, again_, NoWork());
    for (int r = 0; r < kRows; ++r) again_.FindLargest(tile_, r);
    again_.Begin(tile_, /*first=*/false);
    WeighPlace place{again_.scores, 0, again_.chunks};
    while (place.chunks > 0) again_.WeighFourAt<Whole>(place, scale_);
    again_.End(tile_);
    TileBlock of = tile_;
    of.group_begin = row_block.block->group_begin;
    of.group_end = row_block.block->group_end;
    ScaleSums(of, row_block.row, MinInt(tile_.rows, row_block.row + kRows), again_.alphas);
    row_block.left = reinterpret_cast<const Bf16*>(again_.scores);
    row_block.left_chunk = 2 * StreamingRowBlock::kWeightChunk;
    Fence();
  }

  // Step 0 ends the row block before: all its scores are weights by then.
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
  StreamingRowBlock row_blocks_[2];
  RowBlock<2> again_;
  StreamingPlace place_;
  int agains_ = 0;
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_STREAMING_PIPELINE_INL_H_
