#ifndef ANNULUS_TESTS_WORKER_SMALL_WORKER_H_
#define ANNULUS_TESTS_WORKER_SMALL_WORKER_H_

#include <string>

#include "worker/backend/backend.h"
#include "worker/worker.h"

namespace annulus {

// A worker on loopback with little memory. Its exit does not end the process.
inline WorkerOptions SmallWorkerOptions(const std::string& coordinator) {
  WorkerOptions options;
  options.coordinator = coordinator;
  options.slot = "worker-0";
  options.data_address = "127.0.0.1:0";
  BackendOptions backend;
  backend.comm_host = "127.0.0.1";
  options.engine = *MakeEngine(backend);
  options.staging_bytes = options.device_bytes = 1 << 20;
  options.exit = [](int) {};
  return options;
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_SMALL_WORKER_H_
