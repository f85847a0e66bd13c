#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_HOPPER_LAYOUT_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_HOPPER_LAYOUT_H_

#include <cstdint>

#include "worker/kernel/cuda/launch/gpu_code.h"

namespace annulus::cuda {

// Shared-memory layout for TMA and wgmma. A tile consists of panels. A panel has rows of 64 16-bit
// elements, 128 bytes each, contiguous, with 128-byte swizzle. It begins at a multiple of 1024.

inline constexpr int kPanelColumns = 64;
inline constexpr uint32_t kPanelRowBytes = 128;
inline constexpr uint32_t kSwizzleBytes = 1024;  // The period of the swizzle.

// The swizzle: exchanges the sixteen-byte pieces of a row by the row's number in its group of
// eight.
ANNULUS_GPU uint32_t Swizzle128(uint32_t at) { return at ^ (at >> 7 & 7) << 4; }

// A wgmma matrix descriptor: address, leading and stride offset in units of 16 bytes, and the
// 128-byte swizzle (PTX ISA, "Matrix Descriptor Format"). All of shared memory is below 2^18, so an
// address fits in its 14 bits. The upper half is a constant, so additions need the lower half only.
ANNULUS_GPU uint64_t MatrixDescriptor(uint32_t at, uint32_t leading_bytes, uint32_t stride_bytes) {
  constexpr uint64_t kSwizzle = uint64_t{1} << 62;
  const uint32_t low = (leading_bytes >> 4 << 16) + (at >> 4);
  return kSwizzle | uint64_t{stride_bytes >> 4} << 32 | low;
}
// The descriptor for an address `bytes` further.
ANNULUS_GPU uint64_t Further(uint64_t descriptor, uint32_t bytes) {
  const uint64_t low = static_cast<uint32_t>(descriptor) + (bytes >> 4);
  return descriptor >> 32 << 32 | low;
}

// Queries or keys, whose rows run along the sum: column `column`, a multiple of 16, of panels of
// `panel_bytes` that begin at `at`. Groups of eight rows are kSwizzleBytes apart.
ANNULUS_GPU uint64_t AlongRows(uint32_t at, uint32_t panel_bytes, int column) {
  const uint32_t further = column / kPanelColumns * panel_bytes + column % kPanelColumns * 2;
  return Further(MatrixDescriptor(at, 16, kSwizzleBytes), further);  // Leading bytes: not used.
}

// Values, whose columns run along the sum: rows from `row`, a multiple of 16, on. Groups of 64
// columns are panel_bytes apart.
ANNULUS_GPU uint64_t AcrossRows(uint32_t at, uint32_t panel_bytes, int row) {
  return Further(MatrixDescriptor(at, panel_bytes, kSwizzleBytes), row * kPanelRowBytes);
}

// A thread has scores of a row for keys 8·j + first + c, with c in {0, 1} and j from 0 on: bit 2·j
// + c of a word. Returns the number of these keys below `key`: 0 … 32.
ANNULUS_GPU int CountBelow(int32_t key, int first) {
  const int32_t from_first = key - first;
  if (from_first <= 0) return 0;
  return Least(32, from_first / 8 * 2 + Least(from_first % 8, 2));
}
// The bits of keys [begin, end).
ANNULUS_GPU uint32_t KeyBits(int32_t begin, int32_t end, int first) {
  const uint64_t low = (uint64_t{1} << CountBelow(begin, first)) - 1;
  const uint64_t high = (uint64_t{1} << CountBelow(end, first)) - 1;
  return static_cast<uint32_t>(high & ~low);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_HOPPER_LAYOUT_H_
