#ifndef ANNULUS_WORKER_KERNEL_CUDA_FORWARD_PRODUCTS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_FORWARD_PRODUCTS_H_

#include <type_traits>

#include "worker/kernel/cuda/fma_products.h"
#include "worker/kernel/cuda/forward_loads.h"
#include "worker/kernel/cuda/mma_products.h"

namespace annulus::cuda {

// The two products of a warp's 16 slots with a tile of keys (forward_config.h tells the shapes).
template <class GPU, class CONFIG>
using TileProducts =
    std::conditional_t<CONFIG::kWide, FmaProducts<GPU, CONFIG>, MmaProducts<GPU, CONFIG>>;

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_FORWARD_PRODUCTS_H_
