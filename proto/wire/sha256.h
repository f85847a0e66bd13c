#ifndef ANNULUS_PROTO_WIRE_SHA256_H_
#define ANNULUS_PROTO_WIRE_SHA256_H_

#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// Both return 32 bytes. Thread-safe.
std::string Sha256(absl::string_view text);

// HMAC with SHA-256 (RFC 2104).
std::string HmacSha256(absl::string_view key, absl::string_view text);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_SHA256_H_
