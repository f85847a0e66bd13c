#ifndef ANNULUS_WORKER_KERNEL_TILE_FUNCTIONS_H_
#define ANNULUS_WORKER_KERNEL_TILE_FUNCTIONS_H_

#include "worker/kernel/gradient_functions.h"
#include "worker/kernel/tile_dropout.h"
#include "worker/kernel/tile_finish.h"
#include "worker/kernel/tile_packing.h"
#include "worker/kernel/tile_products.h"
#include "worker/kernel/tile_rows.h"
#include "worker/kernel/tile_scores.h"
#include "worker/kernel/tile_softmax.h"
#include "worker/kernel/tile_vector.h"

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
  if constexpr (V::kLanes == kLyingKeys) {
    isa.attend_rows = AttendRows<V>;
    isa.few_slots = kFewSlots;
  }
  isa.gradients = &kGradientIsa<V>;
  isa.finish_row = FinishRow;
  return isa;
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_FUNCTIONS_H_
