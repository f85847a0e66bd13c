// Compiled with -mavx512f: call only after isa_dispatch.h has checked the CPU.
#include "worker/kernel/cpu/isa/avx512_finish-inl.h"
#include "worker/kernel/cpu/isa/tile_functions-inl.h"
#include "worker/kernel/cpu/isa/vector_avx512-inl.h"

namespace annulus {

namespace {

constexpr TileIsa MakeAvx512Isa() {
  TileIsa isa = MakeTileIsa<Avx512>("avx512");
  isa.finish_row = FinishRowAvx512;
  return isa;
}

}  // namespace

void AttendRowsAvx512(const UnpackedRows& rows, RowSlot* slots, int count) {
  AttendRows<Avx512>(rows, slots, count);
}

const TileIsa kAvx512Isa = MakeAvx512Isa();

}  // namespace annulus
