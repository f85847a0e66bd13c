// fp16 as AMX takes it (tile_amx.cc).
#include "worker/kernel/amx_isa.h"

namespace annulus {

const TileIsa kAmxFp16Isa = MakeWithRows<Split<4>>();

}  // namespace annulus
