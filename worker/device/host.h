#ifndef ANNULUS_WORKER_DEVICE_HOST_H_
#define ANNULUS_WORKER_DEVICE_HOST_H_

#include <memory>

#include "worker/device/device.h"

namespace annulus {

// Host memory as a device: copies are done when they return. Keeps no budget: who allocates has
// one.
std::unique_ptr<Device> MakeHostDevice();

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_HOST_H_
