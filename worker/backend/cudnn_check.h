#ifndef ANNULUS_WORKER_BACKEND_CUDNN_CHECK_H_
#define ANNULUS_WORKER_BACKEND_CUDNN_CHECK_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "attention/spec/spec.h"
#include "worker/device/device.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// Jobs large enough for cuDNN, one for each of its types. Scores are large, so that errors show.
std::vector<AttentionSpec> CudnnCheckSpecs();

// Compares `kernel`, on `device` (nullptr: the host), with `yardstick`: the checks of a start
// (self_check.h) and CudnnCheckSpecs. `kernel` must pass rectangles of any size to cuDNN.
// `rectangles` returns how many cuDNN has processed. INTERNAL: results differ, or cuDNN took no
// part in a check.
absl::Status CheckCudnn(AttentionKernel& kernel, AttentionKernel& yardstick, Device* device,
                        const std::function<int64_t()>& rectangles);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_CUDNN_CHECK_H_
