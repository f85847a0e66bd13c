#include "proto/wire/ticket.h"

#include <openssl/crypto.h>

#include "annulus/control/v1/ticket.pb.h"
#include "base/error.h"
#include "proto/wire/convert.h"
#include "proto/wire/sha256.h"

namespace annulus {
namespace {

constexpr size_t kMaxTicketBytes = 4096;

bool EqualInConstantTime(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

absl::Status BadTicket() {
  return MakeError(absl::StatusCode::kPermissionDenied, "the ticket is not valid for this worker",
                   ErrorDetail{"BAD_TICKET", {}, {}, {}});
}

}  // namespace

std::string SignTicket(absl::string_view key, const TicketClaims& claims) {
  control::v1::Ticket::Claims proto;
  proto.set_job_id(claims.job_id);
  proto.set_attempt(claims.attempt);
  proto.set_rank(claims.rank);
  proto.set_incarnation(claims.incarnation);
  proto.set_principal(claims.principal);
  proto.set_input_bytes(claims.input_bytes);
  *proto.mutable_expiry() = TimeToProto(claims.expiry);
  control::v1::Ticket ticket;
  ticket.set_claims(proto.SerializeAsString());
  ticket.set_signature(HmacSha256(key, ticket.claims()));
  return ticket.SerializeAsString();
}

absl::StatusOr<TicketClaims> VerifyTicket(absl::string_view key, absl::string_view ticket,
                                          absl::Time now) {
  control::v1::Ticket signed_ticket;
  control::v1::Ticket::Claims proto;
  // Anybody can sign with an empty key.
  if (key.empty() || ticket.size() > kMaxTicketBytes ||
      !signed_ticket.ParseFromArray(ticket.data(), static_cast<int>(ticket.size())) ||
      !EqualInConstantTime(signed_ticket.signature(), HmacSha256(key, signed_ticket.claims())) ||
      !proto.ParseFromString(signed_ticket.claims())) {
    return BadTicket();
  }
  TicketClaims claims{proto.job_id(),
                      proto.attempt(),
                      proto.rank(),
                      proto.incarnation(),
                      proto.principal(),
                      proto.input_bytes(),
                      TimeFromProto(proto.expiry())};
  if (now > claims.expiry) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "the ticket has expired",
        ErrorDetail{"TICKET_EXPIRED", {{"expiry", absl::FormatTime(claims.expiry)}}, {}, {}});
  }
  return claims;
}

}  // namespace annulus
