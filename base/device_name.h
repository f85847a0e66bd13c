#ifndef ANNULUS_BASE_DEVICE_NAME_H_
#define ANNULUS_BASE_DEVICE_NAME_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// The number N of "cuda:N", 0 to 1023. INVALID_ARGUMENT for other text, including the device names
// "cpu" and "auto".
absl::StatusOr<int> GpuNumber(absl::string_view device);

// OK for "cpu", "auto" and "cuda:N"; otherwise INVALID_ARGUMENT.
absl::Status CheckDeviceName(absl::string_view device);

}  // namespace annulus

#endif  // ANNULUS_BASE_DEVICE_NAME_H_
