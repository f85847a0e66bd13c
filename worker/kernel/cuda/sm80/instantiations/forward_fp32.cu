#include "worker/kernel/cuda/sm80/forward_kernel.cuh"

namespace annulus::cuda {

const void* ForwardOfFp32(const ForwardKind& kind) { return ForwardOf<Element::kFp32>(kind); }

}  // namespace annulus::cuda
