#ifndef ANNULUS_CLIENT_CLI_SAFETENSORS_SAFETENSOR_TYPES_H_
#define ANNULUS_CLIENT_CLI_SAFETENSORS_SAFETENSOR_TYPES_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace annulus {

// The bits of an element of a safetensors type ("F32", "F8_E8M0", "F4", …); 0 for unknown types.
int64_t SafetensorElementBits(absl::string_view dtype);
// The bytes of an element; 0 also for types whose elements are not whole bytes.
int64_t SafetensorElementBytes(absl::string_view dtype);

// True if `dtype` could be a type of a later version of the format: 1 to 32 letters, digits, "_",
// "-" or ".".
bool MayBeSafetensorType(absl::string_view dtype);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_SAFETENSORS_SAFETENSOR_TYPES_H_
