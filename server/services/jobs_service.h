#ifndef ANNULUS_SERVER_SERVICES_JOBS_SERVICE_H_
#define ANNULUS_SERVER_SERVICES_JOBS_SERVICE_H_

#include <cstdint>
#include <memory>

#include "annulus/v1/jobs.grpc.pb.h"
#include "annulus/v1/jobs.pb.h"
#include "base/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "proto/rpc/slow_reader_guard.h"
#include "server/coordinator/state/coordinator_options.h"
#include "server/services/coordinator_loop.h"
#include "server/services/outbox.h"

namespace annulus {

// A RunJob or WatchJob call: writes the coordinator loop's messages.
// - The outbox is bounded. A client that does not read fast enough loses its call
//   (RESOURCE_EXHAUSTED / SLOW_CLIENT), and with it its job.
// - If too much waits for all clients together (slow_reader_guard.h), the calls that have waited
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

// annulus.v1.Jobs: validates requests and posts them to the coordinator loop, which answers. The
// coordinator loop outlives the server. All requests are raw, so that their parts are counted
// before parsing. They are freed after parsing.
class JobsService final
    : public v1::Jobs::WithRawCallbackMethod_RunJob<v1::Jobs::WithRawCallbackMethod_WatchJob<
          v1::Jobs::WithRawCallbackMethod_PlanJob<v1::Jobs::WithRawCallbackMethod_GetJob<
              v1::Jobs::WithRawCallbackMethod_ListJobs<v1::Jobs::WithRawCallbackMethod_CancelJob<
                  v1::Jobs::WithRawCallbackMethod_ReleaseState<v1::Jobs::Service>>>>>>> {
 public:
  // `end_patience` is the time limit for callers that do not read up to the end of their call, see
  // UnaryCall and JobStream.
  JobsService(CoordinatorLoop* loop, const CoordinatorOptions& options,
              absl::Duration end_patience = kSlowReaderPatience)
      : loop_(loop), options_(options), end_patience_(end_patience) {}

  grpc::ServerUnaryReactor* PlanJob(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* arrived,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* RunJob(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* arrived) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchJob(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* arrived) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* arrived,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* arrived,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* arrived,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ReleaseState(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* arrived,
                                         grpc::ByteBuffer* response) override;

 private:
  // Sends a question to the coordinator loop, which answers it at once.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Ask(grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* arrived, grpc::ByteBuffer* response,
                                Event (*event_of)(int64_t call, const Request&));

  CoordinatorLoop* const loop_;
  const CoordinatorOptions options_;
  const absl::Duration end_patience_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICES_JOBS_SERVICE_H_
