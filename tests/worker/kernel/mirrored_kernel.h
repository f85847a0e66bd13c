#ifndef ANNULUS_TESTS_WORKER_KERNEL_MIRRORED_KERNEL_H_
#define ANNULUS_TESTS_WORKER_KERNEL_MIRRORED_KERNEL_H_

#include <memory>

#include "worker/device/device.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// `kernel`, with blocks in the memory of `device`, for suites whose blocks are in this process's
// memory. Every call copies its blocks to the device and copies written ones back. If the kernel
// writes beside a block, the call fails. Slow.
std::unique_ptr<AttentionKernel> MakeMirroredKernel(std::unique_ptr<Device> device,
                                                    std::unique_ptr<AttentionKernel> kernel);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_MIRRORED_KERNEL_H_
