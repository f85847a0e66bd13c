#include "worker/kernel/cuda/sm90/hopper_kernel.cuh"

namespace annulus::cuda {

const void* HopperOfBf16(int dim) { return HopperOf<Element::kBf16>(dim); }

}  // namespace annulus::cuda
