#ifndef ANNULUS_WORKER_BACKEND_START_RATES_H_
#define ANNULUS_WORKER_BACKEND_START_RATES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/planning/kernel_rates.h"
#include "worker/lane/engine.h"

namespace annulus {

struct StartRatesOptions {
  int threads = 1;        // Of the CPU's kernel.
  int64_t link_rate = 0;  // Bytes per second; 0: measured, or assumed where it cannot be.
  // For forward passes, about; half of it for gradients and as long again for the link.
  absl::Duration time = absl::Seconds(1);
  // Asked before each measurement.
  std::function<bool()> told_to_end = [] { return false; };
};

// What a worker measures at start: every kernel that the engine has, and its transfers. CANCELLED
// once it is told to end.
absl::StatusOr<WorkerRates> MeasureStartRates(const Engine& engine,
                                              const StartRatesOptions& options);

// For a line of the log, at head dimensions of 128.
std::string RatesText(const WorkerRates& rates);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_START_RATES_H_
