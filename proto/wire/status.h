#ifndef ANNULUS_PROTO_WIRE_STATUS_H_
#define ANNULUS_PROTO_WIRE_STATUS_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace annulus {

// ErrorInfo.domain of every error that Annulus makes.
inline constexpr char kErrorDomain[] = "annulus.v1";

// Conversion between absl::Status and grpc::Status. The detail of base/error.h becomes
// google.rpc.ErrorInfo, BadRequest and RetryInfo in grpc-status-details-bin. An error without a
// reason gets the name of its code as its reason, so that every error has ErrorInfo. Long messages
// and details are cut to stay below the default limit of metadata.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Details of another domain are left out; the reason is then empty.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_STATUS_H_
