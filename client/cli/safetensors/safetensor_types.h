#ifndef ANNULUS_CLIENT_CLI_SAFETENSORS_SAFETENSOR_TYPES_H_
#define ANNULUS_CLIENT_CLI_SAFETENSORS_SAFETENSOR_TYPES_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace annulus {

// Bits of an element of a type that the safetensors format has ("F32", "F8_E8M0", "F4", …); 0 of
// any other.
int64_t SafetensorElementBits(absl::string_view dtype);
// The same in bytes; 0 also of a type whose elements are not whole bytes.
int64_t SafetensorElementBytes(absl::string_view dtype);

// Whether a text may be the name of a type that the format gets one day: 1 to 32 letters, digits
// and "_", "-" or ".".
bool MayBeSafetensorType(absl::string_view dtype);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_SAFETENSORS_SAFETENSOR_TYPES_H_
