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

// The worker's gRPC server: DataPlane and grpc.health.v1. The health service also has its own port,
// for probes that cannot use TLS.
class DataPlaneServer {
 public:
  struct Options {
    std::string address;         // host:port. Port 0: any free port.
    std::string health_address;  // Empty: no separate health port.
    ShardBoard* board = nullptr;
    CopyPool* pool = nullptr;
    // After `keepalive_time` without traffic, the server pings a connection. Without an answer in
    // `keepalive_timeout`, it drops the connection and its calls. Nothing else detects that a
    // client's machine is gone.
    absl::Duration keepalive_time = absl::Seconds(30);
    absl::Duration keepalive_timeout = absl::Seconds(10);
    DataPlaneService::Patience patience = {};
  };

  // UNAVAILABLE / CANNOT_LISTEN: a port cannot be bound.
  static absl::StatusOr<std::unique_ptr<DataPlaneServer>> Start(const Options& options);
  // Requires: ShardBoard::Shutdown has been called. Calls that remain after two seconds are
  // cancelled.
  ~DataPlaneServer();

  int port() const;
  // Services "", "readiness" and DataPlane are SERVING if ready. "liveness" always is.
  void SetReady(bool ready);

 private:
  class Impl;
  explicit DataPlaneServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_SERVER_H_
