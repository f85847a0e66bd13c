#ifndef ANNULUS_WORKER_DEVICE_HOST_H_
#define ANNULUS_WORKER_DEVICE_HOST_H_

#include <memory>

#include "worker/device/device.h"

namespace annulus {

// Host memory as a device: copies are done when they return. Keeps no budget: who allocates has
// one. It holds on to the block that was freed last, up to 256 MiB, and gives it to the next
// request of at least half its size.
std::unique_ptr<Device> MakeHostDevice();

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_HOST_H_
