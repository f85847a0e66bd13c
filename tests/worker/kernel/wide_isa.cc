#include "tests/worker/kernel/wide_isa.h"

#include "worker/kernel/cpu/isa/tile_functions-inl.h"
#include "worker/kernel/cpu/isa/vector_generic-inl.h"

namespace annulus {

const TileIsa kWideIsa = MakeTileIsa<GenericVector<16, 4>>("wide");

}  // namespace annulus
