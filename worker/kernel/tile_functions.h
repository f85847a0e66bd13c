#ifndef ANNULUS_WORKER_KERNEL_TILE_FUNCTIONS_H_
#define ANNULUS_WORKER_KERNEL_TILE_FUNCTIONS_H_

#include "worker/kernel/gradient_functions.h"
#include "worker/kernel/tile_dropout.h"
#include "worker/kernel/tile_packing.h"
#include "worker/kernel/tile_products.h"
#include "worker/kernel/tile_scores.h"
#include "worker/kernel/tile_softmax.h"
#include "worker/kernel/tile_vector.h"

namespace annulus {
namespace {

template <class V>
constexpr TileIsa MakeTileIsa(const char* name) {
  return TileIsa{name,           V::kLanes,        kPanel<V>,       PackKeys<V>, PackValues<V>,
                 PackQueries<V>, Score<V>,         ChangeScores<V>, Softmax<V>,  DropWeights<V>,
                 Accumulate<V>,  AccumulateRow<V>, nullptr,         nullptr,     &kGradientIsa<V>};
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_FUNCTIONS_H_
