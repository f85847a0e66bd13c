#ifndef ANNULUS_PROTO_WIRE_RATES_H_
#define ANNULUS_PROTO_WIRE_RATES_H_

#include "absl/status/statusor.h"
#include "annulus/v1/types.pb.h"
#include "attention/planning/kernel_rates.h"

namespace annulus {

v1::WorkerRates RatesToProto(const WorkerRates& rates);

// INVALID_ARGUMENT with the field, if no plan can be made from the rates:
// - no rate of fp32;
// - more kernels or dimensions than there are;
// - dimensions that do not ascend;
// - a rate of a link or a time of a pair that is not finite and above 0;
// - another time that is not from 0 to 1 s;
// - a share that is not from 0 to 1.
absl::StatusOr<WorkerRates> RatesFromProto(const v1::WorkerRates& proto);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_RATES_H_
