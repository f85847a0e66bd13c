#include "tests/worker/kernel/amx_or_emulation.h"

#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus {

extern const TileIsa kEmulatedAmxIsa;

const TileIsa* AmxOrEmulation() {
  const auto amx = SelectIsa("amx");
  if (amx.ok()) return *amx;
#ifdef ANNULUS_EMULATES_AMX
  __builtin_cpu_init();
  const bool emulates = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512bf16");
  if (emulates) return &kEmulatedAmxIsa;
#endif
  return nullptr;
}

}  // namespace annulus
