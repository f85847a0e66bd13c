#ifndef ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_ISA_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_ISA_INL_H_

#include <immintrin.h>

#include <limits>

#include "worker/kernel/cpu/amx/amx_streaming_pipeline-inl.h"
#include "worker/kernel/cpu/amx/amx_three_stage_pipeline-inl.h"
#include "worker/kernel/cpu/amx/amx_values-inl.h"
#include "worker/kernel/cpu/isa/bf16_finish-inl.h"
#include "worker/kernel/cpu/isa/bf16_formats-inl.h"
#include "worker/kernel/cpu/isa/bf16_packing-inl.h"
#include "worker/kernel/cpu/isa/bf16_softmax-inl.h"
#include "worker/kernel/cpu/isa/tile_functions-inl.h"
#include "worker/kernel/cpu/isa/vector_avx512-inl.h"

// The TileIsa table of the AMX path, and the choice of its pipeline. Compiled for AMX and included
// by tile_amx.cc, tile_amx_fp16.cc and tile_amx_bf16x3.cc, one for each format. Start at
// MakeAmxIsa, then AttendAmx and AttendBlocks.
namespace annulus {

// Weights times values of one row, for blocks with NaN or infinite values.

namespace {

// Puts the row alone in a tile of zeros, and uses only the values that it sees. The sums and their
// order are the same, because the other values would be multiplied by zero.
template <class FORMAT>
void AccumulateRowAmx(const TileBlock& row, const KeySpan* spans, int count) {
  const TileUse use;
  constexpr int kParts = FORMAT::kParts;
  alignas(64) Bf16 weights[kTile][kKeyBlock * kParts] = {};
  alignas(64) Bf16 seen[kKeyBlock] = {};
  for (int i = 0; i < count; ++i) {
    for (int key = spans[i].begin; key < spans[i].end; ++key) seen[FORMAT::PlaceOf(key)] = 0xffff;
  }
  const int first = spans[0].begin / kChunk;
  const int chunks = (spans[count - 1].end + kChunk - 1) / kChunk - first;
  const auto keep_seen = [](Bf16* at, __m512i mask) {
    _mm512_storeu_si512(at, _mm512_and_si512(_mm512_loadu_si512(at), mask));
  };
  for (int key = first * kChunk; key < (first + chunks) * kChunk; key += kChunk) {
    Bf16* to = &weights[0][key * kParts];
    RoundWeights<FORMAT>(row.scores, key, 0, kKeyBlock, to, kChunk);
    for (int p = 0; p < kParts; ++p) keep_seen(to + p * kChunk, _mm512_loadu_si512(seen + key));
  }
  alignas(64) Bf16 values[kKeyChunks][kParts * kTileNumbers];
  const __m512 alpha = _mm512_set1_ps(*row.alpha);
  for (int column = 0; column < row.value_dim; column += kTile) {
    const float* from = row.values + column / kTile * (sizeof(values) / sizeof(float));
    __builtin_memcpy(values, from, sizeof(values));
    for (int pair = first * kTile; pair < (first + chunks) * kTile; ++pair) {
      int mask;
      __builtin_memcpy(&mask, seen + 2 * pair, sizeof(mask));
      Bf16* to = values[pair / kTile] + pair % kTile * kChunk;
      for (int p = 0; p < kParts; ++p) keep_seen(to + p * kTileNumbers, _mm512_set1_epi32(mask));
    }
    Fence();
    alignas(64) float block[kTile * kTile];
    Operands of;
    of.left_chunk = kParts * kChunk;
    of.left = &weights[0][first * kChunk * kParts];
    of.left_stride = sizeof(weights[0]);
    of.left_low = kChunk;
    of.right = values[first];
    of.chunks = chunks;
    const Product out{block, kTile, 0, 0};
    Products<1, FORMAT::kValueProducts> products;
    float* sums = row.sums + column;
    if (FORMAT::kInPlace) {
      _mm512_store_ps(block, _mm512_mul_ps(_mm512_loadu_ps(sums), alpha));
      Fence();
      products.template Multiply<1, Start::kOut>(of, out, NoWork());
      products.Finish();
      _mm512_storeu_ps(sums, _mm512_load_ps(block));
      continue;
    }
    products.template Multiply<1, Start::kZero>(of, out, NoWork());
    products.Finish();
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_loadu_ps(sums), alpha, _mm512_load_ps(block)));
  }
}

}  // namespace

