#ifndef ANNULUS_TESTS_WORKER_KERNEL_AMX_OR_EMULATION_H_
#define ANNULUS_TESTS_WORKER_KERNEL_AMX_OR_EMULATION_H_

#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// The AMX path if the CPU has AMX. Otherwise the same source with emulated tiles, about twenty
// times as slow, if the CPU has AVX-512 with bf16; not under sanitizers. Otherwise nullptr.
const TileIsa* AmxOrEmulation();

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_AMX_OR_EMULATION_H_
