#include "worker/kernel/cuda/sm80/forward_kernel.cuh"

namespace annulus::cuda {

const void* ForwardOfBf16(const ForwardKind& kind) { return ForwardOf<Element::kBf16>(kind); }

}  // namespace annulus::cuda
