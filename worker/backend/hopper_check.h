#ifndef ANNULUS_WORKER_BACKEND_HOPPER_CHECK_H_
#define ANNULUS_WORKER_BACKEND_HOPPER_CHECK_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attention/spec/spec.h"
#include "worker/device/device.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// Jobs for the CUDA kernels for sm_90a, of attention and of gradients: both types, dimensions for
// each of their instantiations, masks of each kind of tile, query heads that share keys and that do
// not, more items than a GPU has multiprocessors, and few rows over many keys. Scores are large, so
// that a wrong one shows.
std::vector<AttentionSpec> HopperCheckSpecs(Operation operation);

// Compares `kernel`, on `device` (nullptr: the host), with `yardstick`, as CheckKernel does: each
// job as it is, and with its keys in two calls, of which the second goes on from the state of the
// first; of gradients the forward job, too. `launches`: how often the operation's kernel for sm_90a
// was launched until now. INTERNAL where numbers are apart, or where it was not launched.
absl::Status CheckHopper(AttentionKernel& kernel, AttentionKernel& yardstick, Device* device,
                         absl::Span<const AttentionSpec> specs,
                         const std::function<int64_t()>& launches);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_HOPPER_CHECK_H_