// The choice of the pipeline for each block; the bits are the same for all.

namespace {

// True if every row has seen a score that is a number.
inline bool AllRowsHaveKeys(const TileBlock& tile) {
  for (int row = 0; row < tile.rows; ++row) {
    if (!(__builtin_fabsf(tile.max[row]) < std::numeric_limits<float>::max())) return false;
  }
  return true;
}

// Blocks without masks go to the streaming pipeline, unless maxima rise. Others go to the
// three-stage pipeline.
template <class FLOW>
void AttendInTurn(const TileBlock& tile, const PackedBlock* blocks, int count,
                  BegunRowBlocks* begun) {
  bool calm = AllRowsHaveKeys(tile);
  const auto alike = [&](int done) {
    int next = done;
    while (next < count &&
           (blocks[next].row_begin == nullptr) == (blocks[done].row_begin == nullptr))
      ++next;
    return next - done;
  };
  for (int done = 0; done < count;) {
    const bool whole = blocks[done].row_begin == nullptr;
    if (whole && calm) {
      done += FLOW(tile).Run(blocks + done, alike(done), &calm);
      continue;
    }
    const int some = whole ? 1 : alike(done);
    calm =
        ThreeStagePipeline<Whole, 2>(tile, begun).Run(blocks + done, some) && AllRowsHaveKeys(tile);
    done += some;
  }
}

template <class FORMAT>
void AttendBlocks(const TileBlock& tile, const PackedBlock* blocks, int count) {
  const TileUse use;
  BegunRowBlocks begun;
  if (tile.rows <= kTile) {
    ThreeStagePipeline<FORMAT, 1>(tile, &begun).Run(blocks, count);
  } else if (FORMAT::kSlack > 0 && StreamingPipeline<4>::Serves(tile)) {
    AttendInTurn<StreamingPipeline<4>>(tile, blocks, count, &begun);
  } else if (FORMAT::kSlack > 0 && StreamingPipeline<2>::Serves(tile)) {
    AttendInTurn<StreamingPipeline<2>>(tile, blocks, count, &begun);
  } else {
    ThreeStagePipeline<FORMAT, 2>(tile, &begun).Run(blocks, count);
  }
}

}  // namespace

// The table of one number format. Each format is a translation unit of its own, since each takes
// the compiler minutes under a sanitizer.

extern const TileIsa kAmxFp16Isa, kAmxBf16x3Isa;

namespace {

template <class FORMAT>
int AttendAmx(const TileBlock& tile, const PackedBlock* blocks, int count) {
  TileBlock of = tile;
  int done = 0;
  for (; done < count; ++done) {
    of.keys = blocks[done].keys;
    if (FORMAT::HasInfinities(of)) break;
  }
  if (done > 0) AttendBlocks<FORMAT>(tile, blocks, done);
  return done;
}

template <class FORMAT>
constexpr TileIsa MakeAmxIsa() {
  TileIsa isa = {};
  isa.name = "amx";
  isa.lanes = Avx512::kLanes;
  isa.panel = kPanel<Avx512>;
  isa.tiles = kMostTiles;
  isa.parts = FORMAT::kParts;
  isa.slack = FORMAT::kSlack;
  isa.pack_keys = FORMAT::kParts == 1 ? PackKeyPairs<kTile> : PackKeysSplit;
  isa.pack_values = FORMAT::kParts == 1 ? PackValuePairs<kTile> : PackValuesSplit;
  isa.pack_queries = FORMAT::kParts == 1 ? PackQueriesAmx : PackQueriesSplit;
  isa.score = ScoreAmx<FORMAT>;
  isa.change_scores = ChangeScores<Avx512>;
  isa.softmax = SoftmaxAmx<FORMAT>;
  isa.drop_weights = DropWeights<Avx512>;
  isa.accumulate = AccumulateAmx<FORMAT>;
  isa.accumulate_row = AccumulateRowAmx<FORMAT>;
  isa.attend = AttendAmx<FORMAT>;
  isa.finish_row = FinishRowAmx;
  return isa;
}

// For formats whose unpacked path in fp32 is as exact.
template <class FORMAT>
constexpr TileIsa MakeWithRows() {
  TileIsa isa = MakeAmxIsa<FORMAT>();
  isa.attend_rows = AttendRowsAvx512;
  isa.few_slots = kFewSlots / 2;  // AMX tiles multiply faster.
  return isa;
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_ISA_INL_H_
