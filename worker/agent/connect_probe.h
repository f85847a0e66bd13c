#ifndef ANNULUS_WORKER_AGENT_CONNECT_PROBE_H_
#define ANNULUS_WORKER_AGENT_CONNECT_PROBE_H_

#include <memory>
#include <string>

#include "base/log.h"
#include "grpcpp/grpcpp.h"

namespace annulus {

// Logs why a coordinator cannot be reached. The control stream waits for its connection without an
// error, so a separate health check asks. Not thread-safe.
class ConnectProbe {
 public:
  // `address` is the coordinator's name in the log.
  ConnectProbe(std::shared_ptr<grpc::Channel> channel, std::string address);
  ~ConnectProbe();

  // Starts a health check with a timeout of 10 s, and cancels an older one. If no connection is
  // made, logs one line of this level.
  void Ask(LogLevel level);

 private:
  struct Question;

  const std::shared_ptr<grpc::Channel> channel_;
  const std::string address_;
  std::shared_ptr<Question> question_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_CONNECT_PROBE_H_
