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

// A RunJob or WatchJob call: writes what the coordinator loop says. Its outbox is bounded; a client
// that does not read fast enough to keep it from filling loses its call (RESOURCE_EXHAUSTED /
// SLOW_CLIENT), and with it its job, and where too much waits for all clients
// (slow_reader_registry.h) one that has kept it waiting for long is cancelled. One that does not
// read up to the call's end is cancelled after `patience`, and where all is well ReadingTime of
// what waits for it. Owns no state of jobs; lives until gRPC is done with the call and the
// coordinator loop has let go of it.
class JobStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public CallSink {
 public:
  JobStream(CoordinatorLoop* loop, grpc::CallbackServerContext* context, absl::Duration patience);

  // Hands the call to the coordinator loop with its first event, which carries `number()`. Returns
  // the reactor.
  static JobStream* Start(std::shared_ptr<JobStream> stream, Event event);
  // A call that is refused before the coordinator loop sees it.
  static JobStream* Refuse(std::shared_ptr<JobStream> stream, const absl::Status& status);
  int64_t number() const { return number_; }

  // The coordinator loop's words.
  void Send(v1::JobEvent event) override;
  void SendLast(v1::JobEvent event) override;
  void Finish(const absl::Status& status) override;
  void Answer(absl::StatusOr<Value> value) override { Finish(value.status()); }

  // gRPC's.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  using Box = Outbox<v1::JobEvent>;
  void Do(Box::Start start);
  void GiveUp();
  // What is to be written waits for the client, who may take his time while not too much does.
  void CountWaiting() EXCLUDES(mutex_);
  // The same behind the last event.
  void BeginEnd() EXCLUDES(mutex_);

  CoordinatorLoop* const loop_;
  const int64_t number_;
  const absl::Duration patience_;
  Box box_;
  grpc::ByteBuffer out_;
  SlowReaderGuard unread_end_;
  Mutex mutex_;                      // So that the last count is the latest.
  std::shared_ptr<JobStream> self_;  // Until OnDone.
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICES_JOB_STREAM_H_
