#include "tests/worker/kernel/cuda/emulator/hopper_products.h"

#include <algorithm>
#include <cmath>

#include "tests/worker/kernel/cuda/emulator/tensor_core_sum.h"

namespace annulus::cuda {
namespace {

constexpr int kAtOnce = 16;
constexpr int kBits = 25;  // Bits kept after the first bit of the largest.

}  // namespace

MatrixLayout DecodeDescriptor(uint64_t descriptor) {
  MatrixLayout layout;
  const auto field = [&](int from) {
    return static_cast<uint32_t>(descriptor >> from & 0x3fff) << 4;
  };
  layout.start = field(0);
  layout.leading = field(16);
  layout.stride = field(32);
  if (descriptor >> 62 != 1) layout.fault = "a descriptor of another swizzle than 128 bytes";
  constexpr uint64_t kKnown = uint64_t{3} << 62 | uint64_t{0x3fff} << 32 | 0x3fff3fff;
  if ((descriptor & ~kKnown) != 0) layout.fault = "a descriptor with a base offset or unknown bits";
  return layout;
}

// The canonical layouts of the ISA, in units of 16 bytes, 128-byte swizzle: K-major ((8,m),(T,2)) :
// ((8T,SBO),(1,T)), MN-major ((T,8,m),(8,k)) : ((1,T,LBO),(8T,SBO)), T = 8 elements. The swizzle
// uses the address's own bits: 4 … 6 change with 7 … 9.
uint32_t PlaceAlongRows(const MatrixLayout& layout, int row, int depth) {
  const uint32_t at = layout.start + row / 8 * layout.stride + row % 8 * 128 + depth * 2;
  return at ^ ((at & 0x380) >> 3);
}
uint32_t PlaceAcrossRows(const MatrixLayout& layout, int row, int depth) {
  const uint32_t at = layout.start + row / 64 * layout.leading + row % 64 * 2 +
                      depth / 8 * layout.stride + depth % 8 * 128;
  return at ^ ((at & 0x380) >> 3);
}

void AddProducts(const float* left, const float* right, int columns, float* sums) {
  // Zero times finite numbers changes only the sign of a zero.
  if (std::all_of(left, left + kProductDepth, [](float value) { return value == 0; }) &&
      std::all_of(right, right + kProductDepth * columns,
                  [](float value) { return std::isfinite(value); }))
    return;
  for (int from = 0; from < kProductDepth; from += kAtOnce) {
    for (int n = 0; n < columns; ++n) {
      double products[kAtOnce];
      for (int k = 0; k < kAtOnce; ++k)
        products[k] = static_cast<double>(left[from + k]) * right[(from + k) * columns + n];
      sums[n] = SumCutOff<kBits>(sums[n], products);
    }
  }
}

ProductPlace PlaceOfSum(int thread, int i) {
  return {thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8, i / 4 * 8 + thread % 4 * 2 + i % 2};
}
ProductPlace PlaceOfLeft(int thread, int i) {
  return {thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8, i / 4 * 8 + thread % 4 * 2 + i % 2};
}

}  // namespace annulus::cuda
