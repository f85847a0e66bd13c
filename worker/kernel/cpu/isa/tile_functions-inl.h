#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_FUNCTIONS_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_FUNCTIONS_INL_H_

#include "worker/kernel/cpu/isa/decode_rows-inl.h"
#include "worker/kernel/cpu/isa/gradient_functions-inl.h"
#include "worker/kernel/cpu/isa/score_modifiers-inl.h"
#include "worker/kernel/cpu/isa/tile_finish-inl.h"
#include "worker/kernel/cpu/isa/tile_packing-inl.h"
#include "worker/kernel/cpu/isa/tile_products-inl.h"
#include "worker/kernel/cpu/isa/tile_softmax-inl.h"
#include "worker/kernel/cpu/isa/vector-inl.h"

// Makes a TileIsa of fp32 loops from a vector type. Included by the tile_*.cc file of each
// instruction set and by amx_isa-inl.h. Start at MakeTileIsa: each member names its template.
namespace annulus {
namespace {

template <class V>
constexpr TileIsa MakeTileIsa(const char* name) {
  TileIsa isa = {};
  isa.name = name;
  isa.lanes = V::kLanes;
  isa.panel = kPanel<V>;
  isa.tiles = 1;
  isa.pack_keys = PackKeys<V>;
  isa.pack_values = PackValues<V>;
  isa.pack_queries = PackQueries<V>;
  isa.score = Score<V>;
  isa.change_scores = ChangeScores<V>;
  isa.softmax = Softmax<V>;
  isa.drop_weights = DropWeights<V>;
  isa.accumulate = Accumulate<V>;
  isa.accumulate_row = AccumulateRow<V>;
  if constexpr (V::kLanes == kUnpackedKeys) {
    isa.attend_rows = AttendRows<V>;
    isa.few_slots = kFewSlots;
  }
  isa.gradients = &kGradientIsa<V>;
  isa.finish_row = FinishRow;
  return isa;
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_FUNCTIONS_INL_H_
