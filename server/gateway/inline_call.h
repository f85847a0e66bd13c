#ifndef ANNULUS_SERVER_GATEWAY_INLINE_CALL_H_
#define ANNULUS_SERVER_GATEWAY_INLINE_CALL_H_

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/gateway/gated_call.h"
#include "server/gateway/gateway_options.h"

namespace annulus {

// The reactor of one AttendInline call. Threads of the queue make tensors and digests. Tensors
// count against `options.max_inline_bytes` through the queue until the answer is being sent. The
// pointers outlive the call.
grpc::ServerUnaryReactor* StartInlineCall(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* arrived,
                                          grpc::ByteBuffer* response,
                                          const GatewayServiceOptions& options,
                                          const InlineResources& resources);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_INLINE_CALL_H_
