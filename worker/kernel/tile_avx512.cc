// Compiled with -mavx512f: called only after the CPU has been asked (isa_dispatch.h).
#include "worker/kernel/tile_functions.h"
#include "worker/kernel/vector_avx512.h"

namespace annulus {

void AttendRowsAvx512(const LyingRows& rows, RowSlot* slots, int count) {
  AttendRows<Avx512>(rows, slots, count);
}

const TileIsa kAvx512Isa = MakeTileIsa<Avx512>("avx512");

}  // namespace annulus
