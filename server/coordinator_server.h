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

// A running coordinator with its gateway: every service, port and thread of it. The binary, tests
// and whoever embeds it start it alike.
class CoordinatorServer {
 public:
  struct Options {
    // host:port; port 0: any free one. Clients: Attention, Jobs, health, reflection.
    std::string address = "127.0.0.1:8001";
    // Workers: WorkerControl, health, reflection.
    std::string control_address = "127.0.0.1:8003";
    // Health and reflection alone, in plain text, for probes; empty: none.
    std::string health_address;
    CoordinatorOptions coordinator;
    int planner_threads = 1;
    // Words of workers, and as many of clients, that wait for the coordinator; one more is refused.
    size_t max_mail = 65536;
    // Of the gateway's calls (its channels, server_info and limits are filled in).
    int max_unsent_messages = 4;
    int max_attend_calls = 256;
    int64_t max_inline_bytes = int64_t{512} << 20;
    // Calls at once on one connection to any of the ports; more wait in who makes them.
    int max_streams_per_connection = 128;
    // A client or a probe that has been silent for so long is asked for a sign of life, and loses
    // its connection where none comes in time.
    absl::Duration keepalive_time = absl::Seconds(30);
    absl::Duration keepalive_timeout = absl::Seconds(10);
    // How long a worker's stream may be open before its first message is here.
    absl::Duration register_wait = absl::Seconds(10);
    // Null: insecure.
    std::shared_ptr<grpc::ServerCredentials> server_credentials;
    std::shared_ptr<grpc::ChannelCredentials> worker_credentials;
  };

  // UNAVAILABLE / CANNOT_LISTEN when a port cannot be bound: nothing runs then.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(Options options);
  // Shuts down if that has not been done.
  ~CoordinatorServer();

  // Where it listens, with the actual ports; empty for a health port that was not asked for.
  const std::string& address() const;
  const std::string& control_address() const;
  const std::string& health_address() const;

  // Not ready any more, no new jobs; those that run have drain_grace. Returns at once; idempotent.
  void Drain();
  // Waits until a drain is over and every Attend, AttendInline and MergePartials call has ended:
  // false at the deadline, by base/steady_time.h.
  bool WaitUntilDrained(absl::Time deadline);
  // Ends every call and thread. Idempotent; not together with other calls.
  void Shutdown();

 private:
  struct Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_SERVER_H_
