#ifndef ANNULUS_SERVER_GATEWAY_MERGE_CALL_H_
#define ANNULUS_SERVER_GATEWAY_MERGE_CALL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "annulus/v1/attention.pb.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/gateway/gated_call.h"

namespace annulus {

// The number of bytes of a merge: of the request, and twice of the answer, as merged numbers and as
// the message.
int64_t MergeBytes(const v1::MergePartialsRequest& request);

// The answer to a MergePartials call, or its error (docs/reference/calls.md). Pure function.
absl::Status AnswerMerge(const v1::MergePartialsRequest& request, v1::Partial* response);

// The reactor of one MergePartials call. A thread of the queue reads the numbers. They count
// against the queue's budget until the answer is being sent. The pointers outlive the call.
grpc::ServerUnaryReactor* StartMergeCall(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* arrived,
                                         grpc::ByteBuffer* response,
                                         const InlineResources& resources);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_MERGE_CALL_H_
