#ifndef ANNULUS_WORKER_BACKEND_MEASURE_H_
#define ANNULUS_WORKER_BACKEND_MEASURE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/planning/kernel_rates.h"
#include "base/steady_time.h"
#include "worker/backend/measured_job.h"
#include "worker/lane/engine.h"

namespace annulus {

// Measures rates for attention/planning/cost_model.h with the worker's own back-end. Each
// measurement takes about `budget`.

struct MeasuredKernel {
  std::vector<KernelRate> rates;
  // WorkerRates::cpu_share of these measurements.
  double cpu_share = 1;
};

// Measures the kernel with the type and operation of `of` at several head dimensions: full
// attention, windows, and one row over many keys in `cold`. Each job grows as far as the budget
// allows, up to a few thousand rows or 32 MiB; the best of several runs counts. `threads`: threads
// of the kernel. 0: it does not compute on the CPU, so CPU time is ignored.
absl::StatusOr<MeasuredKernel> MeasureKernel(const Engine& engine, const KernelRates& of,
                                             int threads, absl::Duration budget, ColdNumbers* cold);

// One run of a one-rank job.
struct TimedRun {
  int64_t pairs = 0;  // Visible pairs × query heads.
  int64_t rows = 0;   // Rows × query heads.
  double seconds = 0;
  double cpu_seconds = 0;  // CPU time of all threads of the process.
  int64_t keys = 0;        // Keys × key/value heads.
};
// The fraction of the time of `runs` in which their threads had a CPU. In the rest they waited for
// a CPU or for one another. In (0, 1].
double CpuShareOf(const std::vector<TimedRun>& runs, int threads);
// Fits a rate to measured runs:
// - Time per pair: from the difference of `full` and `shorter`, which has half its length. At least
//   half of `full` is counted as pairs.
// - Time per key: what `few_rows` takes beyond its pairs.
// - Time per row: what `windows` takes beyond pairs and keys.
// Pairs are not derived from windows alone: in tiles that a row sees in part, the kernel computes
// more pairs than are visible, so pairs would be too cheap for long rows. If `shorter` has no rows,
// `windows` replaces it.
KernelRate RateOfRuns(int32_t head_dim, const TimedRun& full, const TimedRun& shorter,
                      const TimedRun& windows, const TimedRun& few_rows);

// The cost of a step with a transfer apart from its bytes: the time of one small message in each
// direction.
absl::StatusOr<double> MeasureStep(const Engine& engine, absl::Duration budget,
                                   const std::function<absl::Time()>& now = SteadyNow);

// Bytes per second that a rank sends while it receives as many, between two communicators of this
// process. Measures the transport's overhead, not the network between machines. `now`: the clock
// for the measurement.
absl::StatusOr<double> MeasureLink(const Engine& engine, absl::Duration budget,
                                   const std::function<absl::Time()>& now = SteadyNow);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_MEASURE_H_
