#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_PRODUCTS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_PRODUCTS_H_

#include <cstdint>
#include <string>

#include "worker/kernel/cuda/launch/forward_args.h"

namespace annulus::cuda {

// wgmma as the PTX ISA has it ("Asynchronous Warpgroup Level Matrix Instructions").

inline constexpr int kProductRows = 64, kProductDepth = 16;

// What a matrix descriptor says, in bytes. Only the 128-byte swizzle without a base offset is
// known: `fault` says what else there is.
struct MatrixLayout {
  uint32_t start = 0, leading = 0, stride = 0;
  std::string fault;
};
MatrixLayout DecodeDescriptor(uint64_t descriptor);

// Where in shared memory element `row` along M or N, `depth` along K, lies: of a matrix whose rows
// are K-major, and of one that is MN-major.
uint32_t PlaceAlongRows(const MatrixLayout& layout, int row, int depth);
uint32_t PlaceAcrossRows(const MatrixLayout& layout, int row, int depth);

// sums[n] += Σ left[k] · right[k][n] over 16 k. `right`: [16][columns]. Sums are cut off as those
// of mma.sync (warp_acts.h), with what was measured of an H100: 16 products at once, two bits
// beyond those of fp32.
void AddProducts(const float* left, const float* right, int columns, float* sums);

// Registers of a thread: element i of its sums, and of its left side.
struct ProductPlace {
  int row, column;
};
ProductPlace PlaceOfSum(int thread, int i);
ProductPlace PlaceOfLeft(int thread, int i);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_PRODUCTS_H_
