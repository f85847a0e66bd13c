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

// Jobs for the sm_90a CUDA kernels of attention and gradients. They cover both types, head
// dimensions of each instantiation, masks for each kind of tile, shared and separate keys of query
// heads, more items than multiprocessors, and few rows over many keys. Scores are large, so that
// errors show.
std::vector<AttentionSpec> HopperCheckSpecs(Operation operation);

// Compares `kernel`, on `device` (nullptr: the host), with `yardstick`, as CheckKernel does. Each
// job runs twice: once as it is, and once with its keys in two calls, the second continuing from
// the first's state. For gradients the forward job is compared too. `launches` returns how often
// the operation's sm_90a kernel was launched. INTERNAL: results differ, or the kernel was not
// launched.
absl::Status CheckHopper(AttentionKernel& kernel, AttentionKernel& yardstick, Device* device,
                         absl::Span<const AttentionSpec> specs,
                         const std::function<int64_t()>& launches);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_HOPPER_CHECK_H_
