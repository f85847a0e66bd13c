#include "worker/kernel/cuda/sm80/gradient_kernel.cuh"

namespace annulus::cuda {

const void* KeySideOfBf16(const GradientKind& kind) { return KeySideOf<Element::kBf16>(kind); }

}  // namespace annulus::cuda
