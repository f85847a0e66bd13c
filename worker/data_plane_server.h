#ifndef ANNULUS_WORKER_DATA_PLANE_SERVER_H_
#define ANNULUS_WORKER_DATA_PLANE_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/data_plane/copy_pool.h"
#include "worker/data_plane/data_plane_service.h"
#include "worker/data_plane/shard_board.h"

namespace annulus {

// The worker's gRPC server: DataPlane and grpc.health.v1, the latter also on a port of its own
// where probes cannot speak TLS.
class DataPlaneServer {
 public:
  struct Options {
    std::string address;         // host:port; port 0: any.
    std::string health_address;  // Empty: none.
    ShardBoard* board = nullptr;
    CopyPool* pool = nullptr;
    // A connection that has been silent for so long is asked for a sign of life, and dropped with
    // its calls where none comes in time: nobody else tells of a client whose machine is gone.
    absl::Duration keepalive_time = absl::Seconds(30);
    absl::Duration keepalive_timeout = absl::Seconds(10);
    DataPlaneService::Patience patience = {};
  };

  // UNAVAILABLE / CANNOT_LISTEN where a port cannot be bound.
  static absl::StatusOr<std::unique_ptr<DataPlaneServer>> Start(const Options& options);
  // Calls must have been told to end (ShardBoard::Shutdown); what is left is cut after two seconds.
  ~DataPlaneServer();

  int port() const;
  // Services "", "readiness" and DataPlane serve when ready; "liveness" always does.
  void SetReady(bool ready);

 private:
  class Impl;
  explicit DataPlaneServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_SERVER_H_
