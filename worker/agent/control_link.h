#ifndef ANNULUS_WORKER_AGENT_CONTROL_LINK_H_
#define ANNULUS_WORKER_AGENT_CONTROL_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "annulus/control/v1/control.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "worker/agent/connect_probe.h"

namespace annulus {

// The control stream over gRPC's callbacks: at most one at a time, one write outstanding, a bounded
// outbox. When to connect, what to send and what an answer means is AgentState's. Called by
// one thread at a time (in the agent's turns).
class ControlLink {
 public:
  struct Options {
    std::string coordinator;  // host:port
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    // On gRPC's threads, with the number that Connect was given; of older streams, too.
    std::function<void(int64_t stream, control::v1::WorkerCommand command)> on_command;
    std::function<void(int64_t stream, absl::Status status)> on_closed;
    // Events that may wait to be written; one more gives the stream up.
    size_t max_outbox = 1 << 17;
    // A connection that is silent for so long is asked, and given up where no answer comes: the
    // host of the coordinator may have gone without a word, and another may have its name.
    absl::Duration keepalive_time = absl::Seconds(10), keepalive_timeout = absl::Seconds(5);
    // How long the end waits for gRPC to let go of a stream.
    absl::Duration patience = absl::Seconds(5);
  };

  explicit ControlLink(Options options);
  // Gives the stream up. Waits for a callback that runs; none runs after it.
  ~ControlLink();

  // Opens a stream, which waits until the coordinator can be reached; where it cannot, a line of
  // the log says why, a warning unless the last stream ended because the coordinator shuts down.
  // Gives up an older one. `number` is for the callbacks.
  void Connect(int64_t number);
  void Send(const control::v1::WorkerEvent& event);
  // Gives the stream up: no further callbacks of it matter.
  void Drop();
  // Sends what waits and says that there is no more; returns when the coordinator has ended the
  // stream, or at `timeout`.
  void Close(absl::Duration timeout);

 private:
  class Stream;

  const std::shared_ptr<const Options> options_;
  std::unique_ptr<ConnectProbe> probe_;
  std::unique_ptr<control::v1::WorkerControl::Stub> stub_;
  std::shared_ptr<Stream> stream_;
  std::vector<std::shared_ptr<Stream>> dropped_;  // Perhaps still on their way out.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_CONTROL_LINK_H_
