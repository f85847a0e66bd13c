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
  int threads = 1;        // Threads of the CPU kernel.
  int64_t link_rate = 0;  // Bytes per second. 0: measured, or assumed if it cannot be measured.
  // Approximate time for forward passes; half of it for gradients, and as long again for the link.
  absl::Duration time = absl::Seconds(1);
  // Checked before each measurement.
  std::function<bool()> stop_requested = [] { return false; };
};

// Measures the rates of every kernel of the engine and of its transfers. CANCELLED once
// stop_requested returns true.
absl::StatusOr<WorkerRates> MeasureStartRates(const Engine& engine,
                                              const StartRatesOptions& options);

// A log line, for head dimension 128.
std::string RatesText(const WorkerRates& rates);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_START_RATES_H_
