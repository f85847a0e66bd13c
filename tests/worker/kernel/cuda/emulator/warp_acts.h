#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_WARP_ACTS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_WARP_ACTS_H_

#include <cstddef>
#include <cstdint>

#include "tests/worker/kernel/cuda/emulator/emulated_block.h"

namespace annulus::cuda {

// What warps do together, by the tables of the PTX ISA ("Warp Level Matrix Instructions"): each
// lane brings a pointer to its arguments.

struct ShuffleArgs {
  std::byte in[8], out[8];
  int xor_lanes;
};
void ActShuffleXor(void* const (&lanes)[kWarp]);

// Whether all lanes have the same.
struct SameArgs {
  int value;
  bool same;
};
void ActSame(void* const (&lanes)[kWarp]);

// ldmatrix.x4: the row that the lane gives, and what it takes.
struct MatrixArgs {
  const std::byte* row;
  uint32_t* out;
};
void ActLoadMatrices(void* const (&lanes)[kWarp]);
void ActLoadMatricesTransposed(void* const (&lanes)[kWarp]);

// mma.m16n8k16, row by column, c += a · b. The ISA leaves the sum's precision open, so this is an
// assumption, from what others measured (Fasi et al., "Numerical behavior of NVIDIA tensor cores",
// 2021, and those who went on): products are exact; c and a few of them are brought to the exponent
// of the largest and cut off there, and their sum is cut off at fp32. An A100 takes 8 at once and
// keeps one bit beyond fp32's, an H100 takes 16 and keeps two: here 8 and one, the worse of both.
struct MmaArgs {
  const uint32_t* a;
  const uint32_t* b;
  float* c;
};
void ActMmaBf16(void* const (&lanes)[kWarp]);
void ActMmaFp16(void* const (&lanes)[kWarp]);

// ex2.approx.ftz.f32, as bad as the ISA lets it be: off by 2^-22.5, up or down.
float ApproximateExp2(float t);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_WARP_ACTS_H_
