#ifndef ANNULUS_SERVER_SERVICES_JOBS_SERVICE_H_
#define ANNULUS_SERVER_SERVICES_JOBS_SERVICE_H_

#include "annulus/v1/jobs.grpc.pb.h"
#include "proto/rpc/slow_reader_guard.h"
#include "server/coordinator/state/coordinator_options.h"
#include "server/services/coordinator_loop.h"
#include "server/services/job_stream.h"

namespace annulus {

// annulus.v1.Jobs: validates, posts to the coordinator loop, and lets it answer. The coordinator
// loop outlives the server. All requests come raw, to be counted before they are parsed, and let go
// of when they have been.
class JobsService final
    : public v1::Jobs::WithRawCallbackMethod_RunJob<v1::Jobs::WithRawCallbackMethod_WatchJob<
          v1::Jobs::WithRawCallbackMethod_PlanJob<v1::Jobs::WithRawCallbackMethod_GetJob<
              v1::Jobs::WithRawCallbackMethod_ListJobs<v1::Jobs::WithRawCallbackMethod_CancelJob<
                  v1::Jobs::WithRawCallbackMethod_ReleaseState<v1::Jobs::Service>>>>>>> {
 public:
  // `end_patience`: for callers who do not read up to their call's end, see UnaryCall, JobStream.
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
  // What the coordinator loop answers at once.
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
