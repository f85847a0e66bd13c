#ifndef ANNULUS_TESTS_KERNEL_CUDA_WARP_ACTS_H_
#define ANNULUS_TESTS_KERNEL_CUDA_WARP_ACTS_H_

#include <cstddef>
#include <cstdint>

#include "tests/kernel/cuda/emulated_block.h"

namespace annulus::cuda {

// What warps do together, by the tables of the PTX ISA ("Warp Level Matrix Instructions"): each
// lane brings a pointer to its arguments.

struct ShuffleArgs {
  std::byte in[8], out[8];
  int xor_lanes;
};
void ActShuffleXor(void* const (&lanes)[kWarp]);

// ldmatrix.x4: the row that the lane gives, and what it takes.
struct MatrixArgs {
  const std::byte* row;
  uint32_t* out;
};
void ActLoadMatrices(void* const (&lanes)[kWarp]);
void ActLoadMatricesTransposed(void* const (&lanes)[kWarp]);

// mma.m16n8k16, row by column, c += a · b. Products are exact, their sum with c is cut off at fp32,
// not rounded: no tensor core is worse by more than its own order of sums.
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

#endif  // ANNULUS_TESTS_KERNEL_CUDA_WARP_ACTS_H_
