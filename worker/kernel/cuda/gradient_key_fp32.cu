#include "worker/kernel/cuda/gradient_kernel.cuh"

namespace annulus::cuda {

const void* KeySideOfFp32(const GradientKind& kind) { return KeySideOf<Element::kFp32>(kind); }

}  // namespace annulus::cuda
