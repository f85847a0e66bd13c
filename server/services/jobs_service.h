#ifndef ANNULUS_SERVER_SERVICES_JOBS_SERVICE_H_
#define ANNULUS_SERVER_SERVICES_JOBS_SERVICE_H_

#include "annulus/v1/jobs.grpc.pb.h"
#include "proto/rpc/slow_reader_guard.h"
#include "server/coordinator/state/coordinator_options.h"
#include "server/services/coordinator_loop.h"
#include "server/services/job_stream.h"

namespace annulus {

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
