#ifndef ANNULUS_WORKER_MEASURE_H_
#define ANNULUS_WORKER_MEASURE_H_

#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "worker/lane/engine.h"

namespace annulus {

// Rates for attention/cost_model.h, measured with the worker's own back-end; each takes about
// `budget`.

// FLOPs of a visible pair (2·head_dim + 2·value_dim per query head) per second, of one kernel: the
// best of several runs.
absl::StatusOr<double> MeasureFlops(const Engine& engine, DataType dtype, absl::Duration budget);

// Bytes per second that one rank sends while it receives as many, between two communicators in this
// process. It says what the transport costs, not what a network between machines carries.
// `now`: the clock it is measured by.
absl::StatusOr<double> MeasureLink(const Engine& engine, absl::Duration budget,
                                   const std::function<absl::Time()>& now = SteadyNow);

}  // namespace annulus

#endif  // ANNULUS_WORKER_MEASURE_H_
