// fp32 on AMX in jobs with Arithmetic::kBf16x3 (tile_amx.cc).
#include "worker/kernel/cpu/amx/amx_isa-inl.h"

namespace annulus {

const TileIsa kAmxBf16x3Isa = MakeAmxIsa<Split<3>>();

}  // namespace annulus
