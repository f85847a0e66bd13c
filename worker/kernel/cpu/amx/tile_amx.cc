// The AMX path: this file serves bf16 and refers to the tables of other types. Compiled for AMX:
// call only after isa_dispatch.h has checked the CPU.
#include "worker/kernel/cpu/amx/amx_gradients-inl.h"
#include "worker/kernel/cpu/amx/amx_isa-inl.h"

namespace annulus {
namespace {

constexpr TileIsa MakeBf16() {
  TileIsa isa = MakeWithRows<Whole>();
  isa.gradients = &kAmxGradients;
  isa.fp32 = &kAvx512Isa;
  isa.fp16 = &kAmxFp16Isa;
  isa.bf16x3 = &kAmxBf16x3Isa;
  return isa;
}

}  // namespace

const TileIsa kAmxIsa = MakeBf16();

}  // namespace annulus
