#ifndef ANNULUS_TESTS_WORKER_KERNEL_AMX_OR_EMULATION_H_
#define ANNULUS_TESTS_WORKER_KERNEL_AMX_OR_EMULATION_H_

#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// The AMX path where the CPU has it; elsewhere the same source with emulated tiles, some twenty
// times as slow, where the CPU has AVX-512 with bf16, but not under sanitizers. nullptr else.
const TileIsa* AmxOrEmulation();

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_AMX_OR_EMULATION_H_
