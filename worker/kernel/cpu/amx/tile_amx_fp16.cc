// fp16 on AMX (tile_amx.cc).
#include "worker/kernel/cpu/amx/amx_isa-inl.h"

namespace annulus {

const TileIsa kAmxFp16Isa = MakeWithRows<Split<4>>();

}  // namespace annulus
