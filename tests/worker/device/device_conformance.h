#ifndef ANNULUS_TESTS_WORKER_DEVICE_DEVICE_CONFORMANCE_H_
#define ANNULUS_TESTS_WORKER_DEVICE_DEVICE_CONFORMANCE_H_

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "worker/device/device.h"

namespace annulus {

// A device, and a function that queues a kernel on it.
struct DeviceUnderTest {
  std::shared_ptr<void> keeps;  // Objects that the device needs.
  std::unique_ptr<Device> device;
  std::function<absl::Status(std::function<void()> kernel)> launch;
};

// The conformance suite of Device (worker/device/device.h). An implementation runs it by
// INSTANTIATE_TEST_SUITE_P(Name, DeviceConformance, …) and links the tests. After Synchronize, this
// process must be able to read its memory.
struct DeviceCase {
  std::string name;
  std::function<DeviceUnderTest()> make;
};

inline void PrintTo(const DeviceCase& c, std::ostream* out) { *out << c.name; }

class DeviceConformance : public testing::TestWithParam<DeviceCase> {
 protected:
  DeviceUnderTest under_test_ = GetParam().make();
  Device& device_ = *under_test_.device;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_DEVICE_DEVICE_CONFORMANCE_H_
