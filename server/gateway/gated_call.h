#ifndef ANNULUS_SERVER_GATEWAY_GATED_CALL_H_
#define ANNULUS_SERVER_GATEWAY_GATED_CALL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/rpc/request_fields.h"
#include "proto/rpc/unary_call.h"
#include "server/gateway/concurrency_limiter.h"
#include "server/gateway/inline_workers.h"

namespace annulus {

// Resources that all inline calls share.
struct InlineResources {
  ConcurrencyLimiter* gate = nullptr;
  InlineWorkers* queue = nullptr;
  absl::Duration answer_patience;  // See GatewayServiceOptions.
};

// A running unary call. It has a place in the gate and a share of the queue's budget until its
// answer is made: a caller that does not read keeps nobody out. The resources outlive the call.
template <typename Request, typename Response>
class GatedCall : public UnaryCall {
 protected:
  GatedCall(grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
            const InlineResources& resources)
      : UnaryCall(context, &response_, resources.answer_patience, response),
        gate_(resources.gate),
        queue_(resources.queue) {}

  // Must come first. RESOURCE_EXHAUSTED / TOO_MANY_CALLS, then those of TakeRequest.
  absl::Status Enter(const grpc::ByteBuffer* arrived) {
    ASSIGN_OR_RETURN(place_, gate_->Enter());
    return TakeRequest(arrived, &request_);
  }
  // Reserves a share of the budget. The call and the caller of this function hold it. Errors: those
  // of InlineWorkers::Reserve.
  absl::StatusOr<std::shared_ptr<void>> Reserve(int64_t bytes) {
    ASSIGN_OR_RETURN(share_, queue_->Reserve(bytes));
    return share_;
  }
  void Post(std::function<void()> work) { queue_->Post(std::move(work)); }
  // Replaces End. It frees the request.
  void Leave(const absl::Status& status) {
    Request().Swap(&request_);
    share_ = nullptr;
    leaving_ = gate_->Leave(std::move(place_));
    End(status);
  }

  Request request_;
  Response response_;

 private:
  ConcurrencyLimiter* const gate_;
  InlineWorkers* const queue_;
  // `place_`: in the gate until the answer is made. `leaving_`: from then on until it is read.
  std::shared_ptr<void> place_, leaving_;
  std::shared_ptr<void> share_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_GATED_CALL_H_
