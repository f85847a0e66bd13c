#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_KEY_SPLIT_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_KEY_SPLIT_H_

#include <cstdint>

#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/split_kv.h"

namespace annulus::cuda {

// Few query rows over many keys (decoding) are too few blocks of threads for a GPU: such a call is
// cut into chunks of keys. The first goes on from the call's accumulator, the others have partials
// of their own, in `partial_bytes` of memory at most, to be merged in order. How it is cut depends
// on the call's shape and on which kernel serves it (`hopper`: that of sm_90a) alone, not on the
// GPU. No chunks: the call stays whole; so do deterministic jobs, whose rows fold all keys in one
// order. A pure function.
KvSplit SplitKeys(const KernelJob& job, absl::Span<const KernelTask> tasks, bool hopper,
                  int64_t partial_bytes);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_KEY_SPLIT_H_
