#ifndef ANNULUS_PROTO_WIRE_STATUS_H_
#define ANNULUS_PROTO_WIRE_STATUS_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace annulus {

// ErrorInfo.domain of every error that Annulus makes.
inline constexpr char kErrorDomain[] = "annulus.v1";

// absl::Status ⇄ grpc::Status, with the detail of base/error.h as google.rpc.ErrorInfo,
// BadRequest and RetryInfo in grpc-status-details-bin. An error without a reason gets its code's
// name, so that no error goes without ErrorInfo. Long messages and details are cut to stay
// below the default limit of metadata.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Details of a foreign domain are left out: the reason is then empty.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_STATUS_H_
