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

// Rates for attention/planning/cost_model.h, measured with the worker's own back-end; each takes
// about `budget`.

struct MeasuredKernel {
  std::vector<KernelRate> rates;
  // WorkerRates::cpu_share of these.
  double cpu_share = 1;
};

// Of the kernel, type and operation of `of`, at several head dimensions, by full attention, by
// windows, and by one row over many keys in `cold`, each as long as the budget allows, up to a few
// thousand rows or 32 MiB: the best of several runs. `threads`: of the kernel; 0: it computes
// elsewhere, and no processor's time is counted.
absl::StatusOr<MeasuredKernel> MeasureKernel(const Engine& engine, const KernelRates& of,
                                             int threads, absl::Duration budget, ColdNumbers* cold);

// One run of a job of one rank.
struct TimedRun {
  int64_t pairs = 0;  // Visible, × query heads.
  int64_t rows = 0;   // × query heads.
  double seconds = 0;
  double cpu_seconds = 0;  // Of all threads of the process.
  int64_t keys = 0;        // × key/value heads.
};
// How much of the time of `runs` their threads computed in: the rest they had to wait, for a
// processor that others had or for one another. Above 0, and 1 at most.
double CpuShareOf(const std::vector<TimedRun>& runs, int threads);
// Pairs take what `full` takes more than `shorter`, of half its length, for each more; keys what is
// left of `few_rows`, and rows what is then left of `windows`. Told from windows alone pairs would
// be too cheap for long rows: of tiles of which a row sees a part, more is computed than is seen.
// `shorter` without rows: there was none, and windows stand in. At least half of `full` is taken to
// be pairs, whatever was measured.
KernelRate RateOfRuns(int32_t head_dim, const TimedRun& full, const TimedRun& shorter,
                      const TimedRun& windows, const TimedRun& few_rows);

// What a step with a transfer costs beside its bytes: that of a small message each way.
absl::StatusOr<double> MeasureStep(const Engine& engine, absl::Duration budget,
                                   const std::function<absl::Time()>& now = SteadyNow);

// Bytes per second that one rank sends while it receives as many, between two communicators in this
// process. It says what the transport costs, not what a network between machines carries.
// `now`: the clock it is measured by.
absl::StatusOr<double> MeasureLink(const Engine& engine, absl::Duration budget,
                                   const std::function<absl::Time()>& now = SteadyNow);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_MEASURE_H_
