#ifndef ANNULUS_WORKER_AGENT_CONNECT_PROBE_H_
#define ANNULUS_WORKER_AGENT_CONNECT_PROBE_H_

#include <memory>
#include <string>

#include "base/log.h"
#include "grpcpp/grpcpp.h"

namespace annulus {

// Tells in the log why a coordinator cannot be reached: a stream that waits for its connection says
// nothing until it is given up. Called by one thread at a time.
class ConnectProbe {
 public:
  // `address` is what the log calls it.
  ConnectProbe(std::shared_ptr<grpc::Channel> channel, std::string address);
  ~ConnectProbe();

  // Asks for the health of whoever is there, with 10 s. One line, of this level, where no
  // connection comes about. Gives an older question up.
  void Ask(LogLevel level);

 private:
  struct Question;

  const std::shared_ptr<grpc::Channel> channel_;
  const std::string address_;
  std::shared_ptr<Question> question_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_CONNECT_PROBE_H_
