#ifndef ANNULUS_TESTS_WORKER_KERNEL_WIDE_ISA_H_
#define ANNULUS_TESTS_WORKER_KERNEL_WIDE_ISA_H_

#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// The loops of the AVX-512 path (16 lanes, panels of 64) on the compiler's own vectors, for
// machines without AVX-512.
extern const TileIsa kWideIsa;

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_WIDE_ISA_H_
