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
#include "base/log.h"
#include "grpcpp/grpcpp.h"

namespace annulus {

// Logs why a coordinator cannot be reached. The control stream waits for its connection without an
// error, so a separate health check finds the reason. Not thread-safe.
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

// The control stream over gRPC's callback API: at most one stream at a time, one write in progress,
// a bounded outbox. AgentState decides when to connect and what to send, and interprets commands.
// Not thread-safe: called in the agent's turns.
class ControlLink {
 public:
  struct Options {
    std::string coordinator;  // host:port
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    // Called on gRPC's threads, with the number given to Connect; also for older streams.
    std::function<void(int64_t stream, control::v1::WorkerCommand command)> on_command;
    std::function<void(int64_t stream, absl::Status status)> on_closed;
    // Limit of events that wait to be written. One more cancels the stream.
    size_t max_outbox = 1 << 17;
    // After `keepalive_time` without traffic, the connection is pinged. Without an answer in
    // `keepalive_timeout` it is closed: the coordinator's host may have gone without closing it,
    // and another host may have its name.
    absl::Duration keepalive_time = absl::Seconds(10), keepalive_timeout = absl::Seconds(5);
    // How long the destructor waits until gRPC has released a stream.
    absl::Duration patience = absl::Seconds(5);
  };

  explicit ControlLink(Options options);
  // Cancels the stream. Waits for a running callback; none runs afterwards.
  ~ControlLink();

  // Opens a stream and cancels an older one. The stream waits until the coordinator can be reached;
  // meanwhile a log line gives the reason: a warning, or info if the last stream ended because the
  // coordinator shut down. `number` is passed to the callbacks.
  void Connect(int64_t number);
  void Send(const control::v1::WorkerEvent& event);
  // Cancels the stream. The caller ignores its later callbacks.
  void Drop();
  // Sends all waiting events, half-closes, and returns when the coordinator has ended the stream or
  // after `timeout`.
  void Close(absl::Duration timeout);

 private:
  class Stream;

  const std::shared_ptr<const Options> options_;
  std::unique_ptr<ConnectProbe> probe_;
  std::unique_ptr<control::v1::WorkerControl::Stub> stub_;
  std::shared_ptr<Stream> stream_;
  std::vector<std::shared_ptr<Stream>> dropped_;  // Streams that gRPC may not have released yet.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_CONTROL_LINK_H_
