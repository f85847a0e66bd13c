// Types as AMX takes them: compiled for it, and called only after the CPU has been asked
// (isa_dispatch.h).
#include <immintrin.h>

#include "worker/kernel/amx_formats.h"
#include "worker/kernel/amx_packing.h"
#include "worker/kernel/amx_softmax.h"
#include "worker/kernel/amx_values.h"
#include "worker/kernel/tile_functions.h"
#include "worker/kernel/vector_avx512.h"

namespace annulus {
namespace {

// A strip of rows against the whole block. Its scores lie tile by tile, [key chunk][row][16 keys],
// 32 KiB that stay in the first cache, and its weights, rounded, in the first half of each pair of
// tiles, low parts in the second: the same operations as one after the other, with less way between
// them.
template <class FORMAT, int ROWS>
void AttendRows(const TileBlock& tile, int row) {
  constexpr int kTileFloats = kTile * kTile;
  constexpr int kChunkFloats = ROWS * kTileFloats;
  constexpr int kNumbersOfFloat = sizeof(float) / sizeof(Bf16);
  Operands of = QueriesAndKeys<FORMAT>(tile, row);
  for (int key = 0; key < kKeyBlock; key += 2 * kTile) {
    of.right = KeysFrom<FORMAT>(tile, key);
    Multiply<ROWS, 2, FORMAT::kScoreProducts>(
        of, {tile.scores + key / kTile * kChunkFloats, kTile, kChunkFloats, kTileFloats});
  }
  for (int i = 0; i < ROWS; ++i) {
    const ScoreView view{tile.scores + i * kTileFloats, kTile, kChunkFloats};
    __m512 even = _mm512_setzero_ps();
    SoftmaxRows(
        tile, row + i * kTile, MinInt(kTile, tile.rows - row - i * kTile), view,
        [](int) { return ChunkSpan(); },
        [&](int r, int c, __m512 p) {
          if (c % 2 == 0) {
            even = p;
          } else {
            FORMAT::StoreWeights(even, p, reinterpret_cast<Bf16*>(view.At(r, c - 1)),
                                 kChunkFloats * kNumbersOfFloat);
          }
        });
  }
  Fence();
  Operands weights;
  weights.left = reinterpret_cast<const Bf16*>(tile.scores);
  weights.left_stride = kChunk * sizeof(Bf16);
  weights.left_low = kChunkFloats * kNumbersOfFloat;
  weights.left_chunk = 2 * weights.left_low;
  weights.left_below = kTileNumbers;
  weights.chunks = kKeyChunks;
  AddAllColumns<FORMAT, ROWS>(tile, row, 0, weights);
}

template <class FORMAT>
void AttendAmx(const TileBlock& tile) {
  if (FORMAT::HasInfinities(tile)) {
    ScoreAmx<FORMAT>(tile);
    SoftmaxAmx(tile);
    return AccumulateAmx<FORMAT>(tile);
  }
  const TileUse use;
  Fence();
  for (int row = 0; row < tile.rows; row += 2 * kTile) {
    tile.rows - row > kTile ? AttendRows<FORMAT, 2>(tile, row) : AttendRows<FORMAT, 1>(tile, row);
  }
}

template <class FORMAT>
constexpr TileIsa MakeAmxIsa() {
  TileIsa isa = {};
  isa.name = "amx";
  isa.lanes = Avx512::kLanes;
  isa.panel = kPanel<Avx512>;
  isa.parts = FORMAT::kParts;
  isa.pack_keys = FORMAT::kParts == 1 ? PackKeysAmx : PackKeysSplit;
  isa.pack_values = FORMAT::kParts == 1 ? PackValuesAmx : PackValuesSplit;
  isa.pack_queries = FORMAT::kParts == 1 ? PackQueriesAmx : PackQueriesSplit;
  isa.score = ScoreAmx<FORMAT>;
  isa.change_scores = ChangeScores<Avx512>;
  isa.softmax = SoftmaxAmx;
  isa.drop_weights = DropWeights<Avx512>;
  isa.accumulate = AccumulateAmx<FORMAT>;
  isa.accumulate_row = AccumulateRowAmx<FORMAT>;
  isa.attend = AttendAmx<FORMAT>;
  return isa;
}

constexpr TileIsa kFp16 = MakeAmxIsa<Split<4>>();
constexpr TileIsa kBf16x3 = MakeAmxIsa<Split<3>>();

constexpr TileIsa MakeBf16() {
  TileIsa isa = MakeAmxIsa<Whole>();
  isa.fp32 = &kAvx512Isa;
  isa.fp16 = &kFp16;
  isa.bf16x3 = &kBf16x3;
  return isa;
}

}  // namespace

const TileIsa kAmxIsa = MakeBf16();

}  // namespace annulus
