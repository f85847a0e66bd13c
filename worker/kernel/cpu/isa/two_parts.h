#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_TWO_PARTS_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_TWO_PARTS_H_

#include <cmath>

namespace annulus {
namespace {

// A factor as a sum of two, for products that are rounded only once, as if made in double. Both
// parts have its sign, and neither is 0 unless the factor is. So an infinity times them is that
// infinity, not NaN.
struct TwoParts {
  float high = 0, low = 0;
};

// Requires: `factor` is 0, or far from the limits of fp32.
inline TwoParts PartsOf(double factor) {
  TwoParts parts;
  parts.high = static_cast<float>(factor);
  if (std::fabs(parts.high) >= std::fabs(factor)) parts.high = std::nextafter(parts.high, 0.0f);
  parts.low = static_cast<float>(factor - parts.high);
  return parts;
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_TWO_PARTS_H_
