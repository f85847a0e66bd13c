#ifndef ANNULUS_WORKER_MEASURE_H_
#define ANNULUS_WORKER_MEASURE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/kernel_rates.h"
#include "base/steady_time.h"
#include "worker/lane/engine.h"

namespace annulus {

// Rates for attention/cost_model.h, measured with the worker's own back-end; each takes about
// `budget`.

// Of one kernel, at several head dimensions, by full attention and by windows, both as long as the
// budget allows, up to a few thousand rows: the best of several runs.
absl::StatusOr<std::vector<KernelRate>> MeasureKernel(const Engine& engine, DataType dtype,
                                                      Arithmetic arithmetic, absl::Duration budget);

// One run of a forward job of one rank.
struct TimedRun {
  int64_t pairs = 0;  // Visible, × query heads.
  int64_t rows = 0;   // × query heads.
  double seconds = 0;
};
// The rate that explains both: `full` has many pairs a row, `windows` few. At least half of `full`
// is taken to be pairs, whatever was measured.
KernelRate RateOfRuns(int32_t head_dim, const TimedRun& full, const TimedRun& windows);

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
