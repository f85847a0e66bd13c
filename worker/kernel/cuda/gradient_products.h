#ifndef ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_PRODUCTS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_PRODUCTS_H_

#include <type_traits>

#include "worker/kernel/cuda/fma_products.h"
#include "worker/kernel/cuda/gradient_config.h"
#include "worker/kernel/cuda/mma_products.h"

namespace annulus::cuda {

// The products of a warp's 16 own rows with a part (gradient_config.h), by those of attention.
template <class GPU, class CONFIG>
struct GradientProducts {
  template <uint32_t OWN_AT, uint32_t PART_AT>
  using Of =
      std::conditional_t<CONFIG::kWide, FmaProducts<GPU, ProductView<CONFIG, OWN_AT, PART_AT>>,
                         MmaProducts<GPU, ProductView<CONFIG, OWN_AT, PART_AT>>>;
  using First = Of<CONFIG::kOwnFirstAt, CONFIG::kFirstAt>;
  using Second = Of<CONFIG::kOwnSecondAt, CONFIG::kSecondAt>;
  using Scores = typename First::Scores;
  using Sums = typename First::Sums;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_PRODUCTS_H_
