#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_SHARED_BYTES_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_SHARED_BYTES_H_

#include <algorithm>
#include <cstdint>

#include "worker/kernel/cuda/sm80/forward_config.h"
#include "worker/kernel/cuda/sm80/gradient_config.h"

namespace annulus::cuda {

template <Element ELEMENT, int DIM, bool CHANGES>
constexpr int64_t SharedBytesOfDim() {
  using Side = GradientSide;
  const int64_t queries =
      std::max<int64_t>(ForwardConfig<ELEMENT, DIM, CHANGES>::kSharedBytes,
                        GradientConfig<ELEMENT, DIM, CHANGES, Side::kQueries>::kSharedBytes);
  if constexpr (DIM > 128) {
    return std::max<int64_t>({queries,
                              GradientConfig<ELEMENT, DIM, CHANGES, Side::kKeys>::kSharedBytes,
                              GradientConfig<ELEMENT, DIM, CHANGES, Side::kValues>::kSharedBytes});
  } else {
    return std::max<int64_t>(
        queries, GradientConfig<ELEMENT, DIM, CHANGES, Side::kKeysAndValues>::kSharedBytes);
  }
}

template <Element ELEMENT>
constexpr int64_t SharedBytesOfElement() {
  return std::max({SharedBytesOfDim<ELEMENT, 64, false>(), SharedBytesOfDim<ELEMENT, 64, true>(),
                   SharedBytesOfDim<ELEMENT, 128, false>(), SharedBytesOfDim<ELEMENT, 128, true>(),
                   SharedBytesOfDim<ELEMENT, 256, false>(),
                   SharedBytesOfDim<ELEMENT, 256, true>()});
}

// The shared memory that a GPU must give a block to serve every portable kernel.
inline constexpr int64_t kMostSharedBytes =
    std::max({SharedBytesOfElement<Element::kFp32>(), SharedBytesOfElement<Element::kFp16>(),
              SharedBytesOfElement<Element::kBf16>()});
static_assert(kMostSharedBytes <= 163 << 10, "an A100 gives no more");

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_SHARED_BYTES_H_
