#include "worker/kernel/cuda/sm80/gradient_kernel.cuh"

namespace annulus::cuda {

const void* QuerySideOfBf16(const GradientKind& kind) { return QuerySideOf<Element::kBf16>(kind); }

}  // namespace annulus::cuda
