#include "worker/kernel/cuda/sm80/gradient_kernel.cuh"

namespace annulus::cuda {

const void* QuerySideOfFp16(const GradientKind& kind) { return QuerySideOf<Element::kFp16>(kind); }

}  // namespace annulus::cuda
