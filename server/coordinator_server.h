#ifndef ANNULUS_SERVER_COORDINATOR_SERVER_H_
#define ANNULUS_SERVER_COORDINATOR_SERVER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "server/coordinator/state/coordinator_options.h"
#include "server/gateway/gateway_options.h"

namespace annulus {

// A running coordinator with its gateway: every service, port and thread. The binary, tests and
// embedding programs start it in the same way.
class CoordinatorServer {
 public:
  struct Options {
    // host:port for clients; port 0: any free port. Services: Attention, Jobs, health, reflection.
    std::string address = "127.0.0.1:8001";
    // host:port for workers. Services: WorkerControl, health, reflection.
    std::string control_address = "127.0.0.1:8003";
    // host:port for probes: health and reflection only, in plain text. Empty: none.
    std::string health_address;
    CoordinatorOptions coordinator;
    int planner_threads = 1;
    // The largest number of waiting messages of workers, and of clients. A message above it is
    // refused.
    size_t max_mail = 65536;
    // Options of the gateway's calls. Its channels, server_info and limits are filled in.
    int max_unsent_messages = 4;
    int max_attend_calls = 256;
    int64_t max_inline_bytes = int64_t{512} << 20;
    // The largest number of concurrent calls on one connection to any of the ports. More calls wait
    // in the client.
    int max_streams_per_connection = 128;
    // A client or probe that has sent nothing for keepalive_time is pinged. Its connection is
    // closed if no answer comes within keepalive_timeout.
    absl::Duration keepalive_time = absl::Seconds(30);
    absl::Duration keepalive_timeout = absl::Seconds(10);
    // How long a worker's stream may be open before its first message arrives.
    absl::Duration register_wait = absl::Seconds(10);
    // Null: insecure.
    std::shared_ptr<grpc::ServerCredentials> server_credentials;
    std::shared_ptr<grpc::ChannelCredentials> worker_credentials;
  };

  // UNAVAILABLE / CANNOT_LISTEN if a port cannot be bound; nothing runs then.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(Options options);
  // Shuts down if that has not been done.
  ~CoordinatorServer();

  // Bound addresses with the actual ports. Empty for a health port that was not requested.
  const std::string& address() const;
  const std::string& control_address() const;
  const std::string& health_address() const;

  // Ends readiness and accepts no new jobs. Running jobs have drain_grace. Returns at once.
  // Idempotent.
  void Drain();
  // Waits until a drain is over and every Attend, AttendInline and MergePartials call has ended.
  // False at the deadline, by base/steady_time.h.
  bool WaitUntilDrained(absl::Time deadline);
  // Ends every call and thread. Idempotent. Not concurrently with other calls.
  void Shutdown();

 private:
  struct Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_SERVER_H_
