#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_PRODUCTS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_PRODUCTS_H_

#include <cstdint>
#include <string>

#include "worker/kernel/cuda/launch/forward_args.h"

namespace annulus::cuda {

// wgmma as in the PTX ISA ("Asynchronous Warpgroup Level Matrix Instructions").

inline constexpr int kProductRows = 64, kProductDepth = 16;

// The fields of a matrix descriptor, in bytes. Only the 128-byte swizzle without a base offset is
// supported; `fault` names anything else.
struct MatrixLayout {
  uint32_t start = 0, leading = 0, stride = 0;
  std::string fault;
};
MatrixLayout DecodeDescriptor(uint64_t descriptor);

// The address in shared memory of element `row` along M or N, `depth` along K: in a K-major matrix,
// and in an MN-major one.
uint32_t PlaceAlongRows(const MatrixLayout& layout, int row, int depth);
uint32_t PlaceAcrossRows(const MatrixLayout& layout, int row, int depth);

// sums[n] += Σ left[k] · right[k][n] over 16 k. `right`: [16][columns]. Sums are truncated like
// those of mma.sync (warp_acts.h), with values measured on an H100: 16 products at once, two bits
// beyond fp32's.
void AddProducts(const float* left, const float* right, int columns, float* sums);

// Registers of a thread: element i of its sums, and of its left side.
struct ProductPlace {
  int row, column;
};
ProductPlace PlaceOfSum(int thread, int i);
ProductPlace PlaceOfLeft(int thread, int i);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_PRODUCTS_H_
