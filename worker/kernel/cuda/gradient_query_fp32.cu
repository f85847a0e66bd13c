#include "worker/kernel/cuda/gradient_kernel.cuh"

namespace annulus::cuda {

const void* QuerySideOfFp32(const GradientKind& kind) { return QuerySideOf<Element::kFp32>(kind); }

}  // namespace annulus::cuda
