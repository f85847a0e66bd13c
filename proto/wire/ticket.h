#ifndef ANNULUS_PROTO_WIRE_TICKET_H_
#define ANNULUS_PROTO_WIRE_TICKET_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace annulus {

// The permission of a ticket: one shard of one attempt of one job, at one worker process, until
// `expiry`.
struct TicketClaims {
  std::string job_id;
  int32_t attempt = 0;
  int32_t rank = 0;
  std::string incarnation;
  std::string principal;
  int64_t input_bytes = 0;
  absl::Time expiry;
};

// The number of bytes of the key that a worker process draws at start.
inline constexpr size_t kTicketKeyBytes = 32;

// Opaque bytes: the claims, and an HMAC-SHA256 over them with the worker's key.
std::string SignTicket(absl::string_view key, const TicketClaims& claims);

// The claims of a ticket that was signed with `key`. Errors: PERMISSION_DENIED / BAD_TICKET if the
// bytes are not such a ticket (compared in constant time) or the key is empty; FAILED_PRECONDITION
// / TICKET_EXPIRED after its expiry.
absl::StatusOr<TicketClaims> VerifyTicket(absl::string_view key, absl::string_view ticket,
                                          absl::Time now);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_TICKET_H_
