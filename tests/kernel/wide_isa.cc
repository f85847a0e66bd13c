#include "tests/kernel/wide_isa.h"

#include "worker/kernel/tile_functions.h"
#include "worker/kernel/vector_generic.h"

namespace annulus {

const TileIsa kWideIsa = MakeTileIsa<GenericVector<16, 4>>("wide");

}  // namespace annulus
