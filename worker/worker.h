#ifndef ANNULUS_WORKER_WORKER_H_
#define ANNULUS_WORKER_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/planning/kernel_rates.h"
#include "worker/data_plane/rate_floor.h"
#include "worker/lane/engine.h"

namespace annulus {

struct WorkerOptions {
  std::string coordinator;     // host:port of its control service.
  std::string slot;            // Stable name of this worker's place.
  std::string locality;        // Workers are ordered by it, then by slot.
  std::string data_address;    // host:port to listen on; port 0: any.
  std::string advertise_host;  // Where clients reach it. Empty: as data_address.
  int advertise_port = 0;      // 0: that on which it listens.
  std::string health_address;  // host:port of a health service of its own; empty: none.
  Engine engine;
  int64_t staging_bytes = 0;
  int64_t device_bytes = 0;
  WorkerRates rates;
  int copy_threads = 2;
  RateLimits rate;
  absl::Duration step_timeout = absl::Seconds(30);
  absl::Duration stall_timeout = absl::Seconds(60);
  absl::Duration abort_timeout = absl::Seconds(10);
  absl::Duration drain_timeout = absl::Seconds(30);
  // Called once, on a thread of the worker: the process should end with this code. Destroy the
  // worker then.
  std::function<void(int code)> exit;
};

// A running worker: the data plane's server, the agent and its control stream, the lanes and the
// watchdog.
class Worker {
 public:
  // Listens and begins to register. UNAVAILABLE where a port cannot be bound.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(WorkerOptions options);
  // Ends all calls and waits for all threads.
  ~Worker();

  // SIGTERM: no new jobs, finish what is held, then `exit`. A second call cuts it short.
  void Terminate();
  // host:port that clients are told.
  const std::string& data_endpoint() const;

 private:
  class Impl;
  explicit Worker(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_WORKER_H_
