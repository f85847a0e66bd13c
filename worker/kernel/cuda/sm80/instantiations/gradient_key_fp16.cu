#include "worker/kernel/cuda/sm80/gradient_kernel.cuh"

namespace annulus::cuda {

const void* KeySideOfFp16(const GradientKind& kind) { return KeySideOf<Element::kFp16>(kind); }

}  // namespace annulus::cuda
