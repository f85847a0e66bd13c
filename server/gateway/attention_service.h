#ifndef ANNULUS_SERVER_GATEWAY_ATTENTION_SERVICE_H_
#define ANNULUS_SERVER_GATEWAY_ATTENTION_SERVICE_H_

#include "annulus/v1/attention.grpc.pb.h"
#include "server/gateway/concurrency_limiter.h"
#include "server/gateway/gateway_options.h"
#include "server/gateway/idle_calls.h"
#include "server/gateway/inline_workers.h"

namespace annulus {

using AttentionServiceBase =
    v1::Attention::WithRawCallbackMethod_Attend<v1::Attention::WithRawCallbackMethod_AttendMany<
        v1::Attention::WithRawCallbackMethod_AttendInline<
            v1::Attention::WithRawCallbackMethod_GetServerInfo<
                v1::Attention::WithRawCallbackMethod_MergePartials<v1::Attention::Service>>>>>;

// The public Attention service: one address for every client. It converts and delegates. Requests
// are raw, so that their parts are counted before parsing. The server that it is registered with
// must be shut down before it is destroyed.
class AttentionService final : public AttentionServiceBase {
 public:
  explicit AttentionService(GatewayServiceOptions options)
      : options_(std::move(options)),
        gate_(options_.max_attend_calls),
        resting_(options_.max_resting_calls),
        queue_({1, options_.max_inline_bytes}) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* arrived,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* AttendInline(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* arrived,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* MergePartials(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* arrived,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attend(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttendMany(
      grpc::CallbackServerContext* context) override;

  // Waits for the end of every Attend, AttendInline and MergePartials call, and of the jobs of
  // AttendMany calls. False at the deadline.
  bool WaitUntilIdle(absl::Time deadline) { return gate_.WaitUntilEmpty(deadline); }
  // Ends AttendMany calls without a job, now and from now on.
  void EndResting() { resting_.Close(); }

 private:
  const GatewayServiceOptions options_;
  ConcurrencyLimiter gate_;
  IdleCalls resting_;
  InlineWorkers queue_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_ATTENTION_SERVICE_H_
