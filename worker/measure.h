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

struct KernelRate {
  double flops_per_second = 0;  // FLOPs of a visible pair: 2·head_dim + 2·value_dim, both 128.
  double pair_seconds = 0;      // Of a visible pair, whatever its dimensions.
  double row_seconds = 0;       // Of a query row and head, beside its pairs.
};
// Of one kernel, by full attention at two head dimensions, and rows that see one key each: the best
// of several runs each.
absl::StatusOr<KernelRate> MeasureKernel(const Engine& engine, DataType dtype,
                                         Arithmetic arithmetic, absl::Duration budget);

// What a step with a transfer costs beside its bytes: that of a small message each way.
absl::StatusOr<double> MeasureStep(const Engine& engine, absl::Duration budget,
                                   const std::function<absl::Time()>& now = SteadyNow);

// Bytes per second that one rank sends while it receives as many, between two communicators in this
// process. It says what the transport costs, not what a network between machines carries.
// `now`: the clock it is measured by.
absl::StatusOr<double> MeasureLink(const Engine& engine, absl::Duration budget,
                                   const std::function<absl::Time()>& now = SteadyNow);

}  // namespace annulus

#endif  // ANNULUS_WORKER_MEASURE_H_
