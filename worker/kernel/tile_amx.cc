// Types as AMX takes them: compiled for it, and called only after the CPU has been asked
// (isa_dispatch.h).
#include <immintrin.h>

#include "worker/kernel/amx_attend.h"
#include "worker/kernel/amx_formats.h"
#include "worker/kernel/amx_packing.h"
#include "worker/kernel/amx_row.h"
#include "worker/kernel/amx_softmax.h"
#include "worker/kernel/amx_values.h"
#include "worker/kernel/tile_finish.h"
#include "worker/kernel/tile_functions.h"
#include "worker/kernel/vector_avx512.h"

namespace annulus {
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
  isa.finish_row = FinishRow;
  return isa;
}

// Numbers that are as good in fp32.
template <class FORMAT>
constexpr TileIsa MakeWithRows() {
  TileIsa isa = MakeAmxIsa<FORMAT>();
  isa.attend_rows = AttendRowsAvx512;
  isa.few_slots = kFewSlots;
  return isa;
}

constexpr TileIsa kFp16 = MakeWithRows<Split<4>>();
constexpr TileIsa kBf16x3 = MakeAmxIsa<Split<3>>();

constexpr TileIsa MakeBf16() {
  TileIsa isa = MakeWithRows<Whole>();
  isa.fp32 = &kAvx512Isa;
  isa.fp16 = &kFp16;
  isa.bf16x3 = &kBf16x3;
  return isa;
}

}  // namespace

const TileIsa kAmxIsa = MakeBf16();

}  // namespace annulus
