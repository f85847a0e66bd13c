#include "worker/kernel/cuda/sm90/hopper_gradient_kernel.cuh"

namespace annulus::cuda {

const void* HopperGradientsOfBf16(const GradientKind& kind) {
  return HopperGradientsOf<Element::kBf16>(kind);
}

}  // namespace annulus::cuda
