#include "worker/kernel/cuda/sm80/gradient_kernel.cuh"

namespace annulus::cuda {

const void* KeySideOfFp32(const GradientKind& kind) { return KeySideOf<Element::kFp32>(kind); }

}  // namespace annulus::cuda
