#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_WARP_ACTS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_WARP_ACTS_H_

#include <cstddef>
#include <cstdint>

#include "tests/worker/kernel/cuda/emulator/emulated_block.h"

namespace annulus::cuda {

// Collective operations of warps, by the tables of the PTX ISA ("Warp Level Matrix Instructions").
// Each lane passes a pointer to its arguments.

struct ShuffleArgs {
  std::byte in[8], out[8];
  int xor_lanes;
};
void ActShuffleXor(void* const (&lanes)[kWarp]);

// Checks that all lanes have the same value.
struct SameArgs {
  int value;
  bool same;
};
void ActSame(void* const (&lanes)[kWarp]);

// ldmatrix.x4: the lane's row, and its results.
struct MatrixArgs {
  const std::byte* row;
  uint32_t* out;
};
void ActLoadMatrices(void* const (&lanes)[kWarp]);
void ActLoadMatricesTransposed(void* const (&lanes)[kWarp]);

// mma.m16n8k16, row by column, c += a · b. The ISA does not define the sum's precision. This
// follows measurements (Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021, and later
// work): products are exact; c and a few products are aligned to the exponent of the largest and
// truncated there, and their sum is truncated to fp32. An A100 adds 8 at once and keeps one bit
// beyond fp32's; an H100 adds 16 and keeps two. Here: 8 and one, the worse of both.
struct MmaArgs {
  const uint32_t* a;
  const uint32_t* b;
  float* c;
};
void ActMmaBf16(void* const (&lanes)[kWarp]);
void ActMmaFp16(void* const (&lanes)[kWarp]);

// ex2.approx.ftz.f32 with the largest error that the ISA permits: 2^-22.5, up or down.
float ApproximateExp2(float t);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_WARP_ACTS_H_
