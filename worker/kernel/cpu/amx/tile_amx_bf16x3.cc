// fp32 in jobs of bf16x3, as AMX takes it (tile_amx.cc).
#include "worker/kernel/cpu/amx/amx_isa-inl.h"

namespace annulus {

const TileIsa kAmxBf16x3Isa = MakeAmxIsa<Split<3>>();

}  // namespace annulus
