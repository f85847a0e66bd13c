// Types as AMX takes them: compiled for it, and called only after the CPU has been asked
// (isa_dispatch.h). Here bf16, which leads to the others.
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
