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
  std::string coordinator;     // host:port of the coordinator's control service.
  std::string slot;            // Stable name of this worker's place.
  std::string locality;        // The coordinator orders workers by locality, then by slot.
  std::string data_address;    // host:port to listen on. Port 0: any free port.
  std::string advertise_host;  // The host that clients connect to. Empty: the host of data_address.
  // The port that clients connect to. 0: the port that the worker listens on.
  int advertise_port = 0;
  std::string health_address;  // host:port of a separate health service. Empty: none.
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
  // Called once, on a worker thread, when the process should exit with `code`. The callee then
  // destroys the worker.
  std::function<void(int code)> exit;
};

// A running worker: data-plane server, agent with its control stream, lanes and watchdog.
class Worker {
 public:
  // Listens and begins to register. UNAVAILABLE: a port cannot be bound.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(WorkerOptions options);
  // Ends all calls and waits for all threads.
  ~Worker();

  // For SIGTERM: accepts no new jobs, finishes its current ones, then calls `exit`. A second call
  // exits without finishing.
  void Terminate();
  // host:port that clients connect to.
  const std::string& data_endpoint() const;

 private:
  class Impl;
  explicit Worker(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_WORKER_H_
