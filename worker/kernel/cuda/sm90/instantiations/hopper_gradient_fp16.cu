#include "worker/kernel/cuda/sm90/hopper_gradient_kernel.cuh"

namespace annulus::cuda {

const void* HopperGradientsOfFp16(const GradientKind& kind) {
  return HopperGradientsOf<Element::kFp16>(kind);
}

}  // namespace annulus::cuda
