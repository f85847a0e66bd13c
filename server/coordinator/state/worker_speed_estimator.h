#ifndef ANNULUS_SERVER_COORDINATOR_STATE_WORKER_SPEED_ESTIMATOR_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_WORKER_SPEED_ESTIMATOR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>

#include "attention/planning/cost_model.h"
#include "attention/planning/kernel_rates.h"
#include "attention/spec/spec.h"

namespace annulus {

// How jobs keep to what a worker measured of a kernel when it started, perhaps on a machine that
// others held up: the seconds of the tasks of its latest runs over those that its own measurement
// predicts. Runs that are too short to tell are not counted.
class WorkerSpeedEstimator {
 public:
  // `bound`: the tasks took so long at most, as they shared the machine with transfers. Such a run
  // says only that the worker is faster.
  enum class Kind : bool { kExact, kBound };
  void Add(double predicted_seconds, double took_seconds, Kind kind);

  // By which plans multiply what was measured: 1 where jobs keep to it within half again, as masks
  // and caches make that much of a difference. The fastest of the latest runs says, down to 1/32;
  // above 1, and to 2 at most, only where all that are remembered were slower.
  double factor() const;
  // The least that any of the latest runs took, 1/32 to 1.
  double least() const;
  int32_t runs() const { return static_cast<int32_t>(ratios_.size()); }

 private:
  double Fastest() const;

  std::deque<double> ratios_;  // The latest last.
};

// What a worker measured of the kernel of `spec`, which it serves.
KernelRate MeasuredRate(const WorkerRates& rates, const AttentionSpec& spec);

// Of each kernel of a worker, forward and backward passes apart.
class WorkerSpeedEstimators {
 public:
  struct Of {
    bool gradients = false;
    size_t kernel = 0;  // In WorkerRates::kernels.
    // Of the kernel; of gradients, which may count with fp32's rates, that of the job.
    DataType dtype = DataType::kFp32;
    bool operator<(const Of& other) const {
      return std::tie(gradients, kernel, dtype) <
             std::tie(other.gradients, other.kernel, other.dtype);
    }
  };

  // A rank of a job of `spec` on a worker that measured `rates`, as `cost` counts it, has run for
  // `took_seconds` beside its waits for others.
  void Add(const WorkerRates& rates, const AttentionSpec& spec, const Cost& cost, int32_t rank,
           double took_seconds);

  // What plans reckon with for a job of `spec`: what was measured, by the factor of its kernel.
  KernelRate RateFor(const WorkerRates& rates, const AttentionSpec& spec) const;
  // The fastest that `spec` may be there, by what any kernel of the worker has shown of its
  // operation: what held up the measurement of one held up that of all. Before anything is shown:
  // by the time that it had processors for.
  KernelRate LeastRateFor(const WorkerRates& rates, const AttentionSpec& spec) const;
  // The same over what was measured: 1/32 to 1.
  double LeastOf(const WorkerRates& rates, Operation operation) const;

  const std::map<Of, WorkerSpeedEstimator>& all() const { return paces_; }

 private:
  std::map<Of, WorkerSpeedEstimator> paces_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_WORKER_SPEED_ESTIMATOR_H_
