#include "worker/kernel/cuda/sm80/gradient_kernel.cuh"

namespace annulus::cuda {

const void* QuerySideOfFp32(const GradientKind& kind) { return QuerySideOf<Element::kFp32>(kind); }

}  // namespace annulus::cuda
