#ifndef ANNULUS_SERVER_GATEWAY_INLINE_CALL_H_
#define ANNULUS_SERVER_GATEWAY_INLINE_CALL_H_

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/gateway/gated_call.h"
#include "server/gateway/gateway_options.h"

namespace annulus {

// The reactor of one AttendInline call. Tensors are made, and digests taken, on the queue's
// threads; they count against `options.max_inline_bytes` through the queue until the answer is on
// its way. Pointers outlive the call.
grpc::ServerUnaryReactor* StartInlineCall(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* arrived,
                                          grpc::ByteBuffer* response,
                                          const GatewayServiceOptions& options,
                                          const InlineResources& resources);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_INLINE_CALL_H_
