#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_KEY_SPLIT_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_KEY_SPLIT_H_

#include <cstdint>

#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/split_kv.h"

namespace annulus::cuda {

// Split-KV on a GPU: few query rows over many keys (decoding) give too few thread blocks. Such a
// call is split into chunks of keys. The first chunk continues the call's accumulator. The others
// have partials of their own, in at most `partial_bytes` of memory, which are merged in order.
//
// The split depends only on the call's shape and on the kernel (`hopper`: that for sm_90a), not on
// the GPU. chunks == 0: the call stays whole. Deterministic jobs always do, because their rows fold
// all keys in one order. A pure function.
KvSplit SplitKeys(const KernelJob& job, absl::Span<const KernelTask> tasks, bool hopper,
                  int64_t partial_bytes);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_KEY_SPLIT_H_
