#include "worker/kernel/cuda/sm90/hopper_kernel.cuh"

namespace annulus::cuda {

const void* HopperOfFp16(int dim) { return HopperOf<Element::kFp16>(dim); }

}  // namespace annulus::cuda
