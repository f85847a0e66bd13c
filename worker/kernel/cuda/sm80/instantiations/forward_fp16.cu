#include "worker/kernel/cuda/sm80/forward_kernel.cuh"

namespace annulus::cuda {

const void* ForwardOfFp16(const ForwardKind& kind) { return ForwardOf<Element::kFp16>(kind); }

}  // namespace annulus::cuda
