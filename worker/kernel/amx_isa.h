#ifndef ANNULUS_WORKER_KERNEL_AMX_ISA_H_
#define ANNULUS_WORKER_KERNEL_AMX_ISA_H_

#include <immintrin.h>

#include "worker/kernel/amx_blocks.h"
#include "worker/kernel/amx_formats.h"
#include "worker/kernel/amx_packing.h"
#include "worker/kernel/amx_row.h"
#include "worker/kernel/amx_softmax.h"
#include "worker/kernel/amx_values.h"
#include "worker/kernel/finish_amx.h"
#include "worker/kernel/tile_functions.h"
#include "worker/kernel/vector_avx512.h"

// The table of one type of numbers as AMX takes them. Each is compiled by itself, since each takes
// the compiler minutes under a sanitizer.

namespace annulus {

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

// Numbers that are as good in fp32.
template <class FORMAT>
constexpr TileIsa MakeWithRows() {
  TileIsa isa = MakeAmxIsa<FORMAT>();
  isa.attend_rows = AttendRowsAvx512;
  isa.few_slots = kFewSlots / 2;  // Tiles multiply faster.
  return isa;
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_ISA_H_
