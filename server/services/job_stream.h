#ifndef ANNULUS_SERVER_SERVICES_JOB_STREAM_H_
#define ANNULUS_SERVER_SERVICES_JOB_STREAM_H_

#include <cstdint>
#include <memory>

#include "annulus/v1/jobs.pb.h"
#include "base/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "proto/rpc/slow_reader_guard.h"
#include "server/services/coordinator_loop.h"
#include "server/services/outbox.h"

namespace annulus {

// A RunJob or WatchJob call: writes the coordinator loop's messages.
// - The outbox is bounded. A client that does not read fast enough loses its call
//   (RESOURCE_EXHAUSTED / SLOW_CLIENT), and with it its job.
// - If too much waits for all clients together (slow_reader_registry.h), the calls that have waited
//   longest are cancelled.
// - A client that does not read up to the call's end is cancelled after `patience` and the
//   ReadingTime of what waits; after SLOW_CLIENT, after `patience` alone.
//
// It holds no state of jobs. It lives until gRPC is done with the call and the coordinator loop has
// released it.
class JobStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public CallSink {
 public:
  JobStream(CoordinatorLoop* loop, grpc::CallbackServerContext* context, absl::Duration patience);

  // Passes the call to the coordinator loop with its first event, which carries `number()`. Returns
  // the reactor.
  static JobStream* Start(std::shared_ptr<JobStream> stream, Event event);
  // Ends a call that is refused before the coordinator loop gets it.
  static JobStream* Refuse(std::shared_ptr<JobStream> stream, const absl::Status& status);
  int64_t number() const { return number_; }

  // Called by the coordinator loop.
  void Send(v1::JobEvent event) override;
  void SendLast(v1::JobEvent event) override;
  void Finish(const absl::Status& status) override;
  void Answer(absl::StatusOr<Value> value) override { Finish(value.status()); }

  // Called by gRPC.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  using Box = Outbox<v1::JobEvent>;
  void Do(Box::Start start);
  void GiveUp();
  // Counts the messages that wait for the client. The call is cancelled only if too much waits.
  void CountWaiting() EXCLUDES(mutex_);
  // Starts the time limit for reading after the last event.
  void BeginEnd() EXCLUDES(mutex_);

  CoordinatorLoop* const loop_;
  const int64_t number_;
  const absl::Duration patience_;
  Box box_;
  grpc::ByteBuffer out_;
  SlowReaderGuard slow_reader_guard_;
  Mutex mutex_;                      // Orders the counts: the last is the latest.
  std::shared_ptr<JobStream> self_;  // Until OnDone.
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICES_JOB_STREAM_H_
