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

// Jobs of the size that cuDNN gets of a worker, one of each of its types. Scores are large, so that
// a wrong one shows.
std::vector<AttentionSpec> CudnnCheckSpecs();

// Compares `kernel`, on `device` (nullptr: the host), whose cuDNN takes rectangles of any size,
// with `yardstick`: by the checks of a start (self_check.h) and by CudnnCheckSpecs. `rectangles`:
// how many cuDNN has done until now. INTERNAL where numbers are apart, or where cuDNN had no part
// in one of the checks.
absl::Status CheckCudnn(AttentionKernel& kernel, AttentionKernel& yardstick, Device* device,
                        const std::function<int64_t()>& rectangles);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_CUDNN_CHECK_H_
