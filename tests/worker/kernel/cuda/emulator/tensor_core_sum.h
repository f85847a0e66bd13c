#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_TENSOR_CORE_SUM_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_TENSOR_CORE_SUM_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "worker/kernel/cuda/launch/gpu_code.h"

namespace annulus::cuda {

// Rounds towards zero.
inline float CutOff(double value) {
  const auto nearest = static_cast<float>(value);
  if (!(std::fabs(static_cast<double>(nearest)) > std::fabs(value))) return nearest;
  return BitsAs<float>(BitsAs<uint32_t>(nearest) - 1);
}

// A tensor core's sum of `sum` and of products of two 16-bit elements. Each is truncated towards
// zero, BITS after the first bit of the largest.
template <int BITS, int COUNT>
float SumCutOff(float sum, const double (&products)[COUNT]) {
  constexpr uint64_t kNoSign = ~uint64_t{0} >> 1, kNotFinite = 0x7ff;
  uint64_t largest = BitsAs<uint64_t>(static_cast<double>(sum)) & kNoSign;
  for (const double product : products)
    largest = std::max(largest, BitsAs<uint64_t>(product) & kNoSign);
  const uint64_t exponent = largest >> 52;
  if (largest == 0 || exponent == kNotFinite) {
    double plain = sum;
    for (const double product : products) plain += product;
    return CutOff(plain);
  }
  // Powers of two: nonzero numbers here are far from the limits of a double's range.
  const auto unit = BitsAs<double>((exponent - BITS) << 52);
  const auto per_unit = BitsAs<double>((2 * 1023 + BITS - exponent) << 52);
  auto units = static_cast<int32_t>(sum * per_unit);
  for (const double product : products) units += static_cast<int32_t>(product * per_unit);
  return CutOff(units * unit);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_TENSOR_CORE_SUM_H_
