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

// Compares jobs with a worker's own measurement of a kernel. The measurement was made at the
// worker's start, perhaps on a machine under load. Keeps the ratio of measured to predicted seconds
// of the tasks of the latest runs. Runs that are too short are not counted.
class WorkerSpeedEstimator {
 public:
  // kBound: the tasks took at most this time, as they shared the machine with transfers. Such a run
  // can only show that the worker is faster.
  enum class Kind : bool { kExact, kBound };
  void Add(double predicted_seconds, double took_seconds, Kind kind);

  // The factor by which plans multiply the measured times. 1 while jobs keep to them within a
  // factor of 1.5, as masks and caches cause such differences. The fastest of the latest runs
  // decides. At least 1/32. Above 1, and at most 2, only if all remembered runs were slower.
  double factor() const;
  // The smallest ratio of the latest runs, 1/32 to 1.
  double least() const;
  int32_t runs() const { return static_cast<int32_t>(ratios_.size()); }

 private:
  double Fastest() const;

  std::deque<double> ratios_;  // The latest is last.
};

// The worker's measured rate of the kernel of `spec`, which it serves.
KernelRate MeasuredRate(const WorkerRates& rates, const AttentionSpec& spec);

// Speeds of each kernel of a worker, for forward and backward passes separately.
class WorkerSpeedEstimators {
 public:
  struct Of {
    bool gradients = false;
    size_t kernel = 0;  // Index in WorkerRates::kernels.
    // Element type of the kernel. For gradients, which may use fp32's rates, that of the job.
    DataType dtype = DataType::kFp32;
    bool operator<(const Of& other) const {
      return std::tie(gradients, kernel, dtype) <
             std::tie(other.gradients, other.kernel, other.dtype);
    }
  };

  // Adds a run: `rank` of a job of `spec`, with the work that `cost` counts, took `took_seconds`
  // without its waits for others, on a worker that measured `rates`.
  void Add(const WorkerRates& rates, const AttentionSpec& spec, const Cost& cost, int32_t rank,
           double took_seconds);

  // The rate for plans of a job of `spec`: the measured rate times the factor of its kernel.
  KernelRate RateFor(const WorkerRates& rates, const AttentionSpec& spec) const;
  // The best rate that the worker may have for `spec`. It uses the fastest ratio of any of its
  // kernels for the operation: load that slowed down one measurement slowed down all. Without runs,
  // it uses the share of time for which the worker had processors.
  KernelRate LeastRateFor(const WorkerRates& rates, const AttentionSpec& spec) const;
  // The factor of LeastRateFor over the measured rate, 1/32 to 1.
  double LeastOf(const WorkerRates& rates, Operation operation) const;

  const std::map<Of, WorkerSpeedEstimator>& all() const { return paces_; }

 private:
  std::map<Of, WorkerSpeedEstimator> paces_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_WORKER_SPEED_ESTIMATOR_H_
