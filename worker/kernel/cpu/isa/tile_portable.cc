#include "worker/kernel/cpu/isa/tile_functions-inl.h"
#include "worker/kernel/cpu/isa/vector_generic-inl.h"

namespace annulus {

// 6 × 2 accumulators of 4 lanes fit the 16 registers of baseline x86-64.
const TileIsa kPortableIsa = MakeTileIsa<GenericVector<4, 2>>("portable");

}  // namespace annulus
