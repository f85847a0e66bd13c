#ifndef ANNULUS_TESTS_WORKER_KERNEL_MIRRORED_KERNEL_H_
#define ANNULUS_TESTS_WORKER_KERNEL_MIRRORED_KERNEL_H_

#include <memory>

#include "worker/device/device.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// `kernel`, whose blocks lie in the memory of `device`, for suites that keep theirs in this
// process's: every call takes its blocks to the device and brings back those that it writes. What
// the kernel writes beside a block is an error of the call. Slow.
std::unique_ptr<AttentionKernel> MakeMirroredKernel(std::unique_ptr<Device> device,
                                                    std::unique_ptr<AttentionKernel> kernel);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_MIRRORED_KERNEL_H_
